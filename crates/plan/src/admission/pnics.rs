//! Settings of a network card against what the card has (VN-6).

use std::collections::BTreeSet;

use taut_api::pnic::{LinkMode, Offload, ParameterGroup, PnicFacts, PnicParameter, PnicSettings};
use taut_api::word::on_off;
use taut_api::{ApiError, Name};

use super::refusal::invalid;
use super::uplinks::{Candidate, check_existence};

/// Admits the settings of a network card. `before` are those that it has already, which are not
/// checked again. `found` is what the host has under its name, and `facts` what the card's driver
/// tells.
///
/// # Errors
/// When there is no such interface, the card does not have a setting, or a value exceeds what the
/// card can have.
pub fn admit_pnic(
    name: &Name,
    settings: &PnicSettings,
    before: Option<&PnicSettings>,
    found: Option<&Candidate>,
    facts: &PnicFacts,
) -> Result<(), ApiError> {
    check_existence(name, found)?;
    let nothing = PnicSettings::default();
    let before = before.unwrap_or(&nothing);
    let link = |settings: &PnicSettings| (settings.speed_mbit, settings.duplex, settings.autoneg);
    if link(settings) != link(before) {
        check_link(name, settings, facts)?;
    }
    for (parameter, value) in settings.parameters() {
        let is_new = |key: PnicParameter| settings.parameter(key) != before.parameter(key);
        if is_new(parameter) {
            check_parameter(name, parameter, value, facts)?;
        }
        if let Some(switch) = parameter.adapted_by().filter(|switch| is_new(parameter) || is_new(*switch)) {
            check_adaptation(name, parameter, switch, settings, facts)?;
        }
    }
    let mut new = settings.offloads.iter().filter(|(offload, on)| before.offloads.get(*offload) != Some(*on));
    new.try_for_each(|(offload, on)| check_offload(name, *offload, *on, facts))
}

fn check_link(name: &Name, settings: &PnicSettings, facts: &PnicFacts) -> Result<(), ApiError> {
    if settings.has_link() && facts.autoneg.is_none() {
        return Err(invalid(
            format!(
                "speed, duplex and autoneg of `{name}` cannot be set: {} does not have them",
                driver(facts)
            ),
            "leave them out, or take them back: `default`",
        ));
    }
    if settings.speed_mbit == Some(0) {
        return Err(invalid(
            format!("the speed of `{name}` cannot be 0 Mbit/s"),
            format!("to set the link down: ip link set {name} down; for the former speed: `default`"),
        ));
    }
    let fits = |mode: &LinkMode| {
        settings.speed_mbit.is_none_or(|speed| speed == mode.speed_mbit)
            && settings.duplex.is_none_or(|duplex| duplex == mode.duplex)
    };
    // A driver that lists no mode takes any.
    if facts.modes.is_empty() || facts.modes.iter().any(fits) {
        return Ok(());
    }
    let speed = settings.speed_mbit.map(|speed| format!("{speed} Mbit/s"));
    let duplex = settings.duplex.map(|duplex| format!("{duplex} duplex"));
    let wanted: Vec<_> = speed.into_iter().chain(duplex).collect();
    let modes: BTreeSet<&LinkMode> = facts.modes.iter().collect();
    let modes = modes.iter().map(|mode| format!("{} {}", mode.speed_mbit, mode.duplex));
    Err(invalid(
        format!("`{name}` does not support {}", wanted.join(" with ")),
        format!("its card has these speeds and duplex modes: {}", modes.collect::<Vec<_>>().join(", ")),
    ))
}

