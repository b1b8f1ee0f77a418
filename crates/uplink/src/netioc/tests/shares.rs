//! Shares between classes, and between the ports of a class.

use proptest::prelude::*;

use super::super::{Class, Next, Scheduler};
use super::bench::{Bench, GBIT, capacity, rate, shares};

const SECOND: u64 = 1_000_000_000;

#[test]
fn ports_of_a_class_share_exactly_to_a_frame() {
    let mut bench = Bench::new(GBIT);
    let frame = 1538;
    let ports = [25, 50, 100].map(|number| bench.flood(Class::VirtualMachine, shares(number), frame));
    bench.run(SECOND);
    let total = bench.total();
    assert!(total.abs_diff(capacity(GBIT, SECOND)) <= u64::from(frame), "the uplink is full: {total}");
    for (port, part) in ports.into_iter().zip([1, 2, 4]) {
        let wanted = total * part / 7;
        let sent = bench.sent[&port];
        assert!(sent.abs_diff(wanted) <= 2 * u64::from(frame), "{sent} of {wanted} bytes");
    }
}

#[test]
fn short_and_long_frames_share_alike() {
    let mut bench = Bench::with_turns(10 * GBIT, 16 << 10);
    let short = bench.flood(Class::VirtualMachine, shares(50), 84);
    let long = bench.flood(Class::VirtualMachine, shares(50), 65_536 + 24);
    bench.run(SECOND / 10);
    let sent = [short, long].map(|port| bench.sent[&port]);
    assert!(sent[0].abs_diff(sent[1]) <= 2 * 65_560, "{sent:?}");
}

#[test]
fn classes_share_whatever_number_of_ports_they_have() {
    let mut bench = Bench::new(GBIT);
    let vms: Vec<_> = (0..200).map(|_| bench.flood(Class::VirtualMachine, shares(50), 1538)).collect();
    let nfs = bench.flood(Class::Nfs, shares(50), 1538);
    bench.run(SECOND);
    let of_vms: u64 = vms.iter().map(|port| bench.sent[port]).sum();
    // High and normal shares: 2 : 1.
    assert!(of_vms.abs_diff(2 * bench.sent[&nfs]) <= 4 * 1538, "{of_vms}");
    let least = vms.iter().map(|port| bench.sent[port]).min().unwrap();
    let most = vms.iter().map(|port| bench.sent[port]).max().unwrap();
    assert!(most - least <= 2 * 1538, "{least} to {most}");
}

#[test]
fn a_port_that_was_idle_saves_nothing_up() {
    let mut bench = Bench::new(GBIT);
    let busy = bench.flood(Class::VirtualMachine, shares(50), 1538);
    bench.run(SECOND);
    let before = bench.sent[&busy];
    let late = bench.flood(Class::VirtualMachine, shares(50), 1538);
    bench.run(SECOND);
    let sent = [bench.sent[&busy] - before, bench.sent[&late]];
    assert!(sent[0].abs_diff(sent[1]) <= 2 * 1538, "{sent:?}");
}

#[test]
fn what_a_port_has_sent_alone_is_not_held_against_it() {
    let mut scheduler = Scheduler::new(rate(GBIT), 1);
    let ports = [1, 100].map(|number| scheduler.add_port(Class::VirtualMachine, shares(number)));
    scheduler.ready(ports[0], 0);
    let Next::Send(turn) = scheduler.next(0) else { panic!("its turn") };
    scheduler.sent(turn, 65_560, false, 0);
    scheduler.ready(ports[1], SECOND);
    scheduler.ready(ports[0], SECOND);
    let mut now = SECOND;
    let mut before = 0;
    loop {
        match scheduler.next(now) {
            Next::Send(turn) if turn.port == ports[0] => break,
            Next::Send(turn) => scheduler.sent(turn, 1538, true, now),
            Next::Wait(at) => now = at,
            Next::Idle => panic!("both have frames"),
        }
        before += 1;
    }
    assert!(before <= 3, "{before} frames of the other port come first");
}

#[test]
fn a_port_that_becomes_ready_during_its_turn_has_another_one() {
    let mut scheduler = Scheduler::new(rate(GBIT), 1);
    let port = scheduler.add_port(Class::Nfs, shares(50));
    scheduler.ready(port, 0);
    let Next::Send(turn) = scheduler.next(0) else { panic!("its turn") };
    scheduler.ready(port, 0);
    scheduler.sent(turn, 84, false, 0);
    let Next::Send(turn) = scheduler.next(0) else { panic!("its turn") };
    scheduler.sent(turn, 84, false, 0);
    assert_eq!(scheduler.next(0), Next::Idle);
}

#[test]
fn a_port_that_is_removed_twice_frees_one_number() {
    let mut scheduler = Scheduler::new(rate(GBIT), 1);
    let port = scheduler.add_port(Class::Nfs, shares(50));
    scheduler.remove_port(port, 0);
    scheduler.remove_port(port, 0);
    let ports = [0, 1].map(|_| scheduler.add_port(Class::Nfs, shares(50)));
    assert_ne!(ports[0], ports[1]);
}

#[test]
fn what_a_silent_port_leaves_goes_to_the_others() {
    let mut bench = Bench::new(GBIT);
    let [stays, goes] = [50, 100].map(|number| bench.flood(Class::VirtualMachine, shares(number), 1538));
    bench.run(SECOND);
    bench.silence(goes);
    let before = bench.sent[&stays];
    bench.run(SECOND);
    assert!((bench.sent[&stays] - before).abs_diff(SECOND / 8) <= 2 * 1538);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Each of several flooding ports is within a turn and a bucket of its ideal share at the end.
    #[test]
    fn shares_hold_for_all_numbers(
        numbers in prop::collection::vec((1..=100_u8, 84..1600_u32), 1..20),
        speed in 1..40_u64,
    ) {
        let mut bench = Bench::new(speed * GBIT);
        let ports: Vec<_> = numbers
            .iter()
            .map(|&(number, frame)| (bench.flood(Class::Vmotion, shares(number), frame), number, frame))
            .collect();
        bench.run(SECOND / 50);
        let sum: u64 = numbers.iter().map(|(number, _)| u64::from(*number)).sum();
        let total = bench.total();
        for (port, number, frame) in ports {
            let wanted = total * u64::from(number) / sum;
            let sent = bench.sent.get(&port).copied().unwrap_or(0);
            // A frame of its own and one of another, and a bucket: 16 bytes of each share.
            let room = u64::from(frame) + 1600 + 2 * 16 * u64::from(number);
            prop_assert!(sent.abs_diff(wanted) <= room, "{} of {} bytes, {} shares", sent, wanted, number);
        }
    }
}
