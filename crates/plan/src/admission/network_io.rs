//! Network I/O control: reservations against the speed of uplinks (VN-5).
//!
//! All reservations on a vSwitch together are at most 75 % of its slowest uplink, as on ESX: each
//! port may have to use that one. A class counts with its own reservation, or with those of its
//! cards together if they are larger. (On ESX, those of cards must fit into that of their class.)
//! Cards count while their VM is to be on. An uplink that states no speed does not count.
//!
//! An uplink may become slower while reservations stay. What does not ask for more then is admitted
//! nevertheless.

use std::borrow::Cow;
use std::collections::BTreeMap;

use taut_api::network::{PortGroupSpec, VSwitchSpec};
use taut_api::network_io::{NetworkAllocation, TrafficClass};
use taut_api::pnic::PnicSettings;
use taut_api::units::BitRate;
use taut_api::uplink::UplinkSpec;
use taut_api::vm::{Power, VmDesired};
use taut_api::{ApiError, Name};
use taut_uplink::netioc::{self, RESERVABLE_PERCENT, Rate};

use super::refusal::{conflict, invalid};
use crate::facts::Desired;

/// Bit/s of 1 Mbit/s.
const MBIT: u64 = 1_000_000;

/// Returns the speed of an interface's link in Mbit/s, if it states one.
pub type Speeds<'s> = &'s dyn Fn(&Name) -> Option<u64>;

/// Checks an allocation of `what` in itself.
///
/// # Errors
/// When a rate is out of range.
pub fn check_allocation(what: &str, allocation: &NetworkAllocation) -> Result<(), ApiError> {
    allocation.check().map_err(|bad| {
        invalid(
            format!("the part of uplinks for {what}: {bad}"),
            "write shares=SHARES,reservation=RATE,limit=RATE, of which any may be left out, or default",
        )
    })
}

/// Admits network I/O control of a vSwitch.
///
/// # Errors
/// When a rate is out of range, or the uplinks cannot keep all reservations.
pub fn admit_network_io(
    desired: &Desired,
    name: &Name,
    spec: &VSwitchSpec,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    for (class, allocation) in &spec.network_io.classes {
        check_allocation(&format!("the class `{class}` of vSwitch `{name}`"), allocation)?;
    }
    let mut after = desired.clone();
    after.vswitches.insert(name.clone(), spec.clone());
    check_reservations(desired, &after, name, speeds)
}

/// Admits a port group, whose cards may reserve for another class or on another vSwitch than
/// before.
///
/// # Errors
/// When the uplinks cannot keep all reservations.
pub fn admit_class(
    desired: &Desired,
    name: &Name,
    spec: &PortGroupSpec,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    let place = |group: &PortGroupSpec| (group.vswitch.clone(), group.traffic_class);
    if desired.portgroups.get(name).is_none_or(|before| place(before) == place(spec)) {
        return Ok(());
    }
    let mut after = desired.clone();
    after.portgroups.insert(name.clone(), spec.clone());
    check_reservations(desired, &after, &spec.vswitch, speeds)
}

/// Admits an uplink, which may be slower than those before it.
///
/// # Errors
/// When the uplinks cannot keep all reservations.
pub fn admit_speed(
    desired: &Desired,
    name: &Name,
    spec: &UplinkSpec,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    if desired.uplinks.get(name) == Some(spec) {
        return Ok(());
    }
    let mut after = desired.clone();
    after.uplinks.insert(name.clone(), spec.clone());
    check_reservations(desired, &after, &spec.vswitch, speeds)
}

/// Admits the speed that the card of an uplink is set to.
///
/// # Errors
/// When the uplinks cannot keep all reservations.
pub fn admit_set_speed(
    desired: &Desired,
    name: &Name,
    settings: &PnicSettings,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    let before = desired.pnics.get(name).and_then(|settings| settings.speed_mbit);
    let (Some(uplink), Some(speed)) = (desired.uplinks.get(name), settings.speed_mbit) else { return Ok(()) };
    if before == Some(speed) {
        return Ok(());
    }
    let was = slowest(desired, &uplink.vswitch, speeds).map(|(speed, _)| speed);
    let set = |card: &Name| if card == name { Some(u64::from(speed)) } else { speeds(card) };
    check_speed(desired, desired, &uplink.vswitch, was, &set)
}

/// Admits the reservations of a VM's cards.
///
/// # Errors
/// When the uplinks cannot keep all reservations.
pub fn admit_uplinks_of_vm(
    desired: &Desired,
    name: &Name,
    vm: &VmDesired,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    if vm.power != Power::On || vm.vm.nics.iter().all(|nic| nic.uplink_allocation.reservation.is_none()) {
        return Ok(());
    }
    let mut after = desired.clone();
    after.vms.insert(name.clone(), vm.clone());
    let vswitches =
        vm.vm.nics.iter().filter_map(|nic| Some(&desired.portgroups.get(&nic.portgroup)?.vswitch));
    for vswitch in vswitches {
        check_reservations(desired, &after, vswitch, speeds)?;
    }
    Ok(())
}

