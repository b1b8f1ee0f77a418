//! Teams of uplinks (VN-3): which uplinks of its vSwitch each port uses.

use std::collections::BTreeMap;

use taut_api::Name;
use taut_api::fabric::config::{PortId, TeamConfig};
use taut_api::teaming::Teaming;

use crate::facts::{Desired, Owner};

/// Teams of all vSwitches that have uplinks.
#[derive(Debug, Default)]
pub struct Teams<'d> {
    configs: Vec<TeamConfig>,
    /// Place of the team of each port group.
    places: BTreeMap<&'d Name, u16>,
}

impl<'d> Teams<'d> {
    /// Forms a team for each vSwitch with uplinks, and one for each port group with a teaming of
    /// its own.
    pub fn form(desired: &'d Desired) -> Self {
        let mut teams = Self::default();
        for (vswitch, spec) in &desired.vswitches {
            let uplinks = uplinks(desired, vswitch);
            if uplinks.is_empty() {
                continue;
            }
            let common = teams.add(desired, vswitch, &spec.teaming, &uplinks);
            for (name, group) in desired.portgroups.iter().filter(|(_, group)| group.vswitch == *vswitch) {
                let place = match &group.teaming {
                    Some(teaming) => teams.add(desired, vswitch, teaming, &uplinks),
                    None => common,
                };
                teams.places.extend(place.map(|place| (name, place)));
            }
        }
        teams
    }

    /// Returns the place of a port group's team; `None` if its vSwitch has no uplink.
    pub fn of(&self, portgroup: &Name) -> Option<u16> {
        self.places.get(portgroup).copied()
    }

    /// Returns the teams in their order.
    pub fn into_configs(self) -> Vec<TeamConfig> {
        self.configs
    }

    fn add(
        &mut self,
        desired: &Desired,
        vswitch: &Name,
        teaming: &Teaming,
        uplinks: &BTreeMap<&Name, PortId>,
    ) -> Option<u16> {
        let place = u16::try_from(self.configs.len()).ok()?;
        let of = |names: &[Name]| names.iter().filter_map(|name| uplinks.get(name).copied()).collect();
        let others =
            || uplinks.iter().filter(|(name, _)| !teaming.standby.contains(name)).map(|(_, port)| *port);
        self.configs.push(TeamConfig {
            segment: desired.numbers.segment(vswitch)?,
            policy: teaming.policy,
            active: teaming.active.as_deref().map_or_else(|| others().collect(), of),
            standby: of(&teaming.standby),
            failback: teaming.failback,
            notify_switches: teaming.notify_switches,
            probe: teaming.probe,
        });
        Some(place)
    }
}

/// Returns the uplinks of a vSwitch in the order of their names, with their ports.
fn uplinks<'d>(desired: &'d Desired, vswitch: &Name) -> BTreeMap<&'d Name, PortId> {
    let own = desired.uplinks.iter().filter(|(_, uplink)| uplink.vswitch == *vswitch);
    own.filter_map(|(name, _)| Some((name, desired.numbers.port(&Owner::Uplink(name.clone()))?))).collect()
}

#[cfg(test)]
mod tests {
    use taut_api::network::{PortGroupSpec, VSwitchSpec};
    use taut_api::teaming::TeamPolicy;
    use taut_api::uplink::UplinkSpec;

    use super::*;
    use crate::network::numbering::assign_numbers;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn names(all: &[&str]) -> Vec<Name> {
        all.iter().map(|text| name(text)).collect()
    }

    fn group(vswitch: &str, teaming: Option<Teaming>) -> PortGroupSpec {
        let spec: PortGroupSpec = serde_json::from_value(serde_json::json!({ "vswitch": vswitch })).unwrap();
        PortGroupSpec { teaming, ..spec }
    }

    #[test]
    fn a_port_group_has_the_team_of_its_vswitch_or_one_of_its_own() {
        let mut desired = Desired::default();
        let teaming = Teaming { standby: names(&["eth2"]), ..Teaming::default() };
        desired.vswitches.insert(name("prod"), VSwitchSpec { teaming, ..VSwitchSpec::default() });
        desired.vswitches.insert(name("island"), VSwitchSpec::default());
        let own = Teaming {
            policy: TeamPolicy::Explicit,
            active: Some(names(&["eth2", "eth0"])),
            failback: false,
            ..Teaming::default()
        };
        desired.portgroups.insert(name("web"), group("prod", None));
        desired.portgroups.insert(name("db"), group("prod", Some(own)));
        desired.portgroups.insert(name("lab"), group("island", None));
        for uplink in ["eth0", "eth1", "eth2"] {
            desired.uplinks.insert(name(uplink), UplinkSpec::new(name("prod")));
        }
        desired.numbers = assign_numbers(&desired).unwrap();
        let teams = Teams::form(&desired);
        let [web, db, lab] = ["web", "db", "lab"].map(|group| teams.of(&name(group)));
        assert_eq!(lab, None);
        let configs = teams.into_configs();
        let port = |uplink: &str| desired.numbers.port(&Owner::Uplink(name(uplink))).unwrap();
        let ports = |all: &[&str]| all.iter().map(|uplink| port(uplink)).collect::<Vec<_>>();
        let web = &configs[usize::from(web.unwrap())];
        assert_eq!((&web.active, &web.standby), (&ports(&["eth0", "eth1"]), &ports(&["eth2"])));
        assert!(web.failback && web.policy == TeamPolicy::PortId);
        let db = &configs[usize::from(db.unwrap())];
        assert_eq!((&db.active, &db.standby), (&ports(&["eth2", "eth0"]), &Vec::new()));
        assert!(!db.failback && db.policy == TeamPolicy::Explicit);
        assert_eq!(configs.len(), 2);
    }
}
