//! Limits of ports and classes.

use super::super::{Class, Next, Rules, Scheduler};
use super::bench::{Bench, GBIT, rate, shares};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_limit_holds_on_an_idle_uplink() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { limit: Some(rate(GBIT / 10)), ..shares(100) };
    let port = bench.flood(Class::VirtualMachine, rules, 1538);
    bench.run(SECOND);
    let sent = bench.sent[&port];
    assert!(sent.abs_diff(SECOND / 80) <= 1538, "{sent}");
}

#[test]
fn a_limited_class_leaves_the_rest_to_others() {
    let mut bench = Bench::new(GBIT);
    let now = bench.now;
    bench.scheduler.set_class(Class::Vmotion, Rules { limit: Some(rate(GBIT / 4)), ..shares(100) }, now);
    let moves: Vec<_> = (0..4).map(|_| bench.flood(Class::Vmotion, shares(50), 1538)).collect();
    let vm = bench.flood(Class::VirtualMachine, shares(50), 1538);
    bench.run(SECOND);
    let of_moves: u64 = moves.iter().map(|port| bench.sent[port]).sum();
    assert!(of_moves.abs_diff(SECOND / 32) <= 2 * 1538, "{of_moves}");
    assert!(bench.sent[&vm].abs_diff(3 * SECOND / 32) <= 25_000 + 2 * 1538, "{}", bench.sent[&vm]);
}

#[test]
fn a_class_limit_holds_for_reservations_of_its_ports() {
    let mut bench = Bench::new(GBIT);
    let now = bench.now;
    bench.scheduler.set_class(Class::Nfs, Rules { limit: Some(rate(GBIT / 10)), ..shares(100) }, now);
    let rules = Rules { reservation: Some(rate(GBIT / 2)), ..shares(50) };
    let port = bench.flood(Class::Nfs, rules, 1538);
    let other = bench.flood(Class::VirtualMachine, shares(50), 1538);
    bench.run(SECOND);
    assert!(bench.sent[&port].abs_diff(SECOND / 80) <= 2 * 1538, "{}", bench.sent[&port]);
    assert!(bench.rate_of(other, SECOND) > 8.9e8);
}

#[test]
fn a_limit_below_the_reservation_wins() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { limit: Some(rate(GBIT / 10)), reservation: Some(rate(GBIT / 2)), ..shares(50) };
    let port = bench.flood(Class::VirtualMachine, rules, 1538);
    bench.flood(Class::VirtualMachine, shares(50), 1538);
    bench.run(SECOND);
    assert!(bench.sent[&port].abs_diff(SECOND / 80) <= 2 * 1538, "{}", bench.sent[&port]);
}

#[test]
fn a_limit_is_reached_beside_long_frames_of_others() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { limit: Some(rate(300_000_000)), ..shares(100) };
    let port = bench.flood(Class::VirtualMachine, rules, 1538);
    bench.flood(Class::VirtualMachine, shares(10), 9042);
    bench.run(SECOND);
    let got = bench.rate_of(port, SECOND) / 1e6;
    assert!((298.0..=300.5).contains(&got), "{got}");
}

#[test]
fn a_reservation_below_the_limit_holds_beside_the_longest_frames() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { limit: Some(rate(400_000_000)), reservation: Some(rate(300_000_000)), ..shares(1) };
    let port = bench.flood(Class::VirtualMachine, rules, 1538);
    bench.flood(Class::VirtualMachine, shares(100), 65_560);
    bench.run(SECOND);
    let got = bench.rate_of(port, SECOND) / 1e6;
    assert!((298.0..=400.5).contains(&got), "{got}");
}

#[test]
fn a_limit_that_is_lifted_gives_no_share_of_the_time_before() {
    for of_class in [false, true] {
        let mut bench = Bench::new(GBIT);
        let slow = Rules { limit: Some(rate(1_000_000)), ..shares(50) };
        let (port_rules, class_rules) = if of_class { (shares(50), slow) } else { (slow, shares(50)) };
        let now = bench.now;
        bench.scheduler.set_class(Class::Nfs, class_rules, now);
        bench.scheduler.set_class(Class::Vmotion, shares(50), now);
        let port = bench.flood(Class::Nfs, port_rules, 65_560);
        let other = bench.flood(Class::Vmotion, shares(50), 1538);
        bench.run(SECOND);
        let now = bench.now;
        bench.scheduler.set_class(Class::Nfs, shares(50), now);
        bench.scheduler.set_port(port, shares(50), now);
        let before = bench.sent.clone();
        bench.run(SECOND);
        let [port, other] = [port, other].map(|port| bench.sent[&port] - before[&port]);
        assert!(port.abs_diff(other) <= 3 * 65_560, "{port} and {other}");
    }
}

#[test]
fn a_higher_rate_does_not_wait_for_what_the_former_one_allowed() {
    let mut bench = Bench::new(GBIT);
    let slow = Rules { limit: Some(rate(1000)), ..shares(50) };
    let port = bench.flood(Class::VirtualMachine, slow, 65_560);
    bench.run(SECOND);
    let now = bench.now;
    bench.scheduler.set_port(port, Rules { limit: Some(rate(GBIT / 2)), ..shares(50) }, now);
    let before = bench.sent[&port];
    bench.run(SECOND);
    assert!((bench.sent[&port] - before).abs_diff(SECOND / 16) <= 2 * 65_560);
}

#[test]
fn rules_that_change_hold_at_once() {
    let mut bench = Bench::new(GBIT);
    let slow = Rules { limit: Some(rate(10_000_000)), ..shares(50) };
    let port = bench.flood(Class::VirtualMachine, slow, 1538);
    bench.run(SECOND);
    let now = bench.now;
    bench.scheduler.set_port(port, shares(50), now);
    let before = bench.sent[&port];
    bench.run(SECOND);
    assert!((bench.sent[&port] - before).abs_diff(SECOND / 8) <= 25_000 + 1538);
    let now = bench.now;
    bench.scheduler.set_port(port, slow, now);
    let before = bench.sent[&port];
    bench.run(SECOND);
    assert!(bench.sent[&port] - before <= 10_000_000 / 8 + 2 * 1538);
}

#[test]
fn it_waits_until_the_limit_is_reached() {
    let mut scheduler = Scheduler::new(rate(GBIT), 1);
    let rules = Rules { limit: Some(rate(8_000_000)), ..shares(50) };
    let port = scheduler.add_port(Class::VirtualMachine, rules);
    assert_eq!(scheduler.next(5), Next::Idle);
    scheduler.ready(port, SECOND);
    let Next::Send(turn) = scheduler.next(SECOND) else { panic!("its turn") };
    assert_eq!(scheduler.next(SECOND), Next::Idle, "it has its turn");
    scheduler.sent(turn, 100, true, SECOND);
    // A byte takes a microsecond.
    assert_eq!(scheduler.next(SECOND), Next::Wait(SECOND + 100_000));
    assert!(matches!(scheduler.next(SECOND + 100_000), Next::Send(_)));
}