/// Checks that the uplinks of a vSwitch can keep all reservations after a change, unless that asks
/// for no more than before.
fn check_reservations(
    before: &Desired,
    after: &Desired,
    vswitch: &Name,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    let was = slowest(before, vswitch, speeds).map(|(speed, _)| speed);
    check_speed(before, after, vswitch, was, speeds)
}

/// Does the same for uplinks of which the slowest had the speed `was` before, if it stated one.
fn check_speed(
    before: &Desired,
    after: &Desired,
    vswitch: &Name,
    was: Option<u64>,
    speeds: Speeds<'_>,
) -> Result<(), ApiError> {
    let Some((speed, uplink)) = slowest(after, vswitch, speeds) else { return Ok(()) };
    let sum = |desired| reservations(desired, vswitch).values().map(|(_, rate)| rate.0).sum::<u64>();
    let is_slower = was.is_none_or(|was| speed < was);
    if !is_slower && sum(after) <= sum(before) {
        return Ok(());
    }
    let slowest = BitRate(speed.saturating_mul(MBIT));
    let Some(rate) = Rate::new(slowest.0) else { return Ok(()) };
    let reservations = reservations(after, vswitch);
    let rates = reservations.values().filter_map(|(_, reserved)| Rate::new(reserved.0));
    netioc::admit(rates, rate).map_err(|too_much| {
        let parts: Vec<_> = reservations
            .iter()
            .filter(|(_, (_, reserved))| reserved.0 > 0)
            .map(|(class, (by, reserved))| format!("{reserved}/s for `{class}` ({by})"))
            .collect();
        conflict(
            format!(
                "the reservations on vSwitch `{vswitch}` are {}/s, more than the {}/s that can be reserved, \
                 {RESERVABLE_PERCENT} % of its slowest uplink `{uplink}` with {slowest}/s: {}",
                BitRate(too_much.asked),
                BitRate(too_much.most),
                parts.join(", ")
            ),
            "reserve less (taut vm set VM --nic N --uplink-allocation …, taut vswitch set VSWITCH --traffic …), or use \
             faster uplinks",
        )
    })
}

/// Returns the speed and the name of the slowest uplink of a vSwitch that states a speed.
fn slowest<'d>(desired: &'d Desired, vswitch: &Name, speeds: Speeds<'_>) -> Option<(u64, &'d Name)> {
    let own = desired.uplinks.iter().filter(|(_, uplink)| uplink.vswitch == *vswitch);
    own.filter_map(|(name, _)| Some((speeds(name)?, name))).min()
}

