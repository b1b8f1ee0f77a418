//! Tests of the policy: receivers of frames, without moving any.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use taut_api::fabric::PortId;
use taut_api::fabric::config::{PortConfig, PortKind, SegmentId};
use taut_api::fabric::counters::PortWord;
use taut_api::network::{MacLearning, Security};
use taut_api::{MacAddr, Vlan};

use super::super::Switch;
use super::super::outside::Outside;
use super::*;
use crate::port::Port;
use crate::sys::counters::{PortBlock, empty_words};

mod addresses;
mod outside;

fn mac(number: u16) -> MacAddr {
    let [high, low] = number.to_be_bytes();
    MacAddr([2, 0, 0, 0, high, low])
}

fn port(id: u16, vlan: &str) -> PortConfig {
    PortConfig {
        vlan: vlan.parse().unwrap(),
        lro: true,
        ..PortConfig::new(PortId(id), format!("vm/{id}/nic0"), PortKind::Stream, SegmentId(1), mac(id))
    }
}

fn security(config: PortConfig, set: fn(&mut Security)) -> PortConfig {
    let mut security = config.security;
    set(&mut security);
    PortConfig { security, ..config }
}

fn learning(config: PortConfig) -> PortConfig {
    let config = security(config, |security| security.forged_transmits = true);
    PortConfig { mac_learning: Some(MacLearning { limit: 100, ageing_s: 300 }), ..config }
}

fn uplink(id: u16) -> PortConfig {
    PortConfig { kind: PortKind::Uplink, ..port(id, "4095") }
}

struct Rig {
    configs: Vec<PortConfig>,
    ports: Vec<Arc<Port>>,
    switch: Switch,
    now: Instant,
}

impl Rig {
    /// Builds ports whose numbers are their member indices.
    fn new(configs: Vec<PortConfig>) -> Self {
        let words = empty_words();
        let port = |config: &PortConfig| {
            Arc::new(Port::new(config.id, config.kind, PortBlock::new(&words, config.id)))
        };
        let ports = configs.iter().map(port).collect();
        let mut rig = Self { configs, ports, switch: Switch::default(), now: Instant::now() };
        rig.configure();
        rig
    }

    fn configure(&mut self) {
        let outsides = [(SegmentId(1), Outside::of_one_team(&self.configs))].into();
        self.switch =
            Switch::new(self.configs.iter().zip(&self.ports), &outsides, &BTreeMap::new(), &self.switch);
    }

    fn segment(&self) -> &Segment {
        &self.switch.segments[0]
    }

    fn route(&self, sender: u32, dst: MacAddr, src: MacAddr, tag: Option<u16>) -> Result<Routed, DropReason> {
        let frame = Ethernet { dst: dst.into(), src: src.into(), ether_type: 0x0800, tag };
        route(self.segment(), MemberIdx(sender), &frame, self.now)
    }

    /// The route of an untagged frame.
    fn to(&self, sender: u32, dst: MacAddr, src: MacAddr) -> Result<Route, DropReason> {
        self.route(sender, dst, src, None).map(|routed| routed.route)
    }

    fn flood(&self, vlan: u16) -> Vec<u32> {
        let mut members: Vec<_> = self.segment().in_vlan(vlan).map(|member| member.0).collect();
        members.sort_unstable();
        members
    }
}

#[test]
fn a_frame_reaches_only_ports_of_its_vlan_on_access_ports_and_trunks() {
    let rig = Rig::new(vec![
        port(0, "10"),
        port(1, "10"),
        port(2, "20"),
        port(3, "10-15"),
        port(4, "4095"),
        port(5, "0"),
    ]);
    assert_eq!(rig.to(0, mac(1), mac(0)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(0, mac(2), mac(0)), Ok(Route::Unknown));
    assert_eq!(rig.to(0, mac(3), mac(0)), Ok(Route::To(MemberIdx(3))));
    assert_eq!(rig.to(2, mac(3), mac(2)), Ok(Route::Unknown), "the trunk has no VLAN 20");
    assert_eq!(rig.to(2, mac(4), mac(2)), Ok(Route::To(MemberIdx(4))));
    assert_eq!(
        rig.route(4, mac(2), mac(4), Some(20)),
        Ok(Routed { vlan: 20, route: Route::To(MemberIdx(2)) })
    );
    assert_eq!(rig.route(4, mac(2), mac(4), Some(10)), Ok(Routed { vlan: 10, route: Route::Unknown }));
    assert_eq!(rig.route(4, mac(5), mac(4), None), Ok(Routed { vlan: 0, route: Route::To(MemberIdx(5)) }));
    assert_eq!(rig.route(3, mac(5), mac(3), None), Err(DropReason::VlanNotAdmitted));
    assert_eq!(rig.to(0, mac(0), mac(0)), Ok(Route::Back));
    for (vlan, members) in [(0, vec![4, 5]), (10, vec![0, 1, 3, 4]), (15, vec![3, 4]), (20, vec![2, 4])] {
        assert_eq!(rig.flood(vlan), members, "VLAN {vlan}");
    }
}

#[test]
fn reserved_group_and_forged_addresses_are_dropped() {
    let forging = security(port(0, "0"), |security| security.forged_transmits = true);
    let rig = Rig::new(vec![forging, port(1, "0")]);
    let pause = MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]);
    assert_eq!(rig.to(0, pause, mac(0)), Err(DropReason::ReservedAddress));
    assert_eq!(rig.to(0, mac(1), MacAddr::BROADCAST), Err(DropReason::GroupSource));
    assert_eq!(rig.to(0, MacAddr::BROADCAST, mac(0)), Ok(Route::All));
    assert_eq!(rig.to(0, mac(1), mac(7)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(0), mac(7)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.to(1, mac(7), mac(1)), Ok(Route::Unknown), "a forged address is not learned");
}

