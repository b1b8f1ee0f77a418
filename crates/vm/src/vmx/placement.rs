//! Placement of vCPUs and memory.

use taut_api::ApiError;
use taut_api::placement::Numbers;
use taut_api::vm::VmSpec;

use super::file::VmxFile;

/// Reads `sched.cpu.affinity`, `numa.nodeAffinity`, `numa.vcpu.maxPerVirtualNode` and
/// `numa.vcpu.min`.
pub(super) fn read(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    const MOST: &str = "numa.vcpu.maxpervirtualnode";
    const MIN: &str = "numa.vcpu.min";
    spec.placement.cpus = numbers(file, "sched.cpu.affinity", "placement.cpus");
    spec.placement.nodes = numbers(file, "numa.nodeaffinity", "placement.nodes");
    if let Some(most) = file.parsed::<u32>(MOST, "a number of virtual CPUs")? {
        // 0, and more than a VM can have, mean no limit.
        spec.placement.vcpus_per_node = Some(most).filter(|most| (1..=256).contains(most));
        file.understood(MOST, "placement.vcpus_per_node");
    }
    if let Some(min) = file.parsed(MIN, "a number of virtual CPUs")? {
        spec.placement.min_vcpus = min;
        file.understood(MIN, "placement.min_vcpus");
    }
    Ok(())
}

fn numbers(file: &mut VmxFile, key: &str, field: &str) -> Numbers {
    let Some(value) = file.get(key).map(str::to_owned) else { return Numbers::default() };
    match value.parse::<Numbers>() {
        Ok(numbers) => {
            file.understood(key, field);
            numbers
        }
        Err(bad) => {
            file.mapped(key, field, format!("any: {bad}"));
            Numbers::default()
        }
    }
}
