//! Links of vNICs that users take down and up.
//!
//! The fabric gives a port whose link is down a segment of its own, so it exchanges no frame with
//! others. The guest learns of it from QEMU, which shows a card without carrier and stops a virtio
//! card's rings. A microguest has no monitor and is not told.

use taut_api::fabric::PortId;
use taut_api::fabric::config::SegmentId;
use taut_api::fabric::counters::MAX_PORTS;
use taut_api::link::{Link, WantedLink};
use taut_api::vm::{NicSpec, VmKind};

use crate::facts::{Action, Desired, Observed, Owner, Process};

/// Number of segments that vSwitches can have. The numbers above belong to ports whose link is
/// down.
pub(crate) const SEGMENTS: usize = u16::MAX as usize - MAX_PORTS;

/// The segment of a port whose link is down. No other port is on it.
pub(crate) const fn segment_of_its_own(port: PortId) -> SegmentId {
    SegmentId(u16::MAX - port.0)
}

/// Returns whether a user has taken the link of this port down.
pub fn is_taken_down(desired: &Desired, owner: &Owner) -> bool {
    let Owner::Nic(name, index) = owner else { return false };
    let nic = desired.vms.get(name).and_then(|vm| vm.vm.nics.get(*index));
    nic.is_some_and(|nic| nic.link == WantedLink::Down)
}

/// An action for each vNIC of a running QEMU whose guest sees another link than is wanted.
pub fn set_links(desired: &Desired, observed: &Observed) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, vm) in desired.vms_on() {
        let Some(process) = observed.process(name) else { continue };
        if process.kind != VmKind::Qemu || process.stopping {
            continue;
        }
        for (index, nic) in vm.vm.nics.iter().enumerate() {
            let port = desired.numbers.port(&Owner::Nic(name.clone(), index));
            if port.is_some_and(|port| differs(observed, process, index, nic, port)) {
                actions.push(Action::SetLink { vm: name.clone(), index, link: nic.link });
            }
        }
    }
    actions
}

/// Returns whether the guest sees another link than is wanted. QEMU serves its monitor once every
/// card has a peer.
fn differs(observed: &Observed, process: &Process, index: usize, nic: &NicSpec, port: PortId) -> bool {
    if !observed.attached(port) {
        return false;
    }
    let told_down = process.machine.links_down.contains(&index);
    match nic.link {
        WantedLink::Up => told_down,
        // QEMU takes the link up by itself when the fabric connects again. The rings run then.
        WantedLink::Down => !told_down || runs_virtio(observed, nic, port),
    }
}

/// Returns whether the rings of a virtio card run. The connection of an emulated card is always up.
fn runs_virtio(observed: &Observed, nic: &NicSpec, port: PortId) -> bool {
    let up = observed.fabric.ports.get(&port).is_some_and(|seen| seen.link == Link::Up);
    up && !nic.model.is_emulated()
}

#[cfg(test)]
mod tests {
    use taut_api::Name;
    use taut_api::vm::NicModel;

    use super::*;
    use crate::facts::{MachineSeen, PortSeen, VmSeen};
    use crate::network::fabric_config::configure_fabric;
    use crate::network::numbering::assign_numbers;
    use crate::placement::problem::Placement;

    fn name() -> Name {
        "db".parse().unwrap()
    }

    /// Two cards on one port group; the second has this model and link.
    fn desired(model: &str, link: &str) -> Desired {
        let mut desired = Desired::default();
        desired
            .portgroups
            .insert("lan".parse().unwrap(), serde_json::from_str(r#"{"vswitch": "sw"}"#).unwrap());
        let nics = serde_json::json!([
            { "portgroup": "lan" }, { "portgroup": "lan", "model": model, "link": link },
        ]);
        let vm = serde_json::from_value(serde_json::json!({ "nic": nics, "power": "on" })).unwrap();
        desired.vms.insert(name(), vm);
        desired.numbers = assign_numbers(&desired).unwrap();
        desired
    }

    /// The VM runs with both cards attached; the link of the second port is `seen`, and QEMU was
    /// told to take it down or not.
    fn observed(desired: &Desired, kind: VmKind, seen: Link, told_down: bool) -> Observed {
        let links_down = told_down.then_some(1).into_iter().collect();
        let machine = MachineSeen { links_down, ..MachineSeen::default() };
        let process = Process { kind, machine, ..Process::default() };
        let vm = VmSeen { process: Some(process), ..VmSeen::default() };
        let mut observed = Observed { vms: [(name(), vm)].into(), ..Observed::default() };
        for (index, link) in [(0, Link::Up), (1, seen)] {
            let port = desired.numbers.port(&Owner::Nic(name(), index)).unwrap();
            observed.fabric.ports.insert(port, PortSeen { link, attached: true, ..PortSeen::default() });
        }
        observed
    }

    #[test]
    fn a_port_whose_link_is_down_shares_its_segment_with_no_other() {
        let segments = |link| {
            let config =
                configure_fabric(&desired("virtio", link), &Observed::default(), &Placement::default(), None);
            config.ports.iter().map(|port| port.segment.0).collect::<Vec<_>>()
        };
        assert_eq!(segments("up"), [0, 0]);
        assert_eq!(segments("down"), [0, u16::MAX - 1]);
        assert!(usize::from(u16::MAX) - (MAX_PORTS - 1) > SEGMENTS, "no vSwitch has such a number");
    }

    #[test]
    fn qemu_is_told_until_the_guest_sees_the_wanted_link() {
        let told = |model: &str, link: &str, kind, seen, told_down| {
            let desired = desired(model, link);
            set_links(&desired, &observed(&desired, kind, seen, told_down))
        };
        let set = |link| [Action::SetLink { vm: name(), index: 1, link }];
        let qemu = VmKind::Qemu;
        assert_eq!(told("virtio", "up", qemu, Link::Up, false), []);
        assert_eq!(told("virtio", "down", qemu, Link::Up, false), set(WantedLink::Down));
        assert_eq!(told("virtio", "down", qemu, Link::Down, true), []);
        assert_eq!(told("virtio", "down", qemu, Link::Up, true), set(WantedLink::Down), "connected again");
        assert_eq!(told("e1000", "down", qemu, Link::Up, true), [], "its connection is always up");
        assert_eq!(told("virtio", "up", qemu, Link::Down, true), set(WantedLink::Up));
        assert_eq!(told("virtio", "down", VmKind::Micro, Link::Up, false), [], "no monitor");
        assert!(NicModel::E1000.is_emulated() && !NicModel::Virtio.is_emulated());
    }
}
