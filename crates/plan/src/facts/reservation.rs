//! Sizes of reservations, and which VMs may own pCPUs because of them.

use taut_api::Bytes;
use taut_api::vm::{LatencySensitivity, Power, VmDesired, VmSpec};

use super::host::HostSeen;
use super::vm::MachineSize;

/// Least memory that stays with the host.
const HOST_MEMORY: Bytes = Bytes::mib(256);

/// Returns whether all of the VM's memory is reserved.
pub fn memory_is_reserved(spec: &VmSpec) -> bool {
    spec.memory_reservation.of(spec.memory) == spec.memory
}

/// Returns the memory that is reserved for the VM. That of queue pairs is locked with the guest's
/// if all of the guest's is.
pub fn reserved_memory(spec: &VmSpec) -> Bytes {
    let reserved = spec.memory_reservation.of(spec.memory);
    let nvdimm = if reserved == spec.memory { MachineSize::of(spec).nvdimm() } else { Bytes(0) };
    Bytes(reserved.0.saturating_add(nvdimm.0))
}

/// Memory that can be reserved on a host with `total` memory. A sixteenth, and at least 256 MiB,
/// stays with the host.
pub fn reservable_memory(total: Bytes) -> Bytes {
    Bytes(total.0 - (total.0 / 16).max(HOST_MEMORY.0).min(total.0))
}

/// The VM's CPU reservation in thousandths of a pCPU.
pub fn reserved_cpu(spec: &VmSpec, host: &HostSeen) -> u64 {
    spec.cpu.reservation.thousandths(spec.vcpus, host.cpu_mhz)
}

/// Returns whether a whole pCPU is reserved for each vCPU.
pub fn cpu_is_reserved(spec: &VmSpec, host: &HostSeen) -> bool {
    reserved_cpu(spec, host) == u64::from(spec.vcpus) * 1000
}

/// Returns whether the VM is to own pCPUs: it is wanted on, latency-sensitive and fully reserved
/// (LS-3). A pCPU that is not fully reserved may be promised to another VM.
pub fn wants_exclusive_pcpus(vm: &VmDesired, host: &HostSeen) -> bool {
    vm.vm.latency_sensitivity != LatencySensitivity::Normal
        && vm.power == Power::On
        && memory_is_reserved(&vm.vm)
        && cpu_is_reserved(&vm.vm, host)
}

/// Formats thousandths of a pCPU as a number of pCPUs: 1500 is `1.5`.
pub fn pcpus(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats thousandths of a pCPU with their noun: `1 pCPU`, `1.5 pCPUs`.
pub fn counted_pcpus(thousandths: u64) -> String {
    let noun = if thousandths == 1000 { "pCPU" } else { "pCPUs" };
    format!("{} {noun}", pcpus(thousandths))
}

/// The level as `.toml` files and the command line spell it.
pub const fn level_name(level: LatencySensitivity) -> &'static str {
    match level {
        LatencySensitivity::Normal => "normal",
        LatencySensitivity::High => "high",
        LatencySensitivity::HighHt => "high-ht",
    }
}
