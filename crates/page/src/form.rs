//! The form of traffic shaping: fields, their change of a VM, and their display.
//!
//! Directions are the guest's, as in statistics: it *receives* what is `to_guest`, and *transmits*
//! what is `to_switch`.

use std::collections::BTreeMap;

use maud::{Markup, html};
use taut_api::ApiError;
use taut_api::Bytes;
use taut_api::error::ErrorKind;
use taut_api::patch::{NicPatch, VmPatch};
use taut_api::shaping::{OwnShape, OwnShaping, Shape};
use taut_api::units::BitRate;

/// Units of rates, as in vSphere's form, with their factors.
static RATES: [(&str, u64); 4] = [("bps", 1), ("Kbps", 1000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)];
/// Units of the burst, with their factors.
static SIZES: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
/// Choices of a direction: the value in the form, and its text.
const MODES: [(&str, &str); 3] =
    [("default", "As the port group"), ("off", "Not limited"), ("limited", "Limited to:")];
/// The directions: prefix of their fields, and their name.
const DIRECTIONS: [(&str, &str); 2] = [("receive", "Receive"), ("transmit", "Transmit")];

/// Fields of the form, by name, as a browser sends them.
pub type Fields = BTreeMap<String, String>;

/// Returns the fields that show a card's shaping.
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

/// Returns the change of a VM that a form asks for. A direction whose fields are as `now`, the
/// shaping in force, would show them stays as it is: a field may show a rounded amount.
///
/// # Errors
/// If a field is missing or cannot be read. The daemon checks the rest.
pub fn patch_of(nic: usize, fields: &Fields, now: &OwnShaping) -> Result<VmPatch, ApiError> {
    let shown = fields_of(now);
    let change = |prefix: &str, direction: &str| {
        let mut of_direction = shown.iter().filter(|(field, _)| field.starts_with(prefix));
        let is_as_shown = of_direction.all(|(field, value)| fields.get(field) == Some(value));
        if is_as_shown { Ok(None) } else { own_shape(fields, prefix, direction).map(Some) }
    };
    let nic_patch = NicPatch {
        to_guest: change("receive", "Receive")?,
        to_switch: change("transmit", "Transmit")?,
        ..NicPatch::default()
    };
    Ok(VmPatch { nics: [(nic, nic_patch)].into(), ..VmPatch::default() })
}

fn own_shape(fields: &Fields, prefix: &str, direction: &str) -> Result<OwnShape, ApiError> {
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
        "default" => Ok(OwnShape::Default),
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

/// Shows the form. Without the right to change anything, its fields are disabled and `why` says so.
pub(crate) fn shaping(address: &str, fields: &Fields, disabled: Option<&str>) -> Markup {
    html! {
        form.shaping method="post" action=(address) {
            @if let Some(why) = disabled { p.quiet #shaping-closed { (why) } }
            @for (prefix, name) in DIRECTIONS {
                fieldset disabled[disabled.is_some()] aria-describedby=[disabled.map(|_| "shaping-closed")] {
                    legend { (name) }
                    (direction(prefix, name, fields))
                }
            }
            p.buttons {
                button type="submit" disabled[disabled.is_some()] { "Apply shaping" }
            }
        }
    }
}

fn direction(prefix: &str, direction: &str, fields: &Fields) -> Markup {
    let value = |field: &str| fields.get(&format!("{prefix}_{field}")).map_or("", String::as_str);
    let amounts = [
        ("average", "Average", &RATES[..], "needed for a limit"),
        ("peak", "Peak", &RATES[..], "the average, if empty"),
        ("burst", "Burst", &SIZES[..], "100 MiB, if empty"),
    ];
    html! {
        div.choices {
            @for (mode, text) in MODES {
                label {
                    input type="radio" name=(format!("{prefix}_mode")) value=(mode) required
                        checked[value("mode") == mode];
                    " " (text)
                }
            }
        }
        @for (field, name, units, hint) in amounts {
            @let id = format!("{prefix}_{field}");
            div.field {
                label for=(id) { (name) }
                input #(id) type="text" inputmode="numeric" pattern="[0-9]*" maxlength="20" size="8"
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
