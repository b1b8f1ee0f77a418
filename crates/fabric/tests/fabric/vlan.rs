//! VLAN tags and learned addresses, through real rings.

use taut_api::fabric::config::PortConfig;
use taut_api::fabric::{DropReason, PortId};
use taut_api::network::MacLearning;
use taut_api::{MacAddr, Vlan};
use taut_virtq::header::{GSO_TCPV4, NetHeader};

use super::fabric::{Fabric, mac, vnic};
use super::frames::{frame, tcp_checksum_holds, tcp_payload, tso};
use super::guest::{Guest, LINUX, Model, NO_OFFLOADS};

fn on(id: u16, vlan: &str) -> PortConfig {
    PortConfig { vlan: vlan.parse().unwrap(), ..vnic(id, 1) }
}

fn start(fabric: &Fabric, id: u16, features: u64) -> Guest {
    Guest::start(fabric.connect(PortId(id)), Model { features, ..Model::default() })
}

fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend([0x81, 0]);
    tagged.extend(tci.to_be_bytes());
    tagged.extend(&frame[12..]);
    tagged
}

#[test]
fn tags_are_inserted_and_removed_in_frames_of_all_lengths() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![on(0, "10"), on(1, "10-20"), on(2, "4095"), on(3, "20")]);
    let [mut access, mut trunk, mut all, mut other] = [0, 1, 2, 3].map(|id| start(&fabric, id, LINUX));
    for (mark, len) in [14, 15, 60, 61, 63, 64, 65, 68, 69, 1514, 1600, 9014, 65_549].into_iter().enumerate()
    {
        let sent = frame(mac(1), mac(0), mark as u8, len);
        access.send(&sent);
        assert_eq!(trunk.receive().1, tagged(&sent, 10), "{len}");
        let sent = frame(mac(0), mac(1), mark as u8, len);
        trunk.send(&tagged(&sent, 0xa00a));
        assert_eq!(access.receive().1, sent, "{len}");
        let sent = tagged(&frame(mac(2), mac(1), mark as u8, len), 0x700b);
        trunk.send(&sent);
        assert_eq!(all.receive().1, sent, "{len}");
        let sent = frame(mac(2), mac(0), mark as u8, len);
        if len >= 18 {
            access.send(&tagged(&sent, 0xe000));
            assert_eq!(all.receive().1, tagged(&sent, 0xe00a), "a priority stays, {len}");
        }
    }
    let sent = frame(MacAddr::BROADCAST, mac(1), 99, 100);
    trunk.send(&tagged(&sent, 20));
    assert_eq!(other.receive().1, sent);
    assert_eq!(all.receive().1, tagged(&sent, 20));
    access.send(&frame(MacAddr::BROADCAST, mac(0), 98, 100));
    assert_eq!(all.receive().1, tagged(&frame(MacAddr::BROADCAST, mac(0), 98, 100), 10));
    all.send(&tagged(&frame(mac(0), mac(2), 97, 100), 10));
    assert_eq!(access.receive().1, frame(mac(0), mac(2), 97, 100), "nothing of VLAN 20 came before");
    for guest in [&mut access, &mut trunk, &mut all] {
        guest.drain();
    }
    for port in 0..4 {
        let counters = fabric.counters(PortId(port));
        assert!(counters.tx_drops.is_empty() && counters.rx_drops.is_empty(), "{counters:?}");
    }
}

#[test]
fn tagged_frames_are_segmented_for_receivers_without_offloads() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![on(0, "10"), on(1, "4095"), on(2, "4095")]);
    let mut access = start(&fabric, 0, LINUX);
    let mut plain = start(&fabric, 1, NO_OFFLOADS);
    let mut able = start(&fabric, 2, LINUX);
    let (header, sent) = tso(mac(2), mac(0), 20_000, 1448);
    access.send_with(&header, &sent);
    let (got_header, got) = able.receive();
    assert_eq!(got, tagged(&sent, 10));
    assert_eq!((got_header.csum_start, got_header.hdr_len, got_header.gso_type), (38, 58, GSO_TCPV4));
    let (header, sent) = tso(mac(1), mac(0), 20_000, 1400);
    access.send_with(&header, &sent);
    let mut payload = Vec::new();
    while payload.len() < 20_000 {
        let (header, got) = plain.receive();
        assert_eq!((header.flags, header.gso_type, &got[12..16]), (0, 0, &[0x81, 0, 0, 10][..]));
        let untagged = [&got[..12], &got[16..]].concat();
        assert!(tcp_checksum_holds(&untagged));
        payload.extend_from_slice(tcp_payload(&untagged));
    }
    assert_eq!(payload, tcp_payload(&sent));
    // In the other direction, the tag is removed and the offsets move back.
    let (header, sent) = tso(mac(0), mac(2), 20_000, 1448);
    let shifted = NetHeader { csum_start: 38, hdr_len: 58, ..header };
    able.send_with(&shifted, &tagged(&sent, 10));
    let (got_header, got) = access.receive();
    assert_eq!((got, NetHeader { num_buffers: 0, ..got_header }), (sent, header));
}

