//! Huge pages, page merging, swapping, and automatic NUMA balancing.

use taut_api::Bytes;
use taut_api::check::{HugePool, MemoryFacts};

use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>) -> MemoryFacts {
    MemoryFacts {
        ksm: tree.knob("sys/kernel/mm/ksm/run"),
        thp: tree.knob("sys/kernel/mm/transparent_hugepage/enabled"),
        thp_defrag: tree.knob("sys/kernel/mm/transparent_hugepage/defrag"),
        pools: pools(tree),
        swap: swap(tree),
        swappiness: tree.knob("proc/sys/vm/swappiness"),
        numa_balancing: tree.knob("proc/sys/kernel/numa_balancing"),
        zone_reclaim: tree.knob("proc/sys/vm/zone_reclaim_mode"),
    }
}

fn pools(tree: Tree<'_>) -> Vec<HugePool> {
    let folder = "sys/kernel/mm/hugepages";
    let pool = |name: String| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        Some(HugePool {
            size: Bytes(kib.checked_mul(1024)?),
            total: tree.number(&format!("{folder}/{name}/nr_hugepages"))?,
            free: tree.number(&format!("{folder}/{name}/free_hugepages"))?,
        })
    };
    let mut pools: Vec<_> = tree.names(folder).into_iter().filter_map(pool).collect();
    pools.sort_by_key(|pool| pool.size.0);
    pools
}

/// Sums up the third column of `/proc/swaps`, in KiB.
fn swap(tree: Tree<'_>) -> Option<Bytes> {
    let size = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let kib: u64 = tree.text("proc/swaps")?.lines().skip(1).filter_map(size).sum();
    kib.checked_mul(1024).map(Bytes)
}
