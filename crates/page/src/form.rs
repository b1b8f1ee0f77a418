//! The form of traffic shaping of a card or a port group: fields, the change that they ask for, and
//! their display.
//!
//! Directions are the guest's, as in statistics: it *receives* what is `to_guest`, and *transmits*
//! what is `to_switch`.
//!
//! Each direction has a hidden field with what the form showed. A direction that the user left as
//! it was stays as it is, whatever others have set meanwhile, and one that both have changed is
//! refused. A form that is sent twice changes nothing the second time.

use std::collections::BTreeMap;

use maud::{Markup, html};
use taut_api::ApiError;
use taut_api::Bytes;
use taut_api::error::ErrorKind;
use taut_api::patch::{NicPatch, VmPatch};
use taut_api::shaping::{OwnShape, OwnShaping, Shape, Shaping};
use taut_api::units::BitRate;

/// Units of rates, as in vSphere's form, with their factors.
static RATES: [(&str, u64); 4] = [("bps", 1), ("Kbps", 1000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)];
/// Units of the burst, with their factors.
static SIZES: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
/// Choices of a direction: the value in the form, and its text. The first one is for cards only.
const MODES: [(&str, &str); 3] =
    [("default", "As the port group"), ("off", "Not limited"), ("limited", "Limited to:")];
/// Fields of a direction, without their prefix.
const FIELDS: [&str; 7] = ["mode", "average", "average_unit", "peak", "peak_unit", "burst", "burst_unit"];
/// The directions: prefix of their fields, and their name.
const DIRECTIONS: [(&str, &str); 2] = [("receive", "Receive"), ("transmit", "Transmit")];

/// Fields of the form, by name, as a browser sends them.
pub type Fields = BTreeMap<String, String>;

/// Subject that a form shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A card of a VM.
    Card,
    /// A port group.
    PortGroup,
}

impl Subject {
    /// Returns the choices of a direction.
    fn modes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Card => &MODES,
            Self::PortGroup => &MODES[1..],
        }
    }
}

/// Returns the fields that show a shaping.
pub fn fields_of(shaping: &OwnShaping) -> Fields {
    let mut fields = Fields::new();
    for ((prefix, _), own) in DIRECTIONS.iter().zip([shaping.to_guest, shaping.to_switch]) {
        let mut put = |field: &str, value: String| fields.insert(format!("{prefix}_{field}"), value);
        let (mode, shape) = match own {
            OwnShape::Default => ("default", None),
            OwnShape::Off => ("off", None),
            OwnShape::Limited(shape) => ("limited", Some(shape)),
        };
        put("mode", mode.to_owned());
        let amounts = [
            ("average", shape.map(|shape| shape.average.0), &RATES[..], "Mbps"),
            ("peak", shape.and_then(|shape| shape.peak).map(|peak| peak.0), &RATES[..], "Mbps"),
            ("burst", shape.map(|shape| shape.burst.0), &SIZES[..], "MiB"),
        ];
        for (field, amount, units, usual) in amounts {
            let (number, unit) = match amount {
                Some(amount) => in_units(amount, units),
                None => (String::new(), usual),
            };
            put(field, number);
            put(&format!("{field}_unit"), unit.to_owned());
        }
    }
    fields
}

/// Returns an amount in the largest unit of which it is a whole multiple. A size below KiB is
/// rounded up.
fn in_units(amount: u64, units: &'static [(&'static str, u64)]) -> (String, &'static str) {
    let whole = units.iter().rev().find(|(_, factor)| amount > 0 && amount.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&units[0]);
    (amount.div_ceil(*factor).to_string(), unit)
}

/// Returns the values of a direction as one text.
fn line(fields: &Fields, prefix: &str) -> String {
    let value = |field: &&str| fields.get(&format!("{prefix}_{field}")).map_or("", |text| text.trim());
    FIELDS.iter().map(value).collect::<Vec<_>>().join("|")
}

/// Returns what a direction showed when the form was loaded, if the form says so.
fn shown_before<'a>(fields: &'a Fields, prefix: &str) -> Option<&'a String> {
    fields.get(&format!("{prefix}_was"))
}

