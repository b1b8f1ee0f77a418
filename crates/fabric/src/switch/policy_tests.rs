//! Tests of the policy: receivers of frames, without moving any.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_api::fabric::PortId;
use taut_api::fabric::config::{PortConfig, PortKind, SegmentId};
use taut_api::fabric::counters::{FILE_SIZE, PortWord};
use taut_api::network::{MacLearning, Security};
use taut_api::{MacAddr, Vlan};
use taut_uplink::team::{Order, Path, Policy, Team, Uplink};
use taut_virtq::counters::SharedWords;

use super::super::Switch;
use super::super::outside::{Outside, Settled, Way};
use super::*;
use crate::port::Port;
use crate::sys::counters::PortBlock;

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

/// A team of all uplinks, by port, as they are settled while all of them have a link.
fn outside(configs: &[PortConfig]) -> Outside {
    let uplinks = configs.iter().filter(|config| config.kind == PortKind::Uplink).map(|config| config.id);
    let uplinks: BTreeMap<_, _> = uplinks.zip((0..).map_while(Uplink::new)).collect();
    let order = Order { active: uplinks.values().copied().collect(), standby: Vec::new() };
    let mut team = Team::new(Policy::PortId, order, true);
    team.settle(uplinks.values().copied().collect());
    let way = |config: &PortConfig| {
        let mut path = Path::default();
        path.use_uplink(team.uplink(config.id.0.into()));
        (config.id, Way { team: 0, path })
    };
    let ways = configs.iter().filter(|config| config.kind != PortKind::Uplink).map(way).collect();
    Outside { uplinks, teams: vec![Settled { now: team, former: None }], ways, ..Outside::default() }
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
        let file = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, FILE_SIZE).unwrap();
        let words = Arc::new(SharedWords::map(file.as_fd(), FILE_SIZE as usize / 8).unwrap());
        let port = |config: &PortConfig| {
            Arc::new(Port::new(config.id, config.kind, PortBlock::new(&words, config.id)))
        };
        let ports = configs.iter().map(port).collect();
        let mut rig = Self { configs, ports, switch: Switch::default(), now: Instant::now() };
        rig.configure();
        rig
    }

    fn configure(&mut self) {
        let outsides = [(SegmentId(1), outside(&self.configs))].into();
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
fn all_addresses_that_no_port_has_are_behind_the_uplink() {
    let rig = Rig::new(vec![port(0, "10"), port(1, "20"), port(2, "0"), uplink(3), port(4, "10-15")]);
    let outside = mac(77);
    assert_eq!(rig.to(0, outside, mac(0)), Ok(Route::Outside));
    assert_eq!(rig.to(0, mac(1), mac(0)), Ok(Route::Outside), "port 1 has another VLAN");
    assert_eq!(rig.to(0, mac(4), mac(0)), Ok(Route::To(MemberIdx(4))));
    assert_eq!(rig.to(0, MacAddr::BROADCAST, mac(0)), Ok(Route::All));
    assert_eq!(rig.flood(10), [0, 4], "the uplink is no member of a VLAN");
    let from_outside = |dst, tag| rig.route(3, dst, outside, tag).map(|routed| routed.route);
    assert_eq!(from_outside(mac(0), Some(10)), Ok(Route::To(MemberIdx(0))));
    assert_eq!(from_outside(mac(2), None), Ok(Route::To(MemberIdx(2))));
    assert_eq!(from_outside(mac(0), None), Ok(Route::Unknown), "it has no tag of VLAN 10");
    assert_eq!(from_outside(mac(78), Some(10)), Ok(Route::Unknown), "it never goes back");
    assert_eq!(from_outside(mac(3), Some(10)), Ok(Route::Unknown), "the uplink has no address");
    assert_eq!(from_outside(MacAddr::BROADCAST, Some(4000)), Ok(Route::All));
    assert_eq!(from_outside(mac(0), Some(4095)), Err(DropReason::VlanNotAdmitted));
}

#[test]
fn each_port_sends_and_receives_at_its_own_uplink() {
    let rig = Rig::new(vec![port(0, "10"), port(1, "10"), uplink(2), uplink(3), learning(port(4, "10"))]);
    let segment = rig.segment();
    let mut frame = [&mac(77).0[..], &mac(0).0, &[8, 0]].concat();
    frame.resize(60, 0);
    let ways = [0, 1, 4].map(|at| segment.way_out(MemberIdx(at), &frame));
    assert_eq!(ways, [2, 3, 2].map(|at| Some(MemberIdx(at))));
    assert_eq!(segment.way_out(MemberIdx(2), &frame), None, "an uplink has no way out");
    let from = |uplink, dst| rig.route(uplink, dst, mac(77), Some(10)).map(|routed| routed.route);
    for (member, own, other) in [(0_u16, 2, 3), (1, 3, 2)] {
        assert_eq!(from(own, mac(member)), Ok(Route::To(MemberIdx(member.into()))));
        assert_eq!(from(other, mac(member)), Err(DropReason::WrongUplink));
    }
    let takers = |uplink| {
        [0, 1, 4].map(|at| segment.takes(MemberIdx(at), MemberIdx(uplink), MacAddr::BROADCAST.into()))
    };
    assert_eq!((takers(2), takers(3)), ([true, false, true], [false, true, false]));
    assert!(segment.takes(MemberIdx(0), MemberIdx(1), mac(0).into()), "frames from inside are always taken");
}

#[test]
fn a_frame_that_comes_back_or_pretends_to_be_a_port_is_dropped() {
    let learner = learning(port(1, "10"));
    let rig = Rig::new(vec![port(0, "10"), learner, uplink(2)]);
    let from_outside = |src, tag| rig.route(2, MacAddr::BROADCAST, src, tag).map(|routed| routed.route);
    assert_eq!(from_outside(mac(0), Some(10)), Err(DropReason::OwnSource));
    assert_eq!(from_outside(mac(0), Some(20)), Ok(Route::All), "in VLAN 20 somebody else has it");
    assert_eq!(from_outside(MacAddr::BROADCAST, Some(10)), Err(DropReason::GroupSource));
    assert_eq!(from_outside(mac(90), Some(10)), Ok(Route::All));
    assert_eq!(rig.to(1, mac(77), mac(90)), Ok(Route::Outside), "port 1 learns 90");
    assert_eq!(from_outside(mac(90), Some(10)), Err(DropReason::OwnSource));
    assert_eq!(
        rig.route(2, mac(90), mac(77), Some(10)).map(|routed| routed.route),
        Ok(Route::To(MemberIdx(1)))
    );
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
fn a_port_that_may_change_its_address_receives_at_the_newest_one() {
    let moving = |id, vlan| security(port(id, vlan), |security| security.mac_changes = true);
    let rig = Rig::new(vec![moving(0, "10"), port(1, "10"), moving(2, "10"), moving(3, "1-20")]);
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))));
    assert_eq!(rig.to(0, mac(1), mac(50)), Ok(Route::To(MemberIdx(1))), "the new address is not forged");
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(0))));
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::Unknown), "the configured address is given up");
    assert_eq!(rig.to(0, mac(1), mac(51)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::Unknown), "a port has one address");
    assert_eq!(rig.to(0, mac(2), mac(1)), Err(DropReason::ForgedTransmit), "another's configured address");
    assert_eq!(rig.to(1, mac(51), mac(1)), Ok(Route::To(MemberIdx(0))), "trying that changed nothing");
    // The newest port wins the address; the one before wins it back with its next frame.
    assert_eq!(rig.to(2, mac(1), mac(51)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(51), mac(1)), Ok(Route::To(MemberIdx(2))));
    assert_eq!(rig.to(0, mac(1), mac(51)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(51), mac(1)), Ok(Route::To(MemberIdx(0))));
    assert_eq!(rig.to(0, mac(1), mac(0)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))));
    // A trunk's address is valid in all of its VLANs and in no others.
    assert_eq!(rig.route(3, mac(1), mac(60), Some(10)).unwrap().route, Route::To(MemberIdx(1)));
    assert_eq!(rig.to(1, mac(60), mac(1)), Ok(Route::To(MemberIdx(3))));
    assert_eq!(rig.to(1, mac(3), mac(1)), Ok(Route::Unknown));
}

