//! An uplink against the other documents, and its interface against the uses that the host has for
//! it (VN-3).

use std::collections::BTreeSet;

use taut_api::teaming::{TeamPolicy, Teaming};
use taut_api::uplink::{InterfaceUse, MOST_UPLINKS, UplinkBackend, UplinkSpec};
use taut_api::{ApiError, Name, PathProbe};

use super::documents::MAX_IFNAME;
use super::mtu::{MtuRange, check_mtu};
use super::refusal::{conflict, invalid};
use crate::facts::Desired;

/// Interface that is to be an uplink, as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the interface, if it was found by an alternative name.
    pub proper_name: Option<String>,
    /// True for an Ethernet interface.
    pub is_ethernet: bool,
    /// MTUs that it has and can have.
    pub mtu: MtuRange,
    /// Uses that the host has for it.
    pub uses: Vec<InterfaceUse>,
}

/// Admits an uplink. `found` is what the host has under its name.
///
/// # Errors
/// When the vSwitch does not exist or has too many uplinks, a teaming of the vSwitch before names
/// it, its backend is impossible or another one than before, [`check_interface`] fails, or the
/// interface cannot have the MTU of the vSwitch.
pub fn admit_uplink(
    desired: &Desired,
    name: &Name,
    spec: &UplinkSpec,
    found: Option<&Candidate>,
) -> Result<(), ApiError> {
    let Some(vswitch) = desired.vswitches.get(&spec.vswitch) else {
        return Err(invalid(
            format!("uplink `{name}` names the vSwitch `{}`, which does not exist", spec.vswitch),
            format!("create it: taut vswitch create {}", spec.vswitch),
        ));
    };
    let others = desired.uplinks.iter().filter(|(other, _)| *other != name);
    if others.filter(|(_, uplink)| uplink.vswitch == spec.vswitch).count() >= MOST_UPLINKS {
        return Err(conflict(
            format!(
                "vSwitch `{}` has {MOST_UPLINKS} uplinks already, the most that it can have",
                spec.vswitch
            ),
            "use a bond of the host as one uplink, or another vSwitch",
        ));
    }
    if desired.uplinks.get(name).is_some_and(|before| before.vswitch != spec.vswitch) {
        admit_uplink_removal(desired, name)?;
    }
    if spec.zero_copy && spec.backend != UplinkBackend::Xdp {
        return Err(invalid(
            format!("uplink `{name}` is to work without copies, which its backend `packet` cannot"),
            "choose the other one, too: --backend xdp --zero-copy",
        ));
    }
    let way = |spec: &UplinkSpec| (spec.backend, spec.zero_copy);
    if desired.uplinks.get(name).is_some_and(|before| way(before) != way(spec)) {
        return Err(conflict(
            format!("the backend of uplink `{name}` stays the same as long as the uplink exists"),
            format!("remove it and add it again: taut uplink remove {name}"),
        ));
    }
    if desired.netdevs.contains_key(name) {
        return Err(conflict(
            format!("`{name}` is on a port group already"),
            format!("give it back first: taut netdev detach {name}"),
        ));
    }
    check_interface(name, found)?;
    let range = found.map(|found| found.mtu.with(spec.backend));
    range.map_or(Ok(()), |range| check_mtu(name, range, &spec.vswitch, vswitch.mtu))
}

/// Admits that an uplink leaves its vSwitch.
///
/// # Errors
/// When a teaming names it.
pub fn admit_uplink_removal(desired: &Desired, name: &Name) -> Result<(), ApiError> {
    let names = |teaming: &Teaming| teaming.named().any(|named| named == name);
    let vswitch = desired.vswitches.iter().find(|(_, spec)| names(&spec.teaming));
    let group = desired.portgroups.iter().find(|(_, spec)| spec.teaming.as_ref().is_some_and(names));
    let (what, command) = match (vswitch, group) {
        (Some((vswitch, _)), _) => (format!("vSwitch `{vswitch}`"), format!("taut vswitch set {vswitch}")),
        (_, Some((group, _))) => (format!("port group `{group}`"), format!("taut portgroup set {group}")),
        (None, None) => return Ok(()),
    };
    Err(conflict(
        format!("the teaming of {what} names the uplink `{name}`"),
        format!("take it out first: {command} --active … --standby …"),
    ))
}