/// Returns the directions that a form changes: receive, and transmit. `now` is the shaping that is
/// stored.
fn changes(subject: Subject, fields: &Fields, now: &OwnShaping) -> Result<[Option<OwnShape>; 2], ApiError> {
    let stored = fields_of(now);
    let change = |prefix: &str, name: &str, now: OwnShape| {
        let (sent, stored) = (line(fields, prefix), line(&stored, prefix));
        let before = shown_before(fields, prefix).unwrap_or(&stored);
        if sent == *before {
            return Ok(None);
        }
        let wanted = own_shape(subject, fields, prefix, name)?;
        if wanted == now {
            return Ok(None);
        }
        if *before != stored {
            return Err(ApiError::new(
                ErrorKind::Changed,
                format!("{name}: somebody has changed the shaping since this form was loaded"),
                "compare with what is in force; send the form again to replace it",
            ));
        }
        Ok(Some(wanted))
    };
    let [(receive, receives), (transmit, transmits)] = DIRECTIONS;
    Ok([change(receive, receives, now.to_guest)?, change(transmit, transmits, now.to_switch)?])
}

/// Returns the change of a VM that the form of one of its cards asks for. `now` is the shaping of
/// the card that is stored.
///
/// # Errors
/// If a field is missing or cannot be read, or somebody else has changed the direction meanwhile.
/// The daemon checks the rest.
pub fn patch_of(nic: usize, fields: &Fields, now: &OwnShaping) -> Result<VmPatch, ApiError> {
    let [to_guest, to_switch] = changes(Subject::Card, fields, now)?;
    let nic_patch = NicPatch { to_guest, to_switch, ..NicPatch::default() };
    Ok(VmPatch { nics: [(nic, nic_patch)].into(), ..VmPatch::default() })
}

/// Returns the shaping of a port group that its form asks for; nothing if the form changes nothing.
///
/// # Errors
/// As [`patch_of`].
pub fn shaping_of(fields: &Fields, now: &Shaping) -> Result<Option<Shaping>, ApiError> {
    let [to_guest, to_switch] = changes(Subject::PortGroup, fields, &of_group(now))?;
    if to_guest.is_none() && to_switch.is_none() {
        return Ok(None);
    }
    let next = |change: Option<OwnShape>, now| match change {
        None => now,
        Some(OwnShape::Limited(shape)) => Some(shape),
        Some(OwnShape::Off | OwnShape::Default) => None,
    };
    let (to_guest, to_switch) = (next(to_guest, now.to_guest), next(to_switch, now.to_switch));
    Ok(Some(Shaping { to_switch, to_guest }))
}

/// Returns a port group's shaping as the form shows it.
pub fn of_group(shaping: &Shaping) -> OwnShaping {
    let own = |shape: Option<Shape>| shape.map_or(OwnShape::Off, OwnShape::Limited);
    OwnShaping { to_switch: own(shaping.to_switch), to_guest: own(shaping.to_guest) }
}

/// Returns the fields of a form that was refused, to be shown again: as they were sent, and in
/// directions that the user had not touched, as they are now.
fn again(sent: &Fields, now: &OwnShaping) -> Fields {
    let mut fields = sent.clone();
    let stored = fields_of(now);
    for (prefix, _) in DIRECTIONS {
        if shown_before(sent, prefix).is_some_and(|before| *before == line(sent, prefix)) {
            let of_direction = stored.iter().filter(|(field, _)| field.starts_with(prefix));
            fields.extend(of_direction.map(|(field, value)| (field.clone(), value.clone())));
        }
    }
    fields
}

fn own_shape(subject: Subject, fields: &Fields, prefix: &str, direction: &str) -> Result<OwnShape, ApiError> {
    let field = |name: &str| fields.get(&format!("{prefix}_{name}")).map_or("", |text| text.trim());
    let amount = |name: &str, units: &[(&str, u64)]| {
        let number = field(name);
        if number.is_empty() {
            return Ok(None);
        }
        let unit = field(&format!("{name}_unit"));
        let factor = units.iter().find(|(known, _)| *known == unit).map(|(_, factor)| *factor);
        let read = number.parse::<u64>().ok().zip(factor);
        read.and_then(|(number, factor)| number.checked_mul(factor)).map(Some).ok_or_else(|| {
            let known: Vec<_> = units.iter().map(|(unit, _)| *unit).collect();
            refused(
                format!("{direction}: {name} `{number} {unit}` cannot be read"),
                format!("write a whole number, and choose one of {}", known.join(", ")),
            )
        })
    };
    match field("mode") {
        "default" if subject == Subject::Card => Ok(OwnShape::Default),
        "off" => Ok(OwnShape::Off),
        "limited" => {
            let average = amount("average", &RATES)?.map(BitRate).ok_or_else(|| {
                refused(
                    format!("{direction}: a limit needs an average rate"),
                    "write the average, or choose \"Not limited\"",
                )
            })?;
            let usual = Shape::steady(average);
            let burst = amount("burst", &SIZES)?.map_or(usual.burst, Bytes);
            Ok(OwnShape::Limited(Shape { peak: amount("peak", &RATES)?.map(BitRate), burst, ..usual }))
        }
        other => Err(refused(
            format!("{direction}: `{other}` is not a choice of this form"),
            "load the page again, and send its form",
        )),
    }
}

