//! NUMA nodes of the VM's memory and of its vCPUs.

use std::collections::BTreeSet;

use taut_api::host::Cpu;
use taut_host::observe::evidence::{NodeMemory, Vcpu};

use crate::output;

/// Renders a table by node and the amount of memory that is remote for every vCPU; empty if no
/// memory could be read. `cpus` are the host's.
pub(super) fn text(memory: &[NodeMemory], vcpus: &[Vcpu], cpus: &[Cpu]) -> String {
    if memory.is_empty() {
        return String::new();
    }
    let node = |vcpu: &Vcpu| cpus.iter().find(|cpu| cpu.id == vcpu.cpu).map(|cpu| cpu.node);
    let near: BTreeSet<u32> = vcpus.iter().filter_map(node).collect();
    let nodes: BTreeSet<u32> = memory.iter().map(|of| of.node).chain(near.iter().copied()).collect();
    let on = |id: u32| memory.iter().filter(|of| of.node == id).map(|of| of.bytes).sum::<u64>();
    let rows: Vec<_> = nodes
        .iter()
        .map(|&id| {
            let there = vcpus.iter().filter(|vcpu| node(vcpu) == Some(id));
            let numbers: Vec<_> = there.map(|vcpu| vcpu.vcpu.to_string()).collect();
            [id.to_string(), mib(on(id)), numbers.join(" ")]
        })
        .collect();
    let mut text = format!("\n{}", output::table(["NODE", "MEMORY MIB", "VCPUS"], &rows));
    let far: u64 = nodes.difference(&near).map(|&id| on(id)).sum();
    if far > 0 && !near.is_empty() {
        text +=
            &format!("{} MiB are on nodes where none of its vCPUs ran, and are slower to access\n", mib(far));
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(nodes: &[u32]) -> Vec<Cpu> {
        let cpu = |(id, node): (usize, &u32)| Cpu {
            id: id as u32,
            package: 0,
            core: id as u32,
            node: *node,
            llc: 0,
        };
        nodes.iter().enumerate().map(cpu).collect()
    }

    fn vcpu(vcpu: u32, cpu: u32) -> Vcpu {
        Vcpu {
            vcpu,
            tid: 11,
            cpu,
            exclusive: false,
            used_percent: 0.0,
            ready_percent: 0.0,
            involuntary: 0,
            voluntary: 0,
            migrations: None,
            intruders: Vec::new(),
            interrupts: Vec::new(),
        }
    }

    #[test]
    fn memory_remote_from_every_vcpu_is_reported() {
        let memory = [NodeMemory { node: 0, bytes: 3 << 19 }, NodeMemory { node: 1, bytes: 1 << 30 }];
        let vcpus = [vcpu(0, 2), vcpu(1, 3)];
        insta::assert_snapshot!(text(&memory, &vcpus, &cpus(&[0, 0, 1, 1])), @r"

        NODE  MEMORY MIB  VCPUS
           0         1.5
           1      1024.0  0 1
        1.5 MiB are on nodes where none of its vCPUs ran, and are slower to access
        ");
        insta::assert_snapshot!(text(&memory[..1], &vcpus, &cpus(&[0; 4])), @r"

        NODE  MEMORY MIB  VCPUS
           0         1.5  0 1
        ");
        assert_eq!(text(&[], &vcpus, &cpus(&[0; 4])), "");
        assert!(!text(&memory, &vcpus, &[]).contains("none of its vCPUs"), "their nodes are not known");
    }
}
