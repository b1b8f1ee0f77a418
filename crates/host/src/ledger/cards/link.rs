//! The link of a card: what it is to be, and whether it is so.

use std::collections::BTreeSet;

use taut_api::pnic::{LinkMode, PnicSettings};
use taut_api::word::on_off;

use crate::kernel::netlink::ethtool::link::{LinkSettings, mode};

/// Returns the link that a card is to have. With autonegotiation these are the modes that it offers
/// to its peer: all that it offered before, or those that have the wanted speed and duplex mode.
pub(super) fn link_target(before: &LinkSettings, wanted: &PnicSettings) -> LinkSettings {
    let autoneg = wanted.autoneg.unwrap_or(before.autoneg);
    if !autoneg || before.modes.is_empty() {
        // The modes that the card would offer if it negotiated are given back with the speed.
        let is_given_back = !wanted.has_link();
        let modes = before.modes.iter().filter(|(name, _)| is_given_back && mode(name).is_some());
        return LinkSettings {
            autoneg,
            speed_mbit: wanted.speed_mbit.or(before.speed_mbit),
            duplex: wanted.duplex.or(before.duplex),
            modes: modes.map(|(name, is_offered)| (name.clone(), *is_offered)).collect(),
        };
    }
    let fits = |found: LinkMode| {
        wanted.speed_mbit.is_none_or(|speed| speed == found.speed_mbit)
            && wanted.duplex.is_none_or(|duplex| duplex == found.duplex)
    };
    // A card without negotiation offers nothing that it could go back to.
    let chooses = wanted.speed_mbit.is_some() || wanted.duplex.is_some() || !before.autoneg;
    let offer = |(name, is_offered): (&String, &bool)| match mode(name) {
        Some(found) => Some((name.clone(), if chooses { fits(found) } else { *is_offered })),
        None => (name == "Autoneg").then(|| (name.clone(), true)),
    };
    LinkSettings {
        autoneg,
        speed_mbit: None,
        duplex: None,
        modes: before.modes.iter().filter_map(offer).collect(),
    }
}

/// Returns whether a card has the link that it is to have, as far as that can be told. A forced
/// speed is judged only while there is a carrier: many cards state none without one, or another.
pub(super) fn has_link(now: &LinkSettings, target: &LinkSettings, has_carrier: bool) -> bool {
    fn fits<T: PartialEq + Copy>(now: Option<T>, target: Option<T>) -> bool {
        now.is_none_or(|now| target.is_none_or(|target| now == target))
    }
    let has_speed = fits(now.speed_mbit, target.speed_mbit) && fits(now.duplex, target.duplex);
    is_negotiated(now, target) && (!has_carrier || has_speed)
}

/// Returns whether a card states exactly the link that it is to have.
pub(super) fn is_link(now: &LinkSettings, target: &LinkSettings) -> bool {
    let has_speed = target.speed_mbit.is_none() || now.speed_mbit == target.speed_mbit;
    let has_duplex = target.duplex.is_none() || now.duplex == target.duplex;
    is_negotiated(now, target) && has_speed && has_duplex
}

/// Returns whether a card negotiates if it is to do so, and offers what it is to offer.
fn is_negotiated(now: &LinkSettings, target: &LinkSettings) -> bool {
    // Drivers do not tell what a card would offer if it negotiated.
    let speeds = target.modes.iter().filter(|(name, _)| target.autoneg && mode(name).is_some());
    let is_offered = |name| now.modes.get(name).copied().unwrap_or(false);
    now.autoneg == target.autoneg && speeds.into_iter().all(|(name, offer)| is_offered(name) == *offer)
}

/// Leaves out what the card has negotiated, which changes by itself.
pub(super) fn without_negotiated(link: LinkSettings) -> LinkSettings {
    if link.autoneg && !link.modes.is_empty() {
        LinkSettings { speed_mbit: None, duplex: None, ..link }
    } else {
        link
    }
}

