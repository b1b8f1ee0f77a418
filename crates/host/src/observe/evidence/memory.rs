//! `/proc/PID/numa_maps`: the NUMA nodes of a guest's memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// The part of a guest's memory on one NUMA node of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeMemory {
    /// Node number.
    pub node: u32,
    /// Bytes on the node that the guest, or QEMU for it, has touched so far.
    pub bytes: u64,
}

/// Returns the guest's memory of process `pid` by node, ascending: its mappings of memfd files,
/// which the data plane requires of QEMU and microguests. Returns nothing if the process has none,
/// has ended or may not be inspected, or if the kernel has no NUMA support.
pub fn memory(root: &Path, pid: u32) -> Vec<NodeMemory> {
    let text = fs::read_to_string(root.join(format!("proc/{pid}/numa_maps"))).unwrap_or_default();
    let mut nodes = BTreeMap::<_, u64>::new();
    for (node, bytes) in text.lines().filter_map(mapping).flatten() {
        let sum = nodes.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
    nodes.into_iter().map(|(node, bytes)| NodeMemory { node, bytes }).collect()
}

/// Parses the bytes by node of one mapping, such as
/// `7f… bind:0 file=/memfd:NAME dirty=9 N0=5 N1=4 kernelpagesize_kB=4`. Returns `None` for another
/// file.
fn mapping(line: &str) -> Option<Vec<(u32, u64)>> {
    // Spaces in a name are written as \040.
    let words: Vec<_> = line.split(' ').collect();
    words.iter().find(|word| word.starts_with("file=/memfd:"))?;
    let size = words.iter().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok())?;
    let pages = |word: &&str| {
        let (node, count) = word.strip_prefix('N')?.split_once('=')?;
        let bytes = count.parse::<u64>().ok()?.checked_mul(size)?.checked_mul(1024)?;
        Some((node.parse().ok()?, bytes))
    };
    Some(words.iter().filter_map(pages).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_pages_are_counted_by_node_and_size() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let text = "\
55f24fb4b000 default file=/usr/bin/qemu-system-x86_64 mapped=2 N0=2 kernelpagesize_kB=4
7f0000000000 bind:0 file=/memfd:memory-backend-memfd\\040(deleted) dirty=12 mapmax=2 active=0 N0=7 N1=5 kernelpagesize_kB=4
7f1000000000 bind:1 file=/memfd:memory-backend-memfd\\040(deleted) huge dirty=3 N1=3 kernelpagesize_kB=2048
7f2000000000 default file=/memfd:untouched\\040(deleted)
7f3000000000 default file=/memfd:odd\\040(deleted) N0=x Nx=1 N4=99999999999999999999 N5=18446744073709551615 kernelpagesize_kB=4
7f4000000000 default anon=9 dirty=9 N0=9 kernelpagesize_kB=4
";
        fs::write(root.path().join("proc/7/numa_maps"), text).unwrap();
        let on = |node, bytes| NodeMemory { node, bytes };
        assert_eq!(memory(root.path(), 7), [on(0, 7 << 12), on(1, (5 << 12) + (3 << 21))]);
        assert_eq!(memory(root.path(), 8), []);
    }
}