/// A port whose driver has set the address of this number.
fn driven(config: PortConfig, number: u16) -> PortConfig {
    PortConfig { effective: Some(mac(number)), ..config }
}

#[test]
fn a_port_has_the_address_that_its_driver_has_set_and_no_other() {
    let accepts = |id| security(port(id, "10"), |security| security.mac_changes = true);
    let mut rig = Rig::new(vec![driven(accepts(0), 0), port(1, "10"), accepts(2)]);
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))));
    assert_eq!(rig.to(0, mac(1), mac(50)), Err(DropReason::ForgedTransmit), "no frame changes the address");
    rig.configs[0] = driven(accepts(0), 50);
    rig.configure();
    assert_eq!(rig.to(0, mac(1), mac(50)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(0))), "before it has sent anything");
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::Unknown), "the configured address is given up");
    assert_eq!(rig.to(0, mac(1), mac(0)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.to(2, mac(1), mac(50)), Err(DropReason::ForgedTransmit), "it is another port's");
    assert_eq!(rig.to(2, mac(1), mac(0)), Err(DropReason::ForgedTransmit), "as long as it is configured");
    rig.configs[0] = driven(accepts(0), 0);
    rig.configure();
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))), "it is set back");
    assert_eq!(rig.to(0, mac(1), mac(0)), Ok(Route::To(MemberIdx(1))));
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::Unknown));
}