#[test]
fn a_learning_port_has_many_addresses_and_receives_unknown_ones() {
    let promiscuous = security(port(2, "10"), |security| security.promiscuous = true);
    let mut rig =
        Rig::new(vec![learning(port(0, "10")), port(1, "10"), promiscuous, learning(port(3, "1-20"))]);
    for number in 100..200 {
        assert_eq!(rig.to(0, mac(1), mac(number)), Ok(Route::To(MemberIdx(1))));
    }
    for number in 100..200 {
        assert_eq!(rig.to(1, mac(number), mac(1)), Ok(Route::To(MemberIdx(0))));
    }
    assert_eq!(rig.to(0, mac(101), mac(100)), Ok(Route::Back), "both are behind the port");
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))), "its own address stays");
    assert_eq!(rig.to(1, mac(300), mac(1)), Ok(Route::Unknown));
    let flood_targets = |vlan| rig.segment().flood_targets(vlan).map(|m| m.0).collect::<Vec<_>>();
    assert_eq!(flood_targets(10), [0, 2, 3]);
    assert_eq!(flood_targets(11), [3]);
    // Configured addresses and impossible ones are never learned.
    assert_eq!(rig.to(0, mac(2), mac(1)), Ok(Route::To(MemberIdx(2))));
    assert_eq!(rig.to(2, mac(1), mac(2)), Ok(Route::To(MemberIdx(1))));
    rig.to(0, mac(2), MacAddr([0; 6])).unwrap();
    assert_eq!(rig.to(1, MacAddr([0; 6]), mac(1)), Ok(Route::Unknown));
    // An address behind a trunk is valid in the VLAN in which it was seen.
    rig.route(3, mac(1), mac(400), Some(11)).unwrap();
    assert_eq!(rig.to(1, mac(400), mac(1)), Ok(Route::Unknown));
    rig.route(3, mac(1), mac(100), Some(10)).unwrap();
    assert_eq!(rig.to(1, mac(100), mac(1)), Ok(Route::To(MemberIdx(3))), "it has moved");
    rig.now += Duration::from_secs(302);
    assert_eq!(rig.to(1, mac(100), mac(1)), Ok(Route::Unknown), "the address has aged");
}

fn any_port(id: u16) -> impl Strategy<Value = PortConfig> {
    let vlan = prop::sample::select(vec!["0", "1", "2", "1-2", "0-3", "4095"]);
    let effective = prop::option::of((0_u16..8).prop_map(mac));
    (vlan, effective, any::<[bool; 4]>()).prop_map(
        move |(vlan, effective, [promiscuous, mac_changes, forged_transmits, learns])| {
            let security = Security { promiscuous, mac_changes, forged_transmits };
            let mac_learning = learns.then_some(MacLearning { limit: 4, ageing_s: 100 });
            PortConfig { security, effective, mac_learning, ..port(id, vlan) }
        },
    )
}

proptest! {
    /// For any ports and frames: a frame goes only to ports of its VLAN, and a frame to the
    /// configured address of a port that keeps it goes to that port alone.
    #[test]
    fn no_frame_leaves_its_vlan_and_no_port_takes_a_configured_address(
        configs in (any_port(0), any_port(1), any_port(2), any_port(3)).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
        frames in prop::collection::vec((0_u32..4, 0_u16..8, 0_u16..8, prop::option::of(0_u16..5), 0_u64..60), 1..200),
    ) {
        let mut rig = Rig::new(configs);
        for (sender, dst, src, tag, passed) in frames {
            rig.now += Duration::from_secs(passed);
            let Ok(Routed { vlan, route }) = rig.route(sender, mac(dst), mac(src), tag) else { continue };
            let config = &rig.configs[sender as usize];
            prop_assert!(config.vlan.admits(vlan));
            prop_assert!(src == sender as u16 || config.security.forged_transmits || config.security.mac_changes);
            if let Route::To(member) = route {
                let receiver = &rig.configs[member.index()];
                prop_assert!(member.0 != sender && receiver.vlan.admits(vlan));
                let own = receiver.mac == mac(dst);
                prop_assert!(own || receiver.security.mac_changes || receiver.mac_learning.is_some());
            }
            if let Some(owner) = rig.configs.get(usize::from(dst)).filter(|owner| owner.vlan.admits(vlan)) {
                let moved = route == Route::Unknown && owner.security.mac_changes;
                let stayed = route == Route::To(MemberIdx(dst.into())) || route == Route::Back && sender == u32::from(dst);
                prop_assert!(stayed || moved, "{route:?} for the address of {dst}");
            }
            for member in rig.segment().in_vlan(vlan).chain(rig.segment().flood_targets(vlan)) {
                prop_assert!(rig.configs[member.index()].vlan.admits(vlan));
            }
        }
    }
}
