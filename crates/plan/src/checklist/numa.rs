//! NUMA: memory near its pCPUs.

use taut_api::check::{HostFacts, Knob};

use super::knobs::{any, at_most};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const NODES: Item = Item {
    id: "numa.nodes",
    what: "NUMA nodes",
    why: "If the firmware interleaves memory over the sockets, no memory is near any pCPU.",
    effect: "VMs can have local memory; access to another socket's memory takes half as long \
           again or more",
    takes_effect: TakesEffect::Bios,
};
const BALANCING: Item = Item {
    id: "numa.balancing",
    what: "automatic NUMA balancing",
    why: "The kernel unmaps pages to see which node uses them. Each look costs the guest a page \
           fault, and placed VMs do not need it.",
    effect: "no such faults; VMs without a placement may keep remote memory",
    takes_effect: TakesEffect::Live,
};
const RECLAIM: Item = Item {
    id: "numa.zone-reclaim",
    what: "reclaim within a node",
    why: "A node that is full discards pages although another node has free ones, and the guest \
           waits meanwhile.",
    effect: "no such waits; some memory is on another node",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    vec![nodes(facts), balancing(facts, profile), reclaim(facts.memory.zone_reclaim.as_ref())]
}

fn nodes(facts: &HostFacts) -> Line {
    let (nodes, packages) = (facts.cpu.nodes, facts.cpu.packages);
    let found = format!("{nodes} on {packages} sockets");
    let wanted = "at least one per socket";
    // The sockets of a VM are virtual, and say nothing about memory.
    let interleaved = nodes < packages && !facts.cpu.in_vm;
    NODES.line(if interleaved { Verdict::Bad } else { Verdict::Ok }, found, wanted)
}

fn balancing(facts: &HostFacts, profile: Profile) -> Line {
    let knob = facts.memory.numa_balancing.as_ref();
    if facts.cpu.nodes < 2 || profile != Profile::Latency {
        return any(BALANCING, knob, "any");
    }
    at_most(BALANCING, knob, 0, Verdict::Bad, "the kernel has none")
}

fn reclaim(knob: Option<&Knob>) -> Line {
    if knob.is_none() {
        return any(RECLAIM, knob, "0");
    }
    at_most(RECLAIM, knob, 0, Verdict::Warn, "")
}
