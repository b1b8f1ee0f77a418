//! The MTU of a vSwitch against the interfaces that have to send its packets (VN-17).

use taut_api::network::VSwitchSpec;
use taut_api::uplink::UplinkBackend;
use taut_api::{ApiError, Mtu, Name};

use super::refusal::conflict;
use crate::facts::Desired;

/// MTUs that an interface has and can have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MtuRange {
    /// MTU that it has.
    pub now: u32,
    /// Largest MTU that its driver sets; `None` if it states none.
    pub most: Option<u32>,
    /// Largest MTU with which the backend of its uplink works; `None` if any does.
    pub limit: Option<u32>,
}

impl MtuRange {
    /// Returns the largest MTU that the interface has or can have; of one without a limit, the one
    /// that it has.
    fn most(self) -> u32 {
        let own = self.most.unwrap_or(self.now).max(self.now);
        self.limit.map_or(own, |limit| limit.min(own))
    }

    /// Returns the same for an uplink with this backend.
    pub(super) fn with(self, backend: UplinkBackend) -> Self {
        Self { limit: backend.most_mtu(), ..self }
    }

    /// Returns whether the interface has at least this MTU, or can have it.
    fn reaches(self, mtu: Mtu) -> bool {
        let has = self.now >= mtu.into() || self.most.is_none_or(|most| most >= mtu.into());
        has && self.limit.is_none_or(|limit| limit >= mtu.into())
    }
}

/// Finds the MTUs of an interface of the host; `None` if there is none.
pub type FindRange<'a> = &'a dyn Fn(&Name) -> Option<MtuRange>;

/// Checks that an interface can have the MTU of its vSwitch.
pub fn check_mtu(name: &Name, range: MtuRange, vswitch: &Name, mtu: Mtu) -> Result<(), ApiError> {
    if range.reaches(mtu) {
        return Ok(());
    }
    let most = range.most();
    let lower = Mtu::try_from(most)
        .map(|most| format!("lower that of the vSwitch (taut vswitch set {vswitch} --mtu {most}), or "));
    Err(conflict(
        format!(
            "the MTU of `{name}` is {} and can be at most {most}, but vSwitch `{vswitch}` has an MTU of {mtu}",
            range.now
        ),
        format!("{}use another interface", lower.unwrap_or_default()),
    ))
}

/// Admits the MTU of a vSwitch: its uplinks, and the interfaces on its port groups, have to send
/// such packets. Other changes of a vSwitch are admitted whatever its interfaces can have by now.
///
/// # Errors
/// When an interface cannot have this MTU. The error names each such interface with its numbers.
pub fn admit_mtu(
    desired: &Desired,
    name: &Name,
    spec: &VSwitchSpec,
    find: FindRange<'_>,
) -> Result<(), ApiError> {
    if desired.vswitches.get(name).is_some_and(|now| now.mtu == spec.mtu) {
        return Ok(());
    }
    let uplinks = desired
        .uplinks
        .iter()
        .filter(|(_, uplink)| uplink.vswitch == *name)
        .filter_map(|(name, uplink)| Some((name, find(name)?.with(uplink.backend))));
    let is_on = |group: &Name| desired.portgroups.get(group).is_some_and(|group| group.vswitch == *name);
    let netdevs = desired
        .netdevs
        .iter()
        .filter(|(_, netdev)| is_on(&netdev.portgroup))
        .filter_map(|(name, _)| Some((name, find(name)?)));
    reach(&format!("vSwitch `{name}` cannot have an MTU of {}", spec.mtu), spec.mtu, uplinks.chain(netdevs))
}

/// Admits that a port group moves to this vSwitch: the interfaces on it have to send packets of its
/// MTU.
///
/// # Errors
/// When an interface cannot have this MTU.
pub fn admit_group_mtu(
    desired: &Desired,
    group: &Name,
    vswitch: &Name,
    find: FindRange<'_>,
) -> Result<(), ApiError> {
    if desired.portgroups.get(group).is_some_and(|now| now.vswitch == *vswitch) {
        return Ok(());
    }
    let Some(mtu) = desired.vswitches.get(vswitch).map(|vswitch| vswitch.mtu) else { return Ok(()) };
    let netdevs = desired
        .netdevs
        .iter()
        .filter(|(_, netdev)| netdev.portgroup == *group)
        .filter_map(|(name, _)| Some((name, find(name)?)));
    reach(&format!("port group `{group}` cannot be on vSwitch `{vswitch}`, whose MTU is {mtu}"), mtu, netdevs)
}