/// Returns the reservation of each class that has one on a vSwitch with network I/O control, and
/// where it comes from.
fn reservations(desired: &Desired, vswitch: &Name) -> BTreeMap<TrafficClass, (Cow<'static, str>, BitRate)> {
    let mut all = BTreeMap::new();
    let Some(VSwitchSpec { network_io, .. }) = desired.vswitches.get(vswitch) else { return all };
    if !network_io.enabled {
        return all;
    }
    let mut cards: BTreeMap<TrafficClass, (u32, u64)> = BTreeMap::new();
    for nic in desired.vms_on().flat_map(|(_, vm)| &vm.vm.nics) {
        let Some(group) = desired.portgroups.get(&nic.portgroup) else { continue };
        if let Some(reserved) = nic.uplink_allocation.reservation.filter(|_| group.vswitch == *vswitch) {
            let (count, sum) = cards.entry(group.traffic_class).or_default();
            (*count, *sum) = (*count + 1, sum.saturating_add(reserved.0));
        }
    }
    for class in TrafficClass::ALL {
        let own = network_io.classes.get(&class).and_then(|allocation| allocation.reservation);
        let own = own.map_or(0, |rate| rate.0);
        let (count, of_cards) = cards.get(&class).copied().unwrap_or_default();
        let reserved = if of_cards > own {
            (Cow::from(format!("by {}", taut_api::word::counted(count, "card"))), of_cards)
        } else {
            (Cow::from("by the class"), own)
        };
        all.insert(class, (reserved.0, BitRate(reserved.1)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Desired;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// A vSwitch with network I/O control, two uplinks, and VMs whose cards reserve so much.
    fn desired(vms: &[&str]) -> Desired {
        let mut desired = Desired::default();
        desired.vswitches.insert(name("prod"), vswitch("{}"));
        let group = serde_json::from_str(r#"{"vswitch": "prod"}"#).unwrap();
        desired.portgroups.insert(name("web"), group);
        for uplink in ["eth0", "eth1"] {
            desired.uplinks.insert(name(uplink), UplinkSpec::new(name("prod")));
        }
        for (number, reservation) in vms.iter().enumerate() {
            desired.vms.insert(name(&format!("vm{number}")), vm(reservation));
        }
        desired
    }

    fn vswitch(classes: &str) -> VSwitchSpec {
        serde_json::from_str(&format!(r#"{{"network_io": {{"enabled": true, "classes": {classes}}}}}"#))
            .unwrap()
    }

    fn vm(reservation: &str) -> VmDesired {
        let nic =
            serde_json::json!({ "portgroup": "web", "uplink_allocation": { "reservation": reservation } });
        serde_json::from_value(serde_json::json!({ "nic": [nic], "power": "on" })).unwrap()
    }

    fn speeds(name: &Name) -> Option<u64> {
        match name.as_str() {
            "eth0" => Some(10_000),
            "eth1" => Some(1000),
            "slow" => Some(100),
            _ => None,
        }
    }

    #[test]
    fn three_quarters_of_the_slowest_uplink_can_be_reserved() {
        let full = desired(&["400Mbit", "350Mbit"]);
        assert_eq!(check_reservations(&Desired::default(), &full, &name("prod"), &speeds), Ok(()));
        let error = admit_uplinks_of_vm(&full, &name("vm2"), &vm("1kbit"), &speeds).unwrap_err();
        assert_eq!(
            error.message,
            "the reservations on vSwitch `prod` are 750001kbit/s, more than the 750Mbit/s that can be reserved, \
             75 % of its slowest uplink `eth1` with 1Gbit/s: 750001kbit/s for `virtualmachine` (by 3 cards)"
        );
        let off = VmDesired { power: Power::Off, ..vm("1Gbit") };
        assert_eq!(admit_uplinks_of_vm(&full, &name("vm2"), &off, &speeds), Ok(()), "it is not to be on");
    }

    #[test]
    fn a_class_counts_with_its_own_reservation_or_with_those_of_its_cards() {
        let desired = desired(&["200Mbit"]);
        let admitted = |classes: &str| {
            admit_network_io(&desired, &name("prod"), &vswitch(classes), &speeds)
                .map_err(|error| error.message)
        };
        assert_eq!(admitted(r#"{"virtualmachine": {"reservation": "750Mbit"}}"#), Ok(()));
        assert_eq!(admitted(r#"{"nfs": {"reservation": "550Mbit"}}"#), Ok(()));
        let refusal = admitted(r#"{"nfs": {"reservation": "551Mbit"}}"#).unwrap_err();
        assert!(
            refusal
                .ends_with("551Mbit/s for `nfs` (by the class), 200Mbit/s for `virtualmachine` (by 1 card)"),
            "{refusal}"
        );
        let refusal = admitted(r#"{"nfs": {"limit": "10"}}"#).unwrap_err();
        assert!(
            refusal.starts_with("the part of uplinks for the class `nfs` of vSwitch `prod`"),
            "{refusal}"
        );
    }

    #[test]
    fn what_asks_for_no_more_is_admitted_on_an_uplink_that_became_slower() {
        let full = desired(&["700Mbit"]);
        let slower = |name: &Name| speeds(name).map(|speed| speed / 10);
        let unchanged = admit_network_io(&full, &name("prod"), &vswitch("{}"), &slower);
        assert_eq!(unchanged, Ok(()));
        assert_eq!(admit_uplinks_of_vm(&full, &name("vm0"), &vm("600Mbit"), &slower), Ok(()));
        assert!(admit_uplinks_of_vm(&full, &name("vm0"), &vm("701Mbit"), &slower).is_err());
    }

    #[test]
    fn a_speed_that_is_set_keeps_the_reservations_too() {
        let mut desired = desired(&["300Mbit"]);
        let set = |desired: &Desired, uplink: &str, speed| {
            let settings = PnicSettings { speed_mbit: Some(speed), ..PnicSettings::default() };
            admit_set_speed(desired, &name(uplink), &settings, &speeds).map_err(|error| error.message)
        };
        assert_eq!(set(&desired, "eth0", 1000), Ok(()));
        let refusal = set(&desired, "eth0", 100).unwrap_err();
        assert!(refusal.contains("75 % of its slowest uplink `eth0` with 100Mbit/s"), "{refusal}");
        assert_eq!(set(&desired, "slow", 10), Ok(()), "it is no uplink");
        let slow = PnicSettings { speed_mbit: Some(100), ..PnicSettings::default() };
        desired.pnics.insert(name("eth0"), slow);
        assert_eq!(set(&desired, "eth0", 100), Ok(()), "it is so already");
    }

    #[test]
    fn a_slow_uplink_and_another_class_are_refused_too() {
        let mut desired = desired(&["300Mbit"]);
        let spec = UplinkSpec::new(name("prod"));
        let error = admit_speed(&desired, &name("slow"), &spec, &speeds).unwrap_err();
        assert!(error.message.contains("75 % of its slowest uplink `slow` with 100Mbit/s"), "{error}");
        assert_eq!(admit_speed(&desired, &name("tap0"), &spec, &speeds), Ok(()), "it states no speed");
        let other = r#"{"virtualmachine": {"reservation": "300Mbit"}, "nfs": {"reservation": "400Mbit"}}"#;
        desired.vswitches.insert(name("prod"), vswitch(other));
        let group: PortGroupSpec =
            serde_json::from_str(r#"{"vswitch": "prod", "traffic_class": "vmotion"}"#).unwrap();
        assert!(admit_class(&desired, &name("web"), &group, &speeds).is_err());
        desired.vswitches.insert(name("prod"), VSwitchSpec::default());
        assert_eq!(admit_class(&desired, &name("web"), &group, &speeds), Ok(()), "it is off");
    }
}