#[test]
fn no_driver_takes_the_address_of_another_port_or_one_that_no_card_can_have() {
    let accepts = |id, vlan| security(port(id, vlan), |security| security.mac_changes = true);
    let mut rig = Rig::new(vec![
        driven(accepts(0, "10"), 1),
        port(1, "10"),
        driven(accepts(2, "10"), 50),
        driven(accepts(3, "10"), 50),
        driven(accepts(4, "11"), 50),
        driven(accepts(5, "11-12"), 50),
    ]);
    assert_eq!(rig.to(3, mac(1), mac(3)), Ok(Route::To(MemberIdx(1))), "it is configured");
    assert_eq!(rig.to(0, mac(3), mac(1)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))), "the port keeps its own");
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(2))), "the first one in its VLAN");
    assert_eq!(rig.to(3, mac(1), mac(50)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.route(5, mac(50), mac(5), Some(11)).unwrap().route, Route::To(MemberIdx(4)));
    assert_eq!(rig.route(5, mac(4), mac(50), Some(11)), Err(DropReason::ForgedTransmit));
    // A port with the address keeps it although one with a lower number wants it now.
    rig.configs[2].effective = Some(mac(2));
    rig.configure();
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(3))));
    rig.configs[2].effective = Some(mac(50));
    rig.configure();
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(3))));
    for impossible in [MacAddr::BROADCAST, MacAddr([0; 6])] {
        rig.configs[3].effective = Some(impossible);
        rig.configure();
        assert_eq!(rig.to(1, mac(3), mac(1)), Ok(Route::To(MemberIdx(3))));
    }
}

