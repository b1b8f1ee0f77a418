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
    let unit = Unit::of(memory.iter().map(|of| of.bytes).sum());
    let on = |id: u32| memory.iter().filter(|of| of.node == id).map(|of| of.bytes).sum::<u64>();
    let rows: Vec<_> = nodes
        .iter()
        .map(|&id| {
            let there = vcpus.iter().filter(|vcpu| node(vcpu) == Some(id));
            let numbers: Vec<_> = there.map(|vcpu| vcpu.vcpu.to_string()).collect();
            [id.to_string(), unit.amount(on(id)), numbers.join(" ")]
        })
        .collect();
    let mut text = format!("\n{}", output::table(["NODE", unit.header, "VCPUS"], &rows));
    let far: u64 = nodes.difference(&near).map(|&id| on(id)).sum();
    if far > 0 && !near.is_empty() {
        let (far, unit) = (unit.amount(far), unit.name);
        text += &format!("{far} {unit} are on nodes where none of its vCPUs ran, and are slower to access\n");
    }
    text += "Memory that the VM has never touched is on no node.\n";
    text
}

/// The unit of all amounts of one table.
struct Unit {
    header: &'static str,
    name: &'static str,
    bytes: f64,
    digits: usize,
}

impl Unit {
    /// Returns a unit in which this sum is not almost 0. A microguest touches little of its memory.
    fn of(sum: u64) -> Self {
        if sum < 10 << 20 {
            Self { header: "MEMORY KIB", name: "KiB", bytes: 1024.0, digits: 0 }
        } else {
            Self { header: "MEMORY MIB", name: "MiB", bytes: f64::from(1 << 20), digits: 1 }
        }
    }

    fn amount(&self, bytes: u64) -> String {
        format!("{:.*}", self.digits, bytes as f64 / self.bytes)
    }
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
        Memory that the VM has never touched is on no node.
        ");
        insta::assert_snapshot!(text(&memory[..1], &vcpus, &cpus(&[0; 4])), @r"

        NODE  MEMORY KIB  VCPUS
           0        1536  0 1
        Memory that the VM has never touched is on no node.
        ");
        let microguest = [NodeMemory { node: 0, bytes: 24 << 10 }];
        assert!(text(&microguest, &vcpus, &cpus(&[0; 4])).contains("   0          24  0 1\n"));
        assert_eq!(text(&[], &vcpus, &cpus(&[0; 4])), "");
        assert!(!text(&memory, &vcpus, &[]).contains("none of its vCPUs"), "their nodes are not known");
    }
}
