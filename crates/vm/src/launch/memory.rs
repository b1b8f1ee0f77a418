//! A guest's memory: its pages, the host's NUMA nodes that it is on, and the NUMA nodes that the
//! guest sees (LS-5).

use serde::{Deserialize, Serialize};
use taut_api::Bytes;
use taut_api::placement::PlacementSpec;
use taut_api::vm::VmSpec;

use super::{Tuning, queue_pairs};

/// Settings of a VM's memory that are decided when its process starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryTuning {
    /// True if the memory consists of huge pages of 2 MiB.
    pub huge: bool,
    /// Number of NUMA nodes that the guest sees. With 0 and 1 it sees no NUMA.
    pub virtual_nodes: u8,
    /// For each node of the guest, a mask of the host's nodes from which its memory comes as long
    /// as they have room; 0 means any node.
    pub host_nodes: [u64; PlacementSpec::MOST_NODES as usize],
}

/// Memory is divided in units of huge pages, in bytes.
const STEP: u64 = Bytes::mib(2).0;

/// QEMU's options for machine, CPUs and memory.
pub(super) fn options(spec: &VmSpec, tuning: &Tuning) -> Vec<(&'static str, String)> {
    let vcpus = spec.placement.virtual_nodes(spec.vcpus);
    let many = vcpus.len() > 1;
    // A core dump of the process has nothing of the guest's memory.
    let mut machine = "q35,dump-guest-core=off".to_owned();
    if !many {
        machine += ",memory-backend=mem0";
    }
    if tuning.locked {
        // Equal pages of several guests are not merged.
        machine += ",mem-merge=off";
    }
    let mut memory = format!("{}M", spec.memory.as_mib());
    queue_pairs::make_room(spec, &mut machine, &mut memory);
    let mut options = vec![("-machine", machine), ("-smp", spec.vcpus.to_string()), ("-m", memory)];
    let mut first = 0;
    for (node, (size, count)) in sizes(spec.memory, vcpus.len()).into_iter().zip(&vcpus).enumerate() {
        // The data plane maps the guest's memory, so it must be shared, and sealed against
        // shrinking: an access to a page that is cut off would end the data plane.
        let mut backend = format!("memory-backend-memfd,id=mem{node},size={size},share=on,seal=on,dump=off");
        if tuning.memory.huge {
            backend += ",hugetlb=on,hugetlbsize=2M";
        }
        backend += &allocation(tuning, node);
        options.push(("-object", backend));
        if many {
            options.push((
                "-numa",
                format!("node,nodeid={node},cpus={first}-{},memdev=mem{node}", first + count - 1),
            ));
        }
        first += count;
    }
    options
}

/// Settings of a memory backend: whether it is allocated at once, and the host's nodes of a node of
/// the guest.
pub(super) fn allocation(tuning: &Tuning, node: usize) -> String {
    let mut settings = String::new();
    if tuning.locked {
        settings += ",prealloc=on";
    }
    let nodes = tuning.memory.host_nodes[node];
    for host in (0..64).filter(|host| nodes >> host & 1 == 1) {
        // One option for each node: all versions of QEMU accept a list in this form.
        settings += &format!(",host-nodes={host}");
    }
    if nodes != 0 {
        // With `bind`, the kernel would end the VM once these nodes are full.
        settings += ",policy=preferred";
    }
    settings
}

/// Divides memory into `nodes` nodes, as evenly as whole huge pages allow.
fn sizes(memory: Bytes, nodes: usize) -> Vec<u64> {
    let (pages, nodes) = (memory.0 / STEP, nodes as u64);
    (0..nodes).map(|node| (pages * (node + 1) / nodes - pages * node / nodes) * STEP).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &serde_json::Value, tuning: &Tuning) -> String {
        let spec: VmSpec = serde_json::from_value(json.clone()).unwrap();
        options(&spec, tuning)
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), " ".to_owned(), value, "\n".to_owned()])
            .collect()
    }

    #[test]
    fn memory_is_one_object_unless_the_guest_sees_numa_nodes() {
        let plain = serde_json::json!({ "memory": "256MiB", "vcpus": 2 });
        assert_eq!(
            text(&plain, &Tuning::default()),
            "-machine q35,dump-guest-core=off,memory-backend=mem0\n-smp 2\n-m 256M\n\
             -object memory-backend-memfd,id=mem0,size=268435456,share=on,seal=on,dump=off\n"
        );
        let mut memory = MemoryTuning { huge: true, ..MemoryTuning::default() };
        memory.host_nodes[0] = 0b101;
        let tuned = Tuning { locked: true, memory, ..Tuning::default() };
        assert_eq!(
            text(&plain, &tuned),
            "-machine q35,dump-guest-core=off,memory-backend=mem0,mem-merge=off\n-smp 2\n-m 256M\n\
             -object memory-backend-memfd,id=mem0,size=268435456,share=on,seal=on,dump=off,hugetlb=on,hugetlbsize=2M,prealloc=on,host-nodes=0,host-nodes=2,policy=preferred\n"
        );
        let mut memory = MemoryTuning::default();
        memory.host_nodes[1] = 1;
        let wide = serde_json::json!({ "memory": "250MiB", "vcpus": 5, "placement": { "vcpus_per_node": 3, "min_vcpus": 2 } });
        assert_eq!(
            text(&wide, &Tuning { memory, ..Tuning::default() }),
            "-machine q35,dump-guest-core=off\n-smp 5\n-m 250M\n\
             -object memory-backend-memfd,id=mem0,size=130023424,share=on,seal=on,dump=off\n\
             -numa node,nodeid=0,cpus=0-1,memdev=mem0\n\
             -object memory-backend-memfd,id=mem1,size=132120576,share=on,seal=on,dump=off,host-nodes=0,policy=preferred\n\
             -numa node,nodeid=1,cpus=2-4,memdev=mem1\n"
        );
    }
}
