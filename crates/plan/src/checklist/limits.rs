//! Limits of the processes of VMs, which control groups keep.

use taut_api::check::HostFacts;

use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const MEMORY: Item = Item {
    id: "limits.memory",
    what: "memory limit of each VM's process",
    why: "A QEMU that is faulty or taken over can otherwise fill the host's memory.",
    effect: "the kernel ends only that VM; boot with cgroup_enable=memory",
    takes_effect: TakesEffect::HostBoot,
};
const SWAP: Item = Item {
    id: "limits.swap",
    what: "swap limit of each VM's process",
    why: "What a process may not have in memory it could otherwise have in swap.",
    effect: "the limit of memory is one of swap, too; boot with swapaccount=1",
    takes_effect: TakesEffect::HostBoot,
};
const PROCESSES: Item = Item {
    id: "limits.processes",
    what: "process limit of each VM",
    why: "The number of processes of a host is limited, and each takes memory of the kernel. \
           Without a control group only the limit of the VM's user holds, and no event tells of it.",
    effect: "an event names the VM; mount the controller pids (CONFIG_CGROUP_PIDS)",
    takes_effect: TakesEffect::HostBoot,
};

pub(super) fn lines(facts: &HostFacts, _: Profile) -> Vec<Line> {
    let no_swap = facts.memory.swap.is_some_and(|size| size.0 == 0);
    let line = |item: Item, is_found: Option<bool>| {
        let wanted = "can be set";
        match is_found {
            None => item.unknown("no control groups", wanted),
            Some(true) => item.line(Verdict::Ok, wanted, wanted),
            Some(false) => item.line(Verdict::Warn, "cannot be set", wanted),
        }
    };
    vec![
        line(MEMORY, facts.limits.map(|found| found.memory)),
        line(SWAP, facts.limits.map(|found| found.swap || no_swap)),
        line(PROCESSES, facts.limits.map(|found| found.processes)),
    ]
}

#[cfg(test)]
mod tests {
    use taut_api::Bytes;
    use taut_api::check::{LimitFacts, MemoryFacts};

    use super::*;

    fn verdicts(limits: Option<LimitFacts>, swap: u64) -> Vec<Verdict> {
        let memory = MemoryFacts { swap: Some(Bytes::mib(swap)), ..MemoryFacts::default() };
        let facts = HostFacts { limits, memory, ..HostFacts::default() };
        lines(&facts, Profile::Latency).into_iter().map(|line| line.verdict).collect()
    }

    #[test]
    fn limits_that_cannot_be_set_are_told() {
        use Verdict::{Ok, Unknown, Warn};
        let found = LimitFacts { memory: true, swap: false, processes: true };
        assert_eq!(verdicts(Some(found), 512), [Ok, Warn, Ok]);
        assert_eq!(verdicts(Some(found), 0), [Ok, Ok, Ok], "there is no swap to limit");
        assert_eq!(verdicts(Some(LimitFacts::default()), 512), [Warn, Warn, Warn]);
        assert_eq!(verdicts(None, 512), [Unknown, Unknown, Unknown]);
    }
}