/// Admits the teaming of `what` on a vSwitch.
///
/// # Errors
/// When it names an interface that is no uplink of the vSwitch, or one twice; or its settings
/// contradict each other.
pub fn admit_teaming(
    desired: &Desired,
    what: &str,
    vswitch: &Name,
    teaming: &Teaming,
) -> Result<(), ApiError> {
    if teaming.active.as_ref().is_some_and(Vec::is_empty) {
        return Err(invalid(
            format!("the teaming of {what} has no active uplink"),
            "name at least one, or `all` (in JSON: leave `active` out)",
        ));
    }
    if teaming.policy == TeamPolicy::IpHash && !teaming.standby.is_empty() {
        return Err(invalid(
            format!(
                "the teaming of {what} has uplinks in standby, but ip-hash uses all of them as one channel"
            ),
            "make them active, or choose another policy",
        ));
    }
    if teaming.policy == TeamPolicy::IpHash && teaming.probe != PathProbe::Off {
        return Err(invalid(
            format!(
                "the teaming of {what} probes the paths of its uplinks, but under ip-hash the physical switch \
                 sends answers to any of them"
            ),
            "choose another policy, or do without: --probe off",
        ));
    }
    let exists = desired.vswitches.contains_key(vswitch);
    let mut before = BTreeSet::new();
    for named in teaming.named() {
        if !exists {
            return Err(invalid(
                format!("the teaming of {what} names `{named}`, but the vSwitch has no uplinks yet"),
                format!(
                    "create it without them, add its uplinks, and name them then: taut vswitch set {vswitch} \
                     --active {named}"
                ),
            ));
        }
        if desired.uplinks.get(named).is_none_or(|uplink| uplink.vswitch != *vswitch) {
            return Err(invalid(
                format!("the teaming of {what} names `{named}`, which is no uplink of vSwitch `{vswitch}`"),
                format!("add it first: taut uplink add {vswitch} {named}"),
            ));
        }
        if !before.insert(named) {
            return Err(invalid(
                format!("the teaming of {what} names the uplink `{named}` twice"),
                "name each uplink once: as active or in standby",
            ));
        }
    }
    Ok(())
}

/// Checks that an interface exists, and that the host does not use it.
pub fn check_interface(name: &Name, found: Option<&Candidate>) -> Result<(), ApiError> {
    let found = check_existence(name, found)?;
    match found.uses.first() {
        Some(first) => {
            let what: Vec<_> = found.uses.iter().map(InterfaceUse::what).collect();
            Err(conflict(
                format!("`{name}` is in use by this host: it {}", what.join(", ")),
                first.way_out(name.as_str()),
            ))
        }
        None => Ok(()),
    }
}