#[test]
fn a_guest_cannot_send_into_another_vlan() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![on(0, "10"), on(1, "10-11"), on(2, "20"), on(3, "4095")]);
    let [mut access, mut trunk, mut victim, mut all] = [0, 1, 2, 3].map(|id| start(&fabric, id, LINUX));
    let plain = |to, from| frame(to, from, 7, 100);
    access.send(&tagged(&plain(mac(2), mac(0)), 20));
    access.send(&tagged(&tagged(&plain(mac(2), mac(0)), 20), 10));
    access.send(&tagged(&tagged(&plain(mac(2), mac(0)), 20), 0));
    trunk.send(&tagged(&plain(mac(2), mac(1)), 20));
    trunk.send(&tagged(&tagged(&plain(MacAddr::BROADCAST, mac(1)), 20), 10));
    trunk.send(&plain(MacAddr::BROADCAST, mac(1)));
    trunk.drain();
    access.drain();
    all.send(&tagged(&plain(mac(2), mac(3)), 20));
    assert_eq!(victim.receive().1, plain(mac(2), mac(3)), "nothing came before");
    let drops = |port| fabric.counters(PortId(port)).tx_drops;
    assert_eq!(drops(0), [(DropReason::VlanTag, 1), (DropReason::StackedTag, 2)]);
    assert_eq!(drops(1), [(DropReason::VlanNotAdmitted, 2), (DropReason::StackedTag, 1)]);
}

#[test]
fn a_vlan_can_be_changed_under_running_guests() {
    let mut fabric = Fabric::start();
    let ports = |vlan: u16| {
        let mut ports = vec![on(0, "10"), on(1, "10"), on(2, "10")];
        ports[1].vlan = Vlan::Access(vlan);
        ports
    };
    fabric.configure(ports(10));
    let [mut a, mut b, mut c] = [0, 1, 2].map(|id| start(&fabric, id, LINUX));
    let sent = |mark| frame(MacAddr::BROADCAST, mac(0), mark, 60);
    a.send(&sent(1));
    assert_eq!((b.receive().1, c.receive().1), (sent(1), sent(1)));
    fabric.configure(ports(11));
    a.send(&sent(2));
    assert_eq!(c.receive().1, sent(2));
    a.drain();
    fabric.configure(ports(10));
    a.send(&sent(3));
    assert_eq!(b.receive().1, sent(3), "what was sent in between is not there");
}

#[test]
fn a_nested_switch_is_reached_at_the_addresses_behind_it() {
    let mut fabric = Fabric::start();
    let mut nested = on(0, "0");
    nested.security.forged_transmits = true;
    nested.mac_learning = Some(MacLearning::default());
    fabric.configure(vec![nested, on(1, "0"), on(2, "0")]);
    let [mut nested, mut b, mut c] = [0, 1, 2].map(|id| start(&fabric, id, LINUX));
    let inner = |number: u16| mac(1000 + number);
    b.send(&frame(inner(0), mac(1), 1, 60));
    assert_eq!(
        nested.receive().1,
        frame(inner(0), mac(1), 1, 60),
        "an unknown address goes to the learning port"
    );
    for number in 0..100 {
        nested.send(&frame(mac(1), inner(number), 2, 60));
        assert_eq!(b.receive().1, frame(mac(1), inner(number), 2, 60));
    }
    for number in 0..100 {
        b.send(&frame(inner(number), mac(1), 3, 60));
        assert_eq!(nested.receive().1, frame(inner(number), mac(1), 3, 60));
    }
    c.send(&frame(mac(1), mac(2), 4, 60));
    assert_eq!(b.receive().1, frame(mac(1), mac(2), 4, 60));
    b.drain();
    assert!(fabric.counters(PortId(1)).tx_drops.is_empty());
    assert_eq!(fabric.counters(PortId(2)).rx_frames, 0);
}