#[test]
fn the_driver_that_set_an_address_first_has_it_in_each_fabric() {
    let accepts = |id| security(port(id, "10"), |security| security.mac_changes = true);
    let of = |id, order| PortConfig { effective_order: order, ..driven(accepts(id), 50) };
    let refused = |rig: &Rig| [0, 2, 3].map(|id| rig.ports[id].counters.get(PortWord::AddressRefused));
    let mut rig = Rig::new(vec![of(0, 9), port(1, "10"), of(2, 4), of(3, 5)]);
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(2))), "the lower number was second");
    assert_eq!(rig.to(0, mac(1), mac(50)), Err(DropReason::ForgedTransmit));
    assert_eq!(refused(&rig), [1, 0, 1]);
    rig.configs[2].effective = Some(mac(2));
    rig.configure();
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(3))), "the next one in this order");
    assert_eq!(refused(&rig), [1, 0, 0]);
    // Port 2 sets it again, after the others.
    rig.configs[2] = of(2, 10);
    rig.configure();
    assert_eq!((rig.to(1, mac(50), mac(1)), refused(&rig)), (Ok(Route::To(MemberIdx(3))), [1, 1, 0]));
    let next = Rig::new(rig.configs.clone());
    assert_eq!(next.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(3))), "after a restart of the fabric");
    rig.configs[0].effective = Some(MacAddr::BROADCAST);
    rig.configs[2].security.mac_changes = false;
    rig.configure();
    assert_eq!(refused(&rig), [1, 0, 0], "no card has this one, and a rejected change is another matter");
    rig.configs[0] = accepts(0);
    rig.configure();
    assert_eq!(refused(&rig), [0, 0, 0]);
}

#[test]
fn no_driver_takes_the_address_of_another_trunk_or_one_that_a_port_has_by_its_frames() {
    let accepts = |id, vlan| security(port(id, vlan), |security| security.mac_changes = true);
    let mut rig = Rig::new(vec![
        accepts(0, "10"),
        port(1, "10"),
        accepts(2, "10"),
        port(3, "20-21"),
        driven(accepts(4, "30-31"), 3),
        port(5, "30-31"),
    ]);
    let from_trunk = |sender, dst, src| rig.route(sender, dst, src, Some(30)).map(|routed| routed.route);
    assert_eq!(from_trunk(5, mac(4), mac(5)), Ok(Route::To(MemberIdx(4))), "it keeps its own");
    assert_eq!(from_trunk(4, mac(5), mac(4)), Ok(Route::To(MemberIdx(5))));
    assert_eq!(from_trunk(4, mac(5), mac(3)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.to(0, mac(1), mac(50)), Ok(Route::To(MemberIdx(1))));
    rig.configs[2] = driven(accepts(2, "10"), 50);
    rig.configure();
    assert_eq!(rig.to(2, mac(1), mac(50)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(0))), "port 0 keeps it");
    assert_eq!(rig.to(0, mac(1), mac(0)), Ok(Route::To(MemberIdx(1))), "and gives it up");
    rig.configure();
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(2))));
    // A worker with an earlier switch writes the address that this port has for other switches.
    rig.ports[2].address.replace(mac(60).into(), mac(2).into());
    assert_eq!(rig.to(2, mac(1), mac(60)), Err(DropReason::ForgedTransmit));
    assert_eq!(rig.to(2, mac(1), mac(50)), Ok(Route::To(MemberIdx(1))));
}

#[test]
fn a_changed_address_survives_a_new_configuration_that_keeps_its_port() {
    let moving = security(port(0, "10"), |security| security.mac_changes = true);
    let mut rig = Rig::new(vec![moving, port(1, "10"), learning(port(2, "10"))]);
    rig.to(0, mac(1), mac(50)).unwrap();
    rig.to(2, mac(1), mac(60)).unwrap();
    rig.configs[1].security.promiscuous = true;
    rig.configs.push(learning(port(3, "10")));
    rig.ports.push(Arc::clone(&rig.ports[1]));
    rig.ports[3] = Arc::new(Port::new(PortId(3), PortKind::Stream, rig.ports[1].counters.clone()));
    rig.configure();
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::To(MemberIdx(0))));
    assert_eq!(rig.to(1, mac(60), mac(1)), Ok(Route::To(MemberIdx(2))));
    rig.configs[0].security.mac_changes = false;
    rig.configs[2].vlan = Vlan::Access(11);
    rig.configure();
    assert_eq!(rig.to(1, mac(50), mac(1)), Ok(Route::Unknown));
    assert_eq!(rig.to(1, mac(0), mac(1)), Ok(Route::To(MemberIdx(0))), "the configured address is back");
    assert_eq!(rig.to(1, mac(60), mac(1)), Ok(Route::Unknown));
    assert_eq!(rig.to(0, mac(1), mac(50)), Err(DropReason::ForgedTransmit));
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
