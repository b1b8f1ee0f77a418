//! Ports that come and go, in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{AHEAD, Class, Next, Port, Rules, Scheduler};
use super::bench::{GBIT, rate, shares};

#[derive(Debug, Clone)]
enum Act {
    Add(usize, Rules),
    Remove(usize),
    Set(usize, Rules),
    SetClass(usize, Rules),
    Ready(usize),
    Send(u32, bool),
    Pass(u64),
}

fn rules() -> impl Strategy<Value = Rules> {
    let rates = || prop::option::of((1_000..20_000_000_000_u64).prop_map(rate));
    (1..=100_u8, rates(), rates()).prop_map(|(number, limit, reservation)| Rules {
        limit,
        reservation,
        ..shares(number)
    })
}

fn act() -> impl Strategy<Value = Act> {
    let index = || 0..64_usize;
    prop_oneof![
        (index(), rules()).prop_map(|(at, rules)| Act::Add(at, rules)),
        index().prop_map(Act::Remove),
        (index(), rules()).prop_map(|(at, rules)| Act::Set(at, rules)),
        (index(), rules()).prop_map(|(at, rules)| Act::SetClass(at, rules)),
        index().prop_map(Act::Ready),
        (0..70_000_u32, any::<bool>()).prop_map(|(bytes, more)| Act::Send(bytes, more)),
        prop_oneof![0..1000_u64, 0..10_000_000_u64, 0..100_000_000_000_u64].prop_map(Act::Pass),
    ]
}

proptest! {
    /// Only ports with something to send have a turn, some port has one or it is said when, and the
    /// uplink is never handed more than the bound ahead and a turn.
    #[test]
    fn turns_are_given_to_ports_that_have_something(acts in prop::collection::vec(act(), 1..300)) {
        let mut scheduler = Scheduler::new(rate(GBIT), 1);
        let mut ports: BTreeMap<Port, bool> = BTreeMap::new();
        let mut now = 1;
        let mut busy_until = 0;
        for act in acts {
            let at = |at: usize| ports.keys().nth(at % ports.len().max(1)).copied();
            match act {
                Act::Add(class, rules) => {
                    let port = scheduler.add_port(Class::ALL[class % Class::ALL.len()], rules);
                    prop_assert_eq!(ports.insert(port, false), None, "two ports with one number");
                }
                Act::Remove(index) => if let Some(port) = at(index) {
                    scheduler.remove_port(port, now);
                    ports.remove(&port);
                }
                Act::Set(index, rules) => if let Some(port) = at(index) {
                    scheduler.set_port(port, rules, now);
                }
                Act::SetClass(class, rules) => {
                    scheduler.set_class(Class::ALL[class % Class::ALL.len()], rules, now);
                }
                Act::Ready(index) => if let Some(port) = at(index) {
                    scheduler.ready(port, now);
                    ports.insert(port, true);
                }
                Act::Pass(ns) => now += ns,
                Act::Send(bytes, more) => match scheduler.next(now) {
                    Next::Send(turn) => {
                        prop_assert_eq!(ports.get(&turn.port), Some(&true));
                        prop_assert!(busy_until <= now + AHEAD, "{} ns ahead", busy_until - now);
                        busy_until = now.max(busy_until) + 8 * u64::from(bytes);
                        scheduler.sent(turn, bytes, more, now);
                        ports.insert(turn.port, more);
                    }
                    Next::Wait(at) => {
                        prop_assert!(at > now);
                        prop_assert!(ports.values().any(|ready| *ready));
                    }
                    Next::Idle => prop_assert!(!ports.values().any(|ready| *ready)),
                }
            }
        }
        // Whatever the limits, everybody has a turn in the end.
        for _ in 0..100_000 {
            match scheduler.next(now) {
                Next::Send(turn) => {
                    scheduler.sent(turn, 84, false, now);
                    ports.insert(turn.port, false);
                }
                Next::Wait(at) => now = at,
                Next::Idle => break,
            }
        }
        prop_assert!(!ports.values().any(|ready| *ready), "a port is forgotten");
    }
}
