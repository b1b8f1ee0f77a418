//! Tests of the address that a port has: by its frames, or as the guest's driver has set it.

use super::*;

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
