//! Memory near its pCPUs (S3 "NUMA").

use taut_api::check::{HostFacts, Knob};

use super::knobs::{any, at_most};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const NODES: Item = Item {
    id: "numa.nodes",
    what: "NUMA nodes",
    why: "Where the firmware interleaves memory over the sockets, nothing can be placed near its pCPUs.",
    effect: "VMs can have memory that is near; another socket's takes half as long again and more",
    takes_effect: TakesEffect::Bios,
};
const BALANCING: Item = Item {
    id: "numa.balancing",
    what: "automatic NUMA balancing",
    why: "It takes pages away to see who uses them: each look is a page fault in the guest's time. Placed VMs need none.",
    effect: "no such faults; VMs without a placement may stay with far memory",
    takes_effect: TakesEffect::Live,
};
const RECLAIM: Item = Item {
    id: "numa.zone-reclaim",
    what: "reclaim within a node",
    why: "A node that is full throws pages away although another has free ones, while the guest waits.",
    effect: "no such waits; some memory is farther away",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    vec![nodes(facts), balancing(facts, profile), reclaim(facts.memory.zone_reclaim.as_ref())]
}

fn nodes(facts: &HostFacts) -> Line {
    let (nodes, packages) = (facts.cpu.nodes, facts.cpu.packages);
    let found = format!("{nodes} on {packages} sockets");
    let wanted = "at least one a socket";
    // A hypervisor invents sockets.
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