/// Checks that each interface can have an MTU. `what` begins the error. An interface that is gone
/// hinders nobody.
fn reach<'a>(
    what: &str,
    mtu: Mtu,
    interfaces: impl Iterator<Item = (&'a Name, MtuRange)>,
) -> Result<(), ApiError> {
    let short: Vec<_> = interfaces.filter(|(_, range)| !range.reaches(mtu)).collect();
    let Some(least) = short.iter().map(|(_, range)| range.most()).min() else { return Ok(()) };
    let each: Vec<_> = short
        .iter()
        .map(|(name, range)| format!("`{name}` has {} and can have at most {}", range.now, range.most()))
        .collect();
    Err(conflict(
        format!("{what}: {}", each.join(", ")),
        format!(
            "choose at most {least}, or give the interfaces back first: taut uplink remove, taut netdev detach"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn mtu(bytes: u32) -> Mtu {
        bytes.try_into().unwrap()
    }

    /// Interfaces with these MTUs, the first three of which are at a vSwitch.
    fn host(name: &Name) -> Option<MtuRange> {
        let (now, most) = match name.as_str() {
            "eth1" => (1500, Some(3498)),
            "eth2" => (1500, Some(9216)),
            "vnet0" => (1500, Some(4000)),
            "eth4" => (1500, None),
            "eth5" => (9000, Some(1500)),
            _ => return None,
        };
        Some(MtuRange { now, most, limit: None })
    }

    #[test]
    fn an_interface_has_the_mtu_or_can_have_it() {
        let checked = |interface: &str, bytes| {
            check_mtu(&name(interface), host(&name(interface)).unwrap(), &name("prod"), mtu(bytes))
                .map_err(|error| format!("{} ({})", error.message, error.hint))
        };
        for (interface, bytes) in [("eth1", 3498), ("eth2", 9000), ("eth4", 9190), ("eth5", 9000)] {
            assert_eq!(checked(interface, bytes), Ok(()), "{interface}");
        }
        assert_eq!(
            checked("eth1", 9000).unwrap_err(),
            "the MTU of `eth1` is 1500 and can be at most 3498, but vSwitch `prod` has an MTU of 9000 (lower that \
             of the vSwitch (taut vswitch set prod --mtu 3498), or use another interface)"
        );
        let error = checked("eth5", 9190).unwrap_err();
        assert!(error.contains("is 9000 and can be at most 9000"), "{error}");
        let tiny = MtuRange { now: 576, most: Some(1000), limit: None };
        let error = check_mtu(&name("sl0"), tiny, &name("prod"), mtu(1500)).unwrap_err();
        assert_eq!(error.hint, "use another interface");
    }

    #[test]
    fn a_vswitch_has_no_larger_mtu_than_its_interfaces_can_have() {
        let mut desired = Desired::default();
        desired.vswitches.insert(name("prod"), VSwitchSpec::default());
        for uplink in ["eth1", "eth2", "gone"] {
            let spec = serde_json::json!({ "vswitch": "prod" });
            desired.uplinks.insert(name(uplink), serde_json::from_value(spec).unwrap());
        }
        let group = serde_json::from_value(serde_json::json!({ "vswitch": "prod" })).unwrap();
        desired.portgroups.insert(name("web"), group);
        let netdev = serde_json::json!({ "portgroup": "web", "mac": "52:54:00:00:00:01" });
        desired.netdevs.insert(name("vnet0"), serde_json::from_value(netdev).unwrap());
        let admitted = |vswitch: &str, bytes| {
            let spec = VSwitchSpec { mtu: mtu(bytes), ..VSwitchSpec::default() };
            admit_mtu(&desired, &name(vswitch), &spec, &host)
                .map_err(|error| format!("{} ({})", error.message, error.hint))
        };
        assert_eq!(admitted("prod", 3498), Ok(()));
        assert_eq!(admitted("other", 9000), Ok(()));
        assert_eq!(
            admitted("prod", 9000).unwrap_err(),
            "vSwitch `prod` cannot have an MTU of 9000: `eth1` has 1500 and can have at most 3498, `vnet0` has 1500 \
             and can have at most 4000 (choose at most 3498, or give the interfaces back first: taut uplink remove, \
             taut netdev detach)"
        );
        desired.uplinks.get_mut(&name("eth2")).unwrap().backend = UplinkBackend::Xdp;
        let spec = VSwitchSpec { mtu: mtu(9000), ..VSwitchSpec::default() };
        let error = admit_mtu(&desired, &name("prod"), &spec, &host).unwrap_err();
        assert!(error.message.contains("`eth2` has 1500 and can have at most 3822"), "{error}");
        desired.vswitches.insert(name("jumbo"), VSwitchSpec { mtu: mtu(9000), ..VSwitchSpec::default() });
        let moved = |vswitch: &str| admit_group_mtu(&desired, &name("web"), &name(vswitch), &host);
        assert_eq!(moved("prod"), Ok(()));
        let error = moved("jumbo").unwrap_err().message;
        assert_eq!(
            error,
            "port group `web` cannot be on vSwitch `jumbo`, whose MTU is 9000: `vnet0` has 1500 and can have at most 4000"
        );
    }
}