/// Checks that there is an Ethernet interface of this name.
pub(super) fn check_existence<'a>(
    name: &Name,
    found: Option<&'a Candidate>,
) -> Result<&'a Candidate, ApiError> {
    if name.as_str().len() > MAX_IFNAME {
        return Err(invalid(
            format!("`{name}` is no interface: the name of one has at most {MAX_IFNAME} bytes"),
            "`ip -brief link` lists the host's interfaces",
        ));
    }
    let Some(found) = found else {
        return Err(invalid(
            format!("this host has no network interface `{name}`"),
            "`ip -brief link` lists the host's interfaces",
        ));
    };
    if let Some(proper) = &found.proper_name {
        return Err(invalid(
            format!("`{name}` is an alternative name of the interface `{proper}`"),
            format!("use its proper name: {proper}"),
        ));
    }
    if !found.is_ethernet {
        return Err(invalid(
            format!("`{name}` is no Ethernet interface"),
            "`ip -brief link` lists the host's interfaces; use one with an Ethernet address",
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use taut_api::network::VSwitchSpec;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn free() -> Candidate {
        Candidate { is_ethernet: true, ..Candidate::default() }
    }

    #[test]
    fn each_refusal_of_an_interface_says_why_and_what_to_do() {
        let refusal = |interface: &str, found: Option<Candidate>| {
            let error = check_interface(&name(interface), found.as_ref()).unwrap_err();
            format!("{} ({})", error.message, error.hint)
        };
        let used = |uses: &[InterfaceUse]| Some(Candidate { uses: uses.to_vec(), ..free() });
        let bridge = InterfaceUse::Member { of: "br0".to_owned(), kind: "bridge".to_owned() };
        let address = InterfaceUse::Address("10.0.0.5".parse().unwrap());
        assert_eq!(
            refusal("eth1", used(&[bridge])),
            "`eth1` is in use by this host: it is a part of the bridge `br0` (take it out first: ip link set \
             eth1 nomaster)"
        );
        assert!(refusal("eth1", used(&[address, InterfaceUse::Route])).starts_with(
            "`eth1` is in use by this host: it has the address 10.0.0.5 of this host, has a route of this \
                 host (move the address"
        ));
        let above = InterfaceUse::Below("eth1.10".to_owned());
        assert!(refusal("eth1", used(&[above])).ends_with("ip link del eth1.10)"));
        let elsewhere = InterfaceUse::BelowElsewhere(taut_api::MacAddr([2, 0, 0, 0, 0, 5]));
        assert!(refusal("eth1", used(&[elsewhere])).contains("also receives for the address 02:"));
        let proper = Candidate { proper_name: Some("eth1".to_owned()), ..free() };
        assert_eq!(
            refusal("enp1s0", Some(proper)),
            "`enp1s0` is an alternative name of the interface `eth1` (use its proper name: eth1)"
        );
        assert!(refusal("eth9", None).starts_with("this host has no network interface `eth9`"));
        assert!(refusal("lo", Some(Candidate::default())).contains("no Ethernet interface"));
        assert!(refusal("an-interface-name-too-long", Some(free())).contains("at most 15 bytes"));
        assert_eq!(check_interface(&name("eth1"), Some(&free())), Ok(()));
    }

    #[test]
    fn a_vswitch_exists_and_its_uplinks_are_counted() {
        let mut desired = Desired::default();
        let spec = UplinkSpec::new(name("prod"));
        let admitted = |desired: &Desired, interface: &str| {
            admit_uplink(desired, &name(interface), &spec, Some(&free())).map_err(|error| error.message)
        };
        assert_eq!(
            admitted(&desired, "eth1").unwrap_err(),
            "uplink `eth1` names the vSwitch `prod`, which does not exist"
        );
        desired.vswitches.insert(name("prod"), VSwitchSpec::default());
        for number in 0..MOST_UPLINKS {
            assert_eq!(admitted(&desired, &format!("eth{number}")), Ok(()));
            desired.uplinks.insert(name(&format!("eth{number}")), spec.clone());
        }
        assert_eq!(admitted(&desired, "eth1"), Ok(()), "it may be written again");
        assert!(admitted(&desired, "eth99").unwrap_err().contains("has 32 uplinks already"));
    }

    #[test]
    fn a_backend_is_possible_and_stays() {
        use UplinkBackend::{Packet, Xdp};

        let mut desired = Desired::default();
        desired.vswitches.insert(name("prod"), VSwitchSpec::default());
        let admitted = |desired: &Desired, backend: UplinkBackend, zero_copy: bool| {
            let spec = UplinkSpec { backend, zero_copy, ..UplinkSpec::new(name("prod")) };
            admit_uplink(desired, &name("eth1"), &spec, Some(&free())).map_err(|error| error.to_string())
        };
        assert!(admitted(&desired, Packet, true).unwrap_err().contains("--backend xdp --zero-copy"));
        assert_eq!(admitted(&desired, Xdp, true), Ok(()));
        let xdp = UplinkSpec { backend: Xdp, ..UplinkSpec::new(name("prod")) };
        desired.uplinks.insert(name("eth1"), xdp);
        assert_eq!(admitted(&desired, Xdp, false), Ok(()));
        for (backend, zero_copy) in [(Packet, false), (Xdp, true)] {
            assert!(admitted(&desired, backend, zero_copy).unwrap_err().contains("taut uplink remove eth1"));
        }
    }

    #[test]
    fn a_teaming_names_uplinks_of_its_vswitch_and_these_stay() {
        let mut desired = Desired::default();
        for vswitch in ["prod", "other"] {
            desired.vswitches.insert(name(vswitch), VSwitchSpec::default());
        }
        for (uplink, vswitch) in [("eth1", "prod"), ("eth2", "prod"), ("eth3", "other")] {
            desired.uplinks.insert(name(uplink), UplinkSpec::new(name(vswitch)));
        }
        let teaming = |active: &[&str], standby: &[&str]| {
            let names = |all: &[&str]| all.iter().map(|text| name(text)).collect();
            Teaming { active: Some(names(active)), standby: names(standby), ..Teaming::default() }
        };
        let refusal = |teaming: &Teaming| {
            let error = admit_teaming(&desired, "vSwitch `prod`", &name("prod"), teaming).unwrap_err();
            format!("{} ({})", error.message, error.hint)
        };
        assert_eq!(
            refusal(&teaming(&["eth1"], &["eth3"])),
            "the teaming of vSwitch `prod` names `eth3`, which is no uplink of vSwitch `prod` (add it first: taut \
             uplink add prod eth3)"
        );
        assert!(refusal(&teaming(&[], &["eth1"])).contains("has no active uplink"));
        let channel = Teaming { policy: TeamPolicy::IpHash, ..teaming(&["eth1"], &["eth2"]) };
        assert!(refusal(&channel).contains("as one channel"));
        let probing =
            Teaming { policy: TeamPolicy::IpHash, probe: PathProbe::Beacon, ..teaming(&["eth1"], &[]) };
        assert!(refusal(&probing).contains("probes the paths"));
        let new =
            admit_teaming(&desired, "vSwitch `new`", &name("new"), &teaming(&["eth1"], &[])).unwrap_err();
        assert!(new.hint.starts_with("create it without them"), "{new}");
        assert!(refusal(&teaming(&["eth1"], &["eth1"])).contains("names the uplink `eth1` twice"));
        let good = teaming(&["eth2"], &["eth1"]);
        assert_eq!(admit_teaming(&desired, "vSwitch `prod`", &name("prod"), &good), Ok(()));
        desired.vswitches.insert(name("prod"), VSwitchSpec { teaming: good, ..VSwitchSpec::default() });
        let removal = admit_uplink_removal(&desired, &name("eth1")).unwrap_err();
        assert_eq!(removal.message, "the teaming of vSwitch `prod` names the uplink `eth1`");
        assert_eq!(admit_uplink_removal(&desired, &name("eth3")), Ok(()));
        let elsewhere = UplinkSpec::new(name("other"));
        assert!(admit_uplink(&desired, &name("eth2"), &elsewhere, Some(&free())).is_err());
    }
}
