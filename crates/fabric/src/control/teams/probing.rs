//! Uplinks of a team that have a path, by beacons or a gateway.

use std::collections::BTreeSet;

use taut_api::PathProbe;
use taut_uplink::team::{Probes, Proof, Sender, Set, Uplink, beacon, question};

/// Probes of a team, and paths as far as they are proved.
#[derive(Debug, Clone)]
pub(super) struct Probing {
    probe: PathProbe,
    probes: Probes,
    /// VLANs of the team's ports, for beacons.
    vlans: BTreeSet<u16>,
}

impl Probing {
    /// Begins to listen on these uplinks. What `others` have heard of the same counts on.
    pub(super) fn new(probe: PathProbe, uplinks: Set, others: &[&Self], now: u64) -> Self {
        let mut probes = Probes::default();
        for uplink in uplinks.iter() {
            others.iter().filter(|other| other.probe == probe).for_each(|other| {
                probes.add_as_in(&other.probes, uplink);
            });
            probes.add(uplink, now);
        }
        Self { probe, probes, vlans: BTreeSet::new() }
    }

    /// Sends beacons in these VLANs from now on.
    pub(super) fn send_in(&mut self, vlans: BTreeSet<u16>) {
        self.vlans = vlans;
    }

    /// Notes that an uplink has proved its path, if that is what the team probes.
    pub(super) fn hear(&mut self, uplink: Uplink, proof: Proof, now: u64) {
        let is_ours = match (self.probe, proof) {
            (PathProbe::Beacon, Proof::Beacon) => true,
            (PathProbe::Gateway { ip, vlan: asked }, Proof::Answer { vlan, gateway }) => {
                (ip, asked) == (gateway, vlan)
            }
            _ => false,
        };
        if is_ours {
            self.probes.heard(uplink, now);
        }
    }

    /// Returns those of the uplinks `up` that have a path.
    pub(super) fn with_path(&mut self, up: Set, now: u64) -> Set {
        if self.probe == PathProbe::Off { up } else { self.probes.with_path(up, now) }
    }

    /// Returns uplinks that have a link, but no path.
    pub(super) fn without_path(&self) -> Set {
        if self.probe == PathProbe::Off { Set::default() } else { self.probes.lost() }
    }

    /// Returns the VLANs in which uplinks send a probe.
    pub(super) fn vlans(&self) -> Vec<u16> {
        match self.probe {
            PathProbe::Off => Vec::new(),
            PathProbe::Beacon => self.vlans.iter().copied().collect(),
            PathProbe::Gateway { vlan, .. } => vec![vlan],
        }
    }

    /// Returns the probe of an uplink whose card has this address.
    pub(super) fn frame(&self, mac: [u8; 6], own: Sender) -> Option<Vec<u8>> {
        match self.probe {
            PathProbe::Off => None,
            PathProbe::Beacon => Some(beacon(mac, own)),
            PathProbe::Gateway { ip, .. } => Some(question(mac, ip)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn both() -> Set {
        [0, 1].into_iter().filter_map(Uplink::new).collect()
    }

    /// Lets a team probe for a while, in which the first uplink proves what is asked for, and the
    /// second one something else.
    fn after(probe: &str, good: Proof, other: Proof) -> Probing {
        let [first, second] = [0, 1].map(|number| Uplink::new(number).unwrap());
        let mut probing = Probing::new(probe.parse().unwrap(), both(), &[], 0);
        for at in 1..10 {
            probing.hear(first, good, at * SECOND);
            probing.hear(second, other, at * SECOND);
            probing.with_path(both(), at * SECOND);
        }
        probing
    }

    fn answer(vlan: u16, gateway: &str) -> Proof {
        Proof::Answer { vlan, gateway: gateway.parse().unwrap() }
    }

    #[test]
    fn each_team_takes_its_own_proofs() {
        let lost =
            |probe: &str, good: Proof, other: Proof| !after(probe, good, other).without_path().is_empty();
        let gateway = answer(20, "10.0.0.1");
        assert!(!lost("beacon", Proof::Beacon, Proof::Beacon));
        assert!(lost("beacon", Proof::Beacon, gateway));
        assert!(!lost("10.0.0.1@20", gateway, gateway));
        assert!(lost("10.0.0.1@20", gateway, answer(0, "10.0.0.1")));
        assert!(lost("10.0.0.1@20", gateway, answer(20, "10.0.0.2")));
        assert!(lost("10.0.0.1@20", gateway, Proof::Beacon));
        assert!(!lost("fe80::1", answer(0, "fe80::1"), answer(0, "fe80::1")));
        assert!(lost("fe80::1", answer(0, "fe80::1"), answer(0, "fe80::2")));
        assert!(!lost("off", gateway, Proof::Beacon));
    }

    #[test]
    fn a_new_team_knows_what_another_one_has_heard_of_the_same() {
        let gateway = answer(0, "10.0.0.1");
        let before = after("10.0.0.1", gateway, Proof::Beacon);
        let new = |probe: &str| Probing::new(probe.parse().unwrap(), both(), &[&before], 9 * SECOND);
        assert_eq!(new("10.0.0.1").without_path(), before.without_path());
        assert!(new("10.0.0.2").without_path().is_empty() && new("beacon").without_path().is_empty());
    }
}
