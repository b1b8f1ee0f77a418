//! Memory pages: huge pages, merged pages, swap.

use taut_api::check::{HostFacts, MemoryFacts};

use super::knobs::{any, as_slice, at_most, one_of};
use super::line::{Item, Line, Profile, TakesEffect, Verdict};

const POOLS: Item = Item {
    id: "memory.huge-pages",
    what: "pools of huge pages",
    why: "A guest on huge pages has far fewer TLB misses, and its memory can be neither split nor \
           swapped out.",
    effect: "memory for VMs only; set `vm.nr_hugepages`, best at boot while memory is not \
           fragmented",
    takes_effect: TakesEffect::HostBoot,
};
const THP: Item = Item {
    id: "memory.thp",
    what: "transparent huge pages",
    why: "QEMU asks for huge pages for guest memory. If every process gets them, the kernel \
           merges and splits pages at any time.",
    effect: "guests keep their huge pages, and other processes cause no compaction",
    takes_effect: TakesEffect::Live,
};
const DEFRAG: Item = Item {
    id: "memory.thp-defrag",
    what: "compaction at a page fault",
    why: "A thread that touches new memory waits while the kernel moves pages to make a huge one.",
    effect: "page faults are short; memory becomes huge later, in the background",
    takes_effect: TakesEffect::Live,
};
const KSM: Item = Item {
    id: "memory.ksm",
    what: "merging of equal pages (KSM)",
    why: "The scan takes CPU time, the first write to a merged page waits for a copy, and \
           neighbours can find out which pages are merged.",
    effect: "no such waits; more memory in use",
    takes_effect: TakesEffect::Live,
};
const SWAP: Item = Item {
    id: "memory.swap",
    what: "swap space",
    why: "A page that was swapped out takes milliseconds to come back. Memory that is not \
           reserved can be swapped out.",
    effect: "memory runs out at a known limit instead of slowly",
    takes_effect: TakesEffect::HostBoot,
};
const SWAPPINESS: Item = Item {
    id: "memory.swappiness",
    what: "swappiness",
    why: "Guest memory is anonymous memory. A high value swaps it out to keep cached files.",
    effect: "guest memory stays as long as there are cached files to drop",
    takes_effect: TakesEffect::Live,
};

pub(super) fn lines(facts: &HostFacts, profile: Profile) -> Vec<Line> {
    let memory = &facts.memory;
    vec![
        pools(memory, profile),
        thp(memory, profile),
        defrag(memory, profile),
        ksm(memory, profile),
        swap(memory, profile),
        swappiness(memory, profile),
    ]
}

pub(super) fn pools_found(memory: &MemoryFacts) -> Option<String> {
    let filled = memory.pools.iter().filter(|pool| pool.total > 0);
    let parts: Vec<_> =
        filled.map(|pool| format!("{} x {}, {} free", pool.total, pool.size, pool.free)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn pools(memory: &MemoryFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Dense { "any" } else { "enough for the important VMs" };
    match pools_found(memory) {
        Some(found) => POOLS.line(Verdict::Ok, found, wanted),
        None if memory.pools.is_empty() => POOLS.unknown("the kernel has none", wanted),
        None if profile == Profile::Dense => POOLS.line(Verdict::Ok, "empty", wanted),
        None => POOLS.line(Verdict::Warn, "empty", wanted),
    }
}

fn thp(memory: &MemoryFacts, profile: Profile) -> Line {
    let (wanted, miss): (&[&str], _) = match profile {
        Profile::Latency => (&["madvise", "never"], Verdict::Bad),
        Profile::Throughput => (&["madvise", "always"], Verdict::Warn),
        Profile::Dense => (&["madvise", "always", "never"], Verdict::Warn),
    };
    one_of(THP, as_slice(memory.thp.as_ref()), wanted, miss, "the kernel has none")
}

fn defrag(memory: &MemoryFacts, profile: Profile) -> Line {
    let wanted: &[&str] = match profile {
        Profile::Latency => &["defer", "never"],
        Profile::Throughput | Profile::Dense => &["madvise", "defer+madvise", "defer", "never"],
    };
    one_of(DEFRAG, as_slice(memory.thp_defrag.as_ref()), wanted, Verdict::Warn, "the kernel has none")
}

fn ksm(memory: &MemoryFacts, profile: Profile) -> Line {
    match (profile, &memory.ksm) {
        (_, None) => any(KSM, None, "0"),
        (Profile::Dense, knob) => any(KSM, knob.as_ref(), "any"),
        // 0 stops the scan and keeps merged pages. 2 would split all of them now, at a cost.
        (Profile::Latency, knob) => at_most(KSM, knob.as_ref(), 0, Verdict::Bad, ""),
        (Profile::Throughput, knob) => at_most(KSM, knob.as_ref(), 0, Verdict::Warn, ""),
    }
}

fn swap(memory: &MemoryFacts, profile: Profile) -> Line {
    let wanted = if profile == Profile::Latency { "none" } else { "any" };
    match memory.swap {
        None => SWAP.unknown("cannot be read", wanted),
        Some(size) if size.0 == 0 => SWAP.line(Verdict::Ok, "none", wanted),
        Some(size) => {
            let verdict = if profile == Profile::Latency { Verdict::Warn } else { Verdict::Ok };
            SWAP.line(verdict, format!("{} MiB", size.as_mib()), wanted)
        }
    }
}

fn swappiness(memory: &MemoryFacts, profile: Profile) -> Line {
    let knob = memory.swappiness.as_ref();
    if memory.swap.is_some_and(|size| size.0 == 0) {
        return any(SWAPPINESS, knob, "any: there is no swap");
    }
    let most = match profile {
        Profile::Latency => 1,
        Profile::Throughput => 10,
        Profile::Dense => 60,
    };
    at_most(SWAPPINESS, knob, most, Verdict::Warn, "cannot be read")
}