pub(super) fn link_text(link: &LinkSettings) -> String {
    let mut parts = vec![format!("autoneg {}", on_off(link.autoneg))];
    let offered = link.modes.iter().filter(|(_, offer)| **offer).filter_map(|(name, _)| mode(name));
    let offered: BTreeSet<LinkMode> = offered.filter(|_| link.autoneg).collect();
    if offered.is_empty() {
        parts.extend(link.speed_mbit.map(|speed| format!("speed {speed}")));
        parts.extend(link.duplex.map(|duplex| format!("duplex {duplex}")));
    } else {
        let modes = offered.iter().map(|mode| format!("{} {}", mode.speed_mbit, mode.duplex));
        parts.push(format!("offering {}", modes.collect::<Vec<_>>().join("/")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use taut_api::pnic::Duplex;

    use super::*;

    fn wanted(json: &str) -> PnicSettings {
        serde_json::from_str(json).unwrap()
    }

    fn offered(link: &LinkSettings) -> Vec<&str> {
        link.modes.iter().filter(|(_, offer)| **offer).map(|(name, _)| name.as_str()).collect()
    }

    /// A card with two speeds that offers these modes, or negotiates nothing.
    fn card(offered: &[&str]) -> LinkSettings {
        let modes = ["100baseT/Full", "1000baseT/Full", "Autoneg", "Pause"];
        LinkSettings {
            autoneg: offered.contains(&"Autoneg"),
            speed_mbit: Some(1000),
            duplex: Some(Duplex::Full),
            modes: modes.map(|name| (name.to_owned(), offered.contains(&name))).into(),
        }
    }

    #[test]
    fn a_card_offers_what_it_did_what_is_wanted_or_everything() {
        let some = card(&["1000baseT/Full", "Autoneg", "Pause"]);
        let as_before = link_target(&some, &PnicSettings::default());
        assert_eq!(offered(&as_before), ["1000baseT/Full", "Autoneg"], "pauses are no part of it");
        assert!(as_before.autoneg && !as_before.modes.contains_key("Pause"));
        let one = link_target(&some, &wanted(r#"{ "speed_mbit": 100 }"#));
        assert_eq!(offered(&one), ["100baseT/Full", "Autoneg"]);
        let forced = link_target(&some, &wanted(r#"{ "autoneg": false, "speed_mbit": 100 }"#));
        assert_eq!(
            (forced.speed_mbit, forced.duplex, forced.modes.len()),
            (Some(100), Some(Duplex::Full), 0)
        );
        // Without negotiation a card has offered nothing before.
        let all = link_target(&card(&[]), &wanted(r#"{ "autoneg": true }"#));
        assert_eq!(offered(&all), ["1000baseT/Full", "100baseT/Full", "Autoneg"]);
        assert_eq!((all.speed_mbit, all.duplex), (None, None));
        // The modes that it would offer are given back with its forced speed.
        let unused = LinkSettings { autoneg: false, ..card(&["100baseT/Full", "Pause"]) };
        let given_back = link_target(&unused, &PnicSettings::default());
        assert_eq!((offered(&given_back), given_back.modes.len()), (vec!["100baseT/Full"], 2));
        assert_eq!((given_back.autoneg, given_back.speed_mbit), (false, Some(1000)));
        assert!(is_link(&card(&[]), &given_back), "it is not told while the card does not negotiate");
    }

    #[test]
    fn an_unknown_speed_and_what_others_determine_are_no_difference() {
        let before = card(&["1000baseT/Full", "Autoneg"]);
        let target = link_target(&before, &PnicSettings::default());
        assert!(has_link(&before, &target, true) && is_link(&before, &target));
        assert!(has_link(&card(&["1000baseT/Full", "Autoneg", "Pause"]), &target, true));
        assert!(!has_link(&card(&["100baseT/Full", "Autoneg"]), &target, false));
        assert!(!has_link(&card(&[]), &target, false), "it does not negotiate");
        let forced = link_target(&before, &wanted(r#"{ "autoneg": false }"#));
        let unplugged = LinkSettings { speed_mbit: None, duplex: None, ..card(&[]) };
        assert!(has_link(&unplugged, &forced, true) && !is_link(&unplugged, &forced));
        let slow = LinkSettings { speed_mbit: Some(100), ..card(&[]) };
        assert!(!has_link(&slow, &forced, true));
        assert!(has_link(&slow, &forced, false), "without a carrier it is not judged");
    }
}
