//! The CPUs: their number, kinds, vulnerabilities, and support of virtualization.

use std::collections::BTreeSet;

use taut_api::check::CpuFacts;

use crate::kernel::topology::Topology;
use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>, topology: &Topology) -> CpuFacts {
    let cores: BTreeSet<_> = topology.cpus.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    let packages: BTreeSet<_> = topology.cpus.iter().map(|cpu| cpu.package).collect();
    let folder = "sys/devices/system/cpu/vulnerabilities";
    let vulnerabilities = tree.names(folder).into_iter();
    CpuFacts {
        pcpus: count(topology.cpus.len()),
        cores: count(cores.len()),
        packages: count(packages.len()),
        nodes: count(topology.nodes.len()),
        smt: tree.text("sys/devices/system/cpu/smt/active").map(|active| active == "1"),
        hybrid: hybrid(tree),
        vulnerabilities: vulnerabilities
            .filter_map(|flaw| Some((flaw.clone(), tree.text(&format!("{folder}/{flaw}"))?)))
            .collect(),
        in_vm: in_vm(tree),
        kvm: tree.0.join("dev/kvm").exists(),
        interrupt_delivery: [
            "sys/module/kvm_intel/parameters/enable_apicv",
            "sys/module/kvm_amd/parameters/avic",
        ]
        .into_iter()
        .find_map(|path| tree.knob(path)),
    }
}

/// Counts performance and efficiency cores. Intel's hybrid CPUs have a performance monitor for each
/// kind.
fn hybrid(tree: Tree<'_>) -> Option<(u32, u32)> {
    Some((tree.count("sys/devices/cpu_core/cpus")?, tree.count("sys/devices/cpu_atom/cpus")?))
}

/// Returns whether this is a VM. A hypervisor usually shows that in a flag of the CPU.
pub(super) fn in_vm(tree: Tree<'_>) -> bool {
    let flags = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("flags"))?;
        Some(line.split_whitespace().any(|flag| flag == "hypervisor"))
    };
    tree.text("proc/cpuinfo").as_deref().and_then(flags).unwrap_or(false)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
