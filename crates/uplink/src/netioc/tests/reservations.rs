//! Reservations, against whatever others do.

use proptest::prelude::*;

use super::super::{Class, Rules};
use super::bench::{Bench, GBIT, rate, shares};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_reservation_holds_against_200_flooding_ports() {
    let mut bench = Bench::with_turns(GBIT, 16 << 10);
    for _ in 0..200 {
        bench.flood(Class::VirtualMachine, shares(100), 65_560);
    }
    let rules = Rules { reservation: Some(rate(GBIT / 10)), ..shares(1) };
    let port = bench.steady(Class::VirtualMachine, rules, 1538, GBIT / 10);
    bench.run(10 * SECOND);
    let got = bench.rate_of(port, 10 * SECOND) / 1e8;
    assert!((0.99..=1.01).contains(&got), "{got}");
    // Handed over at once, but for what the uplink was handed before: its queue, and one turn of
    // a long frame more.
    assert!(bench.longest[&port] <= 200_000 + 2 * 65_560 * 8, "{} ns", bench.longest[&port]);
}

#[test]
fn a_class_with_a_reservation_divides_it_by_shares() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { reservation: Some(rate(GBIT / 2)), ..shares(1) };
    let now = bench.now;
    bench.scheduler.set_class(Class::Iscsi, rules, now);
    let [one, three] = [25, 75].map(|number| bench.flood(Class::Iscsi, shares(number), 1538));
    let other = bench.flood(Class::Vmotion, shares(100), 1538);
    bench.run(SECOND);
    let [one, three, other] = [one, three, other].map(|port| bench.rate_of(port, SECOND) / 1e6);
    // Half of the uplink, and one part in 51 of what is left.
    let class = 500.0 + 500.0 / 51.0;
    assert!((one + three - class).abs() < 1.0, "{one} + {three}, beside {other}");
    assert!((three / one - 3.0).abs() < 0.01, "{one} and {three}");
}

#[test]
fn shares_divide_what_reservations_leave() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { reservation: Some(rate(GBIT / 2)), ..shares(50) };
    let [reserved, other] = [rules, shares(50)].map(|rules| bench.flood(Class::VirtualMachine, rules, 1538));
    bench.run(SECOND);
    let [reserved, other] = [reserved, other].map(|port| bench.rate_of(port, SECOND) / 1e6);
    assert!((reserved - 750.0).abs() < 1.0 && (other - 250.0).abs() < 1.0, "{reserved} and {other}");
}

#[test]
fn an_unused_reservation_goes_to_others() {
    let mut bench = Bench::new(GBIT);
    let rules = Rules { reservation: Some(rate(700_000_000)), ..shares(50) };
    bench.steady(Class::VirtualMachine, rules, 1538, 10_000_000);
    let other = bench.flood(Class::VirtualMachine, shares(1), 1538);
    bench.run(SECOND);
    let got = bench.rate_of(other, SECOND) / 1e6;
    assert!((got - 990.0).abs() < 1.5, "{got}");
}

#[test]
fn reservations_beyond_the_speed_are_served_alike_and_forgotten_later() {
    let mut bench = Bench::new(10 * GBIT);
    let rules = Rules { reservation: Some(rate(600_000_000)), ..shares(50) };
    let [one, two] = [0, 1].map(|_| bench.flood(Class::VirtualMachine, rules, 1538));
    let other = bench.flood(Class::Vmotion, shares(50), 1538);
    // The link has come up again at a tenth of its speed.
    bench.scheduler.set_speed(rate(GBIT), 1);
    bench.run(SECOND);
    let [one, two] = [one, two].map(|port| bench.rate_of(port, SECOND) / 1e6);
    assert!((one - 500.0).abs() < 2.0 && (two - 500.0).abs() < 2.0, "{one} and {two}");
    bench.scheduler.set_speed(rate(10 * GBIT), 1);
    let before = bench.sent[&other];
    bench.run(SECOND);
    // The rest of 10 Gbit/s, in parts of 1 : 2, but for arrears of 100 ms.
    let got = (bench.sent[&other] - before) as f64 * 8e-9;
    assert!((2.85..=2.94).contains(&got), "{got}");
}

#[test]
fn reservations_of_ports_do_not_use_up_that_of_their_class_for_later() {
    let mut bench = Bench::new(GBIT);
    let now = bench.now;
    let class = Rules { reservation: Some(rate(GBIT / 10)), ..shares(1) };
    bench.scheduler.set_class(Class::Nfs, class, now);
    let large = Rules { reservation: Some(rate(GBIT / 2)), ..shares(50) };
    let first = bench.flood(Class::Nfs, large, 1538);
    bench.flood(Class::VirtualMachine, shares(100), 1538);
    bench.run(SECOND);
    bench.silence(first);
    let second = bench.flood(Class::Nfs, shares(50), 1538);
    bench.run(SECOND);
    let got = bench.rate_of(second, SECOND) / 1e6;
    // A tenth, but for the first 100 ms, and one part in 101 of what is left.
    assert!((96.0..=110.0).contains(&got), "{got}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Three quarters of an uplink, reserved in any parts, are received by ports that ask for them.
    #[test]
    fn all_reservations_hold_at_once(
        parts in prop::collection::vec((1..100_u64, 84..1600_u32, 1..=100_u8), 1..12),
        floods in 1..20_usize,
    ) {
        let mut bench = Bench::with_turns(10 * GBIT, 4096);
        let sum: u64 = parts.iter().map(|(part, ..)| part).sum();
        let ports: Vec<_> = parts
            .iter()
            .map(|&(part, frame, number)| {
                let bits = 7_500_000_000 * part / sum;
                let rules = Rules { reservation: Some(rate(bits)), ..shares(number) };
                (bench.steady(Class::VirtualMachine, rules, frame, bits), bits, frame)
            })
            .collect();
        for _ in 0..floods {
            bench.flood(Class::Vmotion, shares(100), 1538);
        }
        let time = SECOND / 20;
        bench.run(time);
        for (port, bits, frame) in ports {
            let wanted = bits as f64 / 8e9 * time as f64;
            let sent = bench.sent.get(&port).copied().unwrap_or(0) as f64;
            // Frames of the last 200 µs may wait.
            let late = bits as f64 / 8e9 * 250_000.0 + 2.0 * f64::from(frame);
            prop_assert!(sent >= wanted - late, "{} of {} bytes", sent, wanted);
        }
    }
}
