//! Daemons that move interrupts.

use taut_api::check::HostFacts;

use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const BALANCE: Item = Item {
    id: "irq.irqbalance",
    what: "irqbalance",
    why: "irqbalance moves interrupts back onto exclusive pCPUs.",
    effect: "interrupts stay where taut puts them (`systemctl stop irqbalance`, or ban these \
           pCPUs in its settings)",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    vec![balance(facts, profile)]
}

fn balance(facts: &HostFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "not running" } else { "any" };
    match (facts.kernel.irqbalance, profile) {
        (None, _) => BALANCE.unknown("no processes visible", wanted),
        (Some(true), Profile::Latency) => BALANCE.line(Verdict::Warn, "running", wanted),
        (Some(true), _) => BALANCE.line(Verdict::Ok, "running", wanted),
        (Some(false), _) => BALANCE.line(Verdict::Ok, "not running", wanted),
    }
}