fn check_parameter(
    name: &Name,
    parameter: PnicParameter,
    value: u32,
    facts: &PnicFacts,
) -> Result<(), ApiError> {
    let Some(found) = facts.parameters.get(&parameter) else {
        let known: Vec<_> = facts.parameters.keys().map(|known| known.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(invalid(
            format!("`{name}` has no {parameter}: {} does not offer it", driver(facts)),
            format!("settings of this kind that it has: {known}"),
        ));
    };
    // Channels of one kind are none if those of another kind serve the card.
    let least = u32::from(parameter.group() == ParameterGroup::Rings);
    match found.max {
        Some(max) if value < least || value > max => Err(invalid(
            format!("{parameter} of `{name}` cannot be {value}: the card has {least} to {max}"),
            format!("it is {} now; `default` gives the former value back", found.value),
        )),
        _ => Ok(()),
    }
}

/// Refuses a value that the driver would replace by its own.
fn check_adaptation(
    name: &Name,
    parameter: PnicParameter,
    switch: PnicParameter,
    settings: &PnicSettings,
    facts: &PnicFacts,
) -> Result<(), ApiError> {
    let found = facts.parameters.get(&switch).map(|found| found.value);
    if settings.parameter(switch).or(found).is_none_or(|value| value == 0) {
        return Ok(());
    }
    Err(invalid(
        format!("{parameter} of `{name}` has no effect while {switch} is on: the driver chooses it then"),
        format!("turn that off as well: --{switch} off"),
    ))
}

fn check_offload(name: &Name, offload: Offload, on: bool, facts: &PnicFacts) -> Result<(), ApiError> {
    let hint = format!("`taut pnic show {name}` lists its offloads");
    match facts.offloads.get(&offload) {
        None => Err(invalid(format!("`{name}` has no offload {offload}: the kernel does not know it"), hint)),
        Some(found) if found.fixed && found.on != on => Err(invalid(
            format!(
                "the offload {offload} of `{name}` cannot be {}: {} keeps it {}",
                on_off(on),
                driver(facts),
                on_off(found.on)
            ),
            hint,
        )),
        Some(_) => Ok(()),
    }
}

/// Names the driver of a card in a sentence.
fn driver(facts: &PnicFacts) -> String {
    facts.driver.as_ref().map_or_else(|| "its driver".to_owned(), |driver| format!("its driver {driver}"))
}

#[cfg(test)]
mod tests {
    use taut_api::pnic::ParameterFacts;

    use super::*;

    fn igb() -> PnicFacts {
        serde_json::from_value(serde_json::json!({
            "driver": "igb", "mac": "02:00:00:00:00:01", "mtu": 1500, "link": "up", "autoneg": true,
            "modes": [
                { "speed_mbit": 100, "duplex": "half" },
                { "speed_mbit": 100, "duplex": "full" },
                { "speed_mbit": 1000, "duplex": "full" },
            ],
            "parameters": { "rx-ring": { "value": 256, "max": 4096 }, "rx-usecs": { "value": 3 } },
            "offloads": { "tso": { "on": true, "fixed": false }, "lro": { "on": false, "fixed": true } },
        }))
        .unwrap()
    }

    fn admitted(settings: serde_json::Value, facts: &PnicFacts) -> Result<(), String> {
        let settings = serde_json::from_value(settings).unwrap();
        let found = Candidate { is_ethernet: true, ..Candidate::default() };
        let admitted = admit_pnic(&"eth1".parse().unwrap(), &settings, None, Some(&found), facts);
        admitted.map_err(|error| format!("{} ({})", error.message, error.hint))
    }

    #[test]
    fn what_the_card_has_is_admitted() {
        for settings in [
            serde_json::json!({}),
            serde_json::json!({ "speed_mbit": 100, "duplex": "half", "autoneg": false }),
            serde_json::json!({ "speed_mbit": 1000 }),
            serde_json::json!({ "rings": { "rx": 4096 }, "coalescing": { "rx_us": 0 } }),
            serde_json::json!({ "offloads": { "tso": false, "lro": false } }),
        ] {
            assert_eq!(admitted(settings.clone(), &igb()), Ok(()), "{settings}");
        }
        // One kind of channels may be none.
        let four = serde_json::json!({ "value": 2, "max": 4 });
        let channels = serde_json::from_value(serde_json::json!({ "rx-channels": four })).unwrap();
        let many = PnicFacts { parameters: channels, ..igb() };
        assert_eq!(admitted(serde_json::json!({ "channels": { "rx": 0 } }), &many), Ok(()));
        // A TAP device lists no modes, and takes any speed.
        let tap = PnicFacts { modes: vec![], ..igb() };
        assert_eq!(admitted(serde_json::json!({ "speed_mbit": 7 }), &tap), Ok(()));
    }

    #[test]
    fn each_refusal_says_what_the_card_has() {
        for (settings, refusal) in [
            (
                serde_json::json!({ "speed_mbit": 2500 }),
                "`eth1` does not support 2500 Mbit/s (its card has these speeds and duplex modes: 100 half, 100 \
                 full, 1000 full)",
            ),
            (
                serde_json::json!({ "speed_mbit": 1000, "duplex": "half" }),
                "`eth1` does not support 1000 Mbit/s with half duplex (its card has",
            ),
            (serde_json::json!({ "speed_mbit": 0 }), "the speed of `eth1` cannot be 0 Mbit/s (to set"),
            (
                serde_json::json!({ "rings": { "rx": 8192 } }),
                "rx-ring of `eth1` cannot be 8192: the card has 1 to 4096 (it is 256 now",
            ),
            (serde_json::json!({ "rings": { "rx": 0 } }), "rx-ring of `eth1` cannot be 0: the card has 1 to"),
            (
                serde_json::json!({ "channels": { "combined": 2 } }),
                "`eth1` has no channels: its driver igb does not offer it (settings of this kind that it has: \
                 rx-ring, rx-usecs)",
            ),
            (
                serde_json::json!({ "offloads": { "lro": true } }),
                "the offload lro of `eth1` cannot be on: its driver igb keeps it off (`taut pnic show eth1`",
            ),
            (serde_json::json!({ "offloads": { "gro": true } }), "`eth1` has no offload gro: the kernel"),
        ] {
            let told = admitted(settings, &igb()).unwrap_err();
            assert!(told.starts_with(refusal), "{told}");
        }
        let bridge = PnicFacts { autoneg: None, driver: None, parameters: [].into(), ..igb() };
        let told = admitted(serde_json::json!({ "autoneg": true }), &bridge).unwrap_err();
        assert!(
            told.starts_with("speed, duplex and autoneg of `eth1` cannot be set: its driver does"),
            "{told}"
        );
        let told = admitted(serde_json::json!({ "rings": { "tx": 8 } }), &bridge).unwrap_err();
        assert!(told.ends_with("(settings of this kind that it has: none)"), "{told}");
    }

    #[test]
    fn a_value_that_the_driver_adapts_is_refused() {
        let mut adaptive = igb();
        adaptive.parameters.insert(PnicParameter::AdaptiveRx, ParameterFacts { value: 1, max: None });
        let told = admitted(serde_json::json!({ "coalescing": { "rx_us": 8 } }), &adaptive).unwrap_err();
        assert_eq!(
            told,
            "rx-usecs of `eth1` has no effect while adaptive-rx is on: the driver chooses it then (turn that off as \
             well: --adaptive-rx off)"
        );
        let both = serde_json::json!({ "coalescing": { "rx_us": 8, "adaptive_rx": false } });
        assert_eq!(admitted(both, &adaptive), Ok(()));
    }

    #[test]
    fn settings_that_the_card_has_already_are_not_checked_again() {
        let settings = |json: serde_json::Value| -> PnicSettings { serde_json::from_value(json).unwrap() };
        let found = Candidate { is_ethernet: true, ..Candidate::default() };
        let before = settings(serde_json::json!({ "speed_mbit": 2500, "rings": { "rx": 9000 } }));
        let name = "eth1".parse().unwrap();
        let mut after = before.clone();
        after.offloads.insert(Offload::Tso, false);
        assert_eq!(admit_pnic(&name, &after, Some(&before), Some(&found), &igb()), Ok(()));
        after.rings.rx = Some(9001);
        assert!(admit_pnic(&name, &after, Some(&before), Some(&found), &igb()).is_err());
    }

    #[test]
    fn an_interface_that_is_absent_or_no_card_has_no_settings() {
        let refusal = |found: Option<&Candidate>| {
            let name = "lo".parse().unwrap();
            admit_pnic(&name, &PnicSettings::default(), None, found, &PnicFacts::default())
                .unwrap_err()
                .message
        };
        assert_eq!(refusal(None), "this host has no network interface `lo`");
        assert_eq!(refusal(Some(&Candidate::default())), "`lo` is no Ethernet interface");
    }
}
