//! Tests of ports and uplinks: frames to and from the outside.

use super::*;

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
