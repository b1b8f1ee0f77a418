//! Addresses that drivers have set, through real rings.

use taut_api::MacAddr;
use taut_api::fabric::config::PortConfig;
use taut_api::fabric::{DropReason, PortId};

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{Guest, Model};

/// Two ports; the driver of the second one has set this address.
fn ports(effective: MacAddr, mac_changes: bool) -> Vec<PortConfig> {
    let mut port = PortConfig { effective: Some(effective), ..vnic(1, 1) };
    port.security.mac_changes = mac_changes;
    vec![vnic(0, 1), port]
}

/// All frames are plain and have one receiver, so they take the fast path as far as they pass.
#[test]
fn a_running_flow_follows_the_address_that_the_driver_has_set() {
    let other = mac(9);
    let mut fabric = Fabric::start();
    fabric.configure(ports(mac(1), false));
    let [mut sender, mut moving] =
        [0, 1].map(|id| Guest::start(fabric.connect(PortId(id)), Model::default()));
    let (to_configured, to_other) = (frame(mac(1), mac(0), 1, 100), frame(other, mac(0), 2, 100));
    let (from_configured, from_other) = (frame(mac(0), mac(1), 3, 100), frame(mac(0), other, 4, 100));
    sender.send(&to_configured);
    assert_eq!(moving.receive().1, to_configured);

    // Rejected: nothing arrives, and frames from the address are forged.
    fabric.configure(ports(other, false));
    (0..8).for_each(|_| sender.send(&to_configured));
    moving.send(&from_other);
    sender.drain();
    moving.drain();
    assert_eq!(fabric.counters(PortId(1)).rx_drops, [(DropReason::AddressChanged, 8)]);
    assert_eq!(fabric.counters(PortId(1)).tx_drops, [(DropReason::ForgedTransmit, 1)]);

    // Accepted: the port has the address and no other.
    fabric.configure(ports(other, true));
    sender.send(&to_configured);
    sender.send(&to_other);
    assert_eq!(moving.receive().1, to_other, "nothing came before");
    moving.send(&from_configured);
    moving.send(&from_other);
    assert_eq!(sender.receive().1, from_other);
    sender.drain();
    moving.drain();
    assert_eq!(fabric.counters(PortId(0)).tx_drops, [(DropReason::UnknownUnicast, 1)]);
    assert_eq!(fabric.counters(PortId(1)).tx_drops, [(DropReason::ForgedTransmit, 2)]);

    // The driver sets it back, and the port has its configured address, whatever the policy.
    for accepts in [true, false] {
        fabric.configure(ports(mac(1), accepts));
        sender.send(&to_configured);
        assert_eq!(moving.receive().1, to_configured);
        moving.send(&from_configured);
        assert_eq!(sender.receive().1, from_configured);
    }
    assert_eq!(fabric.counters(PortId(1)).rx_drops, [(DropReason::AddressChanged, 8)]);
}
