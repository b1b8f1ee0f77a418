//! Tests of what a receiver gets: nothing while it is cut off, and its tags.

use super::*;

#[test]
fn a_port_receives_nothing_while_its_driver_has_set_an_address_that_is_rejected() {
    let other = mac(9);
    for (accepts, effective) in [(false, other), (false, mac(1)), (true, other)] {
        let mut rig = Rig::with(&["0"; 3], |configs| {
            configs[1].effective = Some(effective);
            configs[1].security.mac_changes = accepts;
            configs[1].security.promiscuous = true;
        });
        for to in [mac(1), other, mac(2), MacAddr::BROADCAST] {
            assert_eq!(rig.send_plain(0, to), Verdict::Done);
        }
        let (received, drops) = (rig.received(1).len(), rig.counters(1).rx_drops);
        if !accepts && effective == other {
            assert_eq!((received, drops), (0, vec![(DropReason::AddressChanged, 4)]));
        } else {
            assert_eq!((received, drops), (4, vec![]), "{accepts} {effective}");
        }
        assert_eq!(rig.received(2).len(), 2, "others have their frames");
    }
}

#[test]
fn tags_are_inserted_and_removed_in_frames_from_the_fabrics_memory() {
    let mut rig = Rig::on(&["10", "10-20", "10"]);
    for len in [18, 64, 68, 70, 1500] {
        let tagged = in_vlan_10(len);
        let plain = [&tagged[..12], &tagged[16..]].concat();
        rig.send(0, &NO_OFFLOADS, &plain);
        assert_eq!(rig.received(1), [tagged]);
    }
    let mut tagged = in_vlan_10(1500);
    // A priority tag is removed on the way to an access port.
    tagged[5] = 2;
    tagged[15] = 0;
    rig.send(0, &NO_OFFLOADS, &tagged);
    assert_eq!(rig.received(2), [[&tagged[..12], &tagged[16..]].concat()]);
    tagged[15] = 20;
    rig.send(0, &NO_OFFLOADS, &tagged);
    assert_eq!(rig.counters(0).tx_drops, [(DropReason::VlanTag, 1)]);
    // A checksum must not begin before the end of the tag.
    tagged[15] = 0;
    let header = NetHeader { flags: NEEDS_CSUM, csum_start: 14, csum_offset: 6, ..NO_OFFLOADS };
    rig.send(0, &header, &tagged);
    assert_eq!(rig.counters(0).tx_drops, [(DropReason::BadHeader, 1), (DropReason::VlanTag, 1)]);
}