fn refused(message: String, hint: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message, hint)
}

/// Shows the form of a subject with the shaping that is stored, or, after a refusal, with the
/// fields that were sent. Without the right to change anything, its fields are disabled and
/// `closed` says why.
pub(crate) fn shaping(
    subject: Subject,
    address: &str,
    now: &OwnShaping,
    sent: Option<&Fields>,
    closed: Option<&str>,
) -> Markup {
    let stored = fields_of(now);
    let fields = sent.map_or_else(|| stored.clone(), |sent| again(sent, now));
    html! {
        form.shaping method="post" action=(address) {
            @if let Some(why) = closed { p.quiet #shaping-closed { (why) } }
            @for (prefix, name) in DIRECTIONS {
                fieldset disabled[closed.is_some()] aria-describedby=[closed.map(|_| "shaping-closed")] {
                    legend { (name) }
                    input type="hidden" name=(format!("{prefix}_was")) value=(line(&stored, prefix));
                    (direction(subject, prefix, name, &fields))
                }
            }
            p.buttons {
                button type="submit" disabled[closed.is_some()] { "Apply shaping" }
            }
        }
    }
}

fn direction(subject: Subject, prefix: &str, direction: &str, fields: &Fields) -> Markup {
    let value = |field: &str| fields.get(&format!("{prefix}_{field}")).map_or("", String::as_str);
    let amounts = [
        ("average", "Average", &RATES[..], "needed for a limit"),
        ("peak", "Peak", &RATES[..], "the average, if empty"),
        ("burst", "Burst", &SIZES[..], "100 MiB, if empty"),
    ];
    html! {
        div.choices {
            @for (mode, text) in subject.modes() {
                label {
                    input type="radio" name=(format!("{prefix}_mode")) value=(mode) required
                        checked[value("mode") == *mode];
                    " " (text)
                }
            }
        }
        @for (field, name, units, hint) in amounts {
            @let id = format!("{prefix}_{field}");
            div.field {
                label for=(id) { (name) }
                input #(id) type="text" inputmode="numeric" pattern="[0-9]*" title="a whole number" maxlength="20" size="8"
                    autocomplete="off" name=(id) value=(value(field))
                    aria-describedby=(format!("{id}_hint"));
                select name=(format!("{id}_unit")) aria-label=(format!("{direction}: unit of {field}")) {
                    @for (unit, _) in units {
                        option value=(unit) selected[value(&format!("{field}_unit")) == *unit] { (unit) }
                    }
                }
                span.hint #(format!("{id}_hint")) { (hint) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut fields = fields_of(&OwnShaping::default());
        fields.extend(pairs.iter().map(own));
        fields
    }

    #[test]
    fn a_form_is_read_as_it_was_shown() {
        let odd = Shape { burst: Bytes(1500), ..Shape::steady(BitRate(7)) };
        let shape =
            Shape { average: BitRate(1_500_000), peak: Some(BitRate(2_000_000_000)), burst: Bytes(3 << 20) };
        for own in [
            OwnShaping::default(),
            OwnShaping { to_switch: OwnShape::Off, to_guest: OwnShape::Limited(shape) },
            OwnShaping { to_switch: OwnShape::Limited(Shape::steady(BitRate(999))), ..OwnShaping::default() },
        ] {
            let other = OwnShaping { to_switch: OwnShape::Limited(odd), to_guest: OwnShape::Limited(odd) };
            let patch = patch_of(2, &fields_of(&own), &other).unwrap();
            let nic = &patch.nics[&2];
            assert_eq!((nic.to_switch, nic.to_guest), (Some(own.to_switch), Some(own.to_guest)));
            let patch = patch_of(2, &fields_of(&other), &other).unwrap();
            assert_eq!((patch.nics[&2].to_switch, patch.nics[&2].to_guest), (None, None), "a rounded burst");
        }
        let shown = fields_of(&OwnShaping { to_guest: OwnShape::Limited(shape), ..OwnShaping::default() });
        assert_eq!(
            ["receive_average", "receive_average_unit", "receive_burst", "receive_burst_unit"]
                .map(|field| shown[field].as_str()),
            ["1500", "Kbps", "3", "MiB"]
        );
    }

    /// Returns a form as the browser sends it after it was loaded with this shaping.
    fn loaded(shaping: &OwnShaping) -> Fields {
        let mut fields = fields_of(shaping);
        for (prefix, _) in DIRECTIONS {
            fields.insert(format!("{prefix}_was"), line(&fields, prefix));
        }
        fields
    }

    #[test]
    fn a_form_changes_only_what_its_user_has_changed() {
        let limited = |rate| OwnShape::Limited(Shape::steady(BitRate(rate)));
        let before = OwnShaping { to_guest: limited(5_000_000), to_switch: OwnShape::Off };
        // Somebody else has changed the direction of reception meanwhile.
        let now = OwnShaping { to_guest: limited(7_000_000), ..before };
        let mut form = loaded(&before);
        form.insert("transmit_mode".to_owned(), "default".to_owned());
        let patch = patch_of(0, &form, &now).unwrap();
        assert_eq!((patch.nics[&0].to_guest, patch.nics[&0].to_switch), (None, Some(OwnShape::Default)));
        assert_eq!(again(&form, &now)["receive_average"], "7", "the form is shown again with it");
        assert_eq!(again(&form, &now)["transmit_mode"], "default");
        // Both have changed it.
        form.insert("receive_average".to_owned(), "9".to_owned());
        let error = patch_of(0, &form, &now).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Changed);
        assert!(error.message.starts_with("Receive: somebody has changed"), "{error}");
        // Both have changed it to the same, or the form was sent twice.
        form.insert("receive_average".to_owned(), "7".to_owned());
        assert_eq!(patch_of(0, &form, &now).unwrap().nics[&0].to_guest, None);
    }

    #[test]
    fn a_port_group_has_limits_or_none() {
        let shape = Shape::steady(BitRate(5_000_000));
        let now = Shaping { to_guest: Some(shape), to_switch: None };
        let mut form = loaded(&of_group(&now));
        assert_eq!(shaping_of(&form, &now), Ok(None), "nothing was changed");
        form.insert("receive_mode".to_owned(), "off".to_owned());
        assert_eq!(shaping_of(&form, &now), Ok(Some(Shaping::default())));
        form.insert("receive_mode".to_owned(), "default".to_owned());
        assert!(shaping_of(&form, &now).unwrap_err().message.contains("not a choice"));
        let html = shaping(Subject::PortGroup, "/", &of_group(&now), None, None).into_string();
        assert!(
            !html.contains("As the port group") && html.contains("value=\"limited|5|Mbps||Mbps|100|MiB\"")
        );
    }

    #[test]
    fn the_least_that_a_limit_needs_is_its_average() {
        let limited = fields(&[("transmit_mode", "limited"), ("transmit_average", " 64 ")]);
        let shape = patch_of(0, &limited, &OwnShaping::default()).unwrap().nics[&0].to_switch;
        assert_eq!(shape, Some(OwnShape::Limited(Shape::steady(BitRate(64_000_000)))));
    }

    #[test]
    fn fields_that_cannot_be_read_are_named() {
        let error = |pairs: &[(&str, &str)]| {
            patch_of(0, &fields(pairs), &OwnShaping::default()).unwrap_err().to_string()
        };
        let limited = ("receive_mode", "limited");
        for (pairs, message) in [
            (&[limited][..], "Receive: a limit needs an average rate"),
            (
                &[limited, ("receive_average", "1.5")],
                "Receive: average `1.5 Mbps` cannot be read\nhint: write a whole",
            ),
            (&[limited, ("receive_average", "-1")], "`-1 Mbps`"),
            (&[limited, ("receive_average", "99999999999999999")], "cannot be read"),
            (&[limited, ("receive_average", "1"), ("receive_average_unit", "<b>")], "`1 <b>`"),
            (&[limited, ("receive_average", "1"), ("receive_burst", "x")], "burst `x MiB`"),
            (&[("transmit_mode", "fast")], "Transmit: `fast` is not a choice"),
        ] {
            assert!(error(pairs).contains(message), "{}", error(pairs));
        }
        assert!(
            patch_of(0, &Fields::new(), &OwnShaping::default()).is_err(),
            "a form without fields changes nothing"
        );
    }
}
