//! Limits of a VM's process (row SE17): what it may use of the host, whatever runs in it.
//!
//! They are computed when the process starts and recorded with it, so that a daemon with other
//! constants does not change the limits of a running VM. They only grow by memory that is added to
//! it.

use taut_api::Bytes;
use taut_api::enforcement::ProcessLimits;
use taut_api::machine::{TCG_CACHE, VmAccelerator};
use taut_api::vmci::VmciSpec;

use crate::facts::MachineSize;

/// Memory of the program itself: its code, devices, buffers of disks and cards.
const PROGRAM: Bytes = Bytes::mib(256);
/// The part of the guest's memory that is added for page tables: those of the process, of KVM and
/// of an IOMMU take a 512th each.
const PAGE_TABLES: u64 = 64;
/// Memory of a vCPU: its stack, and what KVM keeps for it.
const VCPU: Bytes = Bytes::mib(4);
/// The part of the guest's memory that an emulated vCPU needs to cache translated addresses: QEMU
/// has an entry of about 64 bytes for each page of 4 KiB that the vCPU uses.
const TLB: u64 = 64;
/// Least memory for translated addresses. Each mode of the vCPU has a table of its own.
const LEAST_TLB: Bytes = Bytes::mib(32);
/// Most memory for translated addresses: QEMU's tables have at most 2²² entries.
const MOST_TLB: Bytes = Bytes::mib(256);
/// Stack of a thread, which is allocated as a whole if all memory is locked.
const STACK: Bytes = Bytes::mib(8);
/// Threads besides the vCPUs: QEMU reads and writes disks with up to 64.
const OTHER_THREADS: u64 = 80;

/// The properties of a VM's process that determine its limits.
#[derive(Debug, Clone, Copy)]
pub struct ProcessNeeds {
    /// The accelerator of its vCPUs.
    pub accelerator: VmAccelerator,
    /// vCPUs and memory of the guest.
    pub size: MachineSize,
    /// The guest's memory is on huge pages.
    pub huge: bool,
    /// All memory of the process is locked.
    pub locked: bool,
    /// Size of the kernel, which QEMU keeps in memory of its own as long as it runs.
    pub kernel: Bytes,
}

/// Returns the limits of a process.
pub fn limit_process(needs: &ProcessNeeds) -> ProcessLimits {
    let ProcessNeeds { accelerator, size, huge, locked, kernel } = *needs;
    let is_emulated = accelerator == VmAccelerator::Tcg;
    let vcpus = u64::from(size.vcpus);
    let processes = vcpus + OTHER_THREADS;
    let vcpu = if is_emulated { (size.memory.0 / TLB).clamp(LEAST_TLB.0, MOST_TLB.0) } else { VCPU.0 };
    let translated = if is_emulated { TCG_CACHE.0 } else { 0 };
    let stacks = if locked { STACK.0 * processes } else { 0 };
    let page_tables = size.all_memory().0 / PAGE_TABLES;
    let parts = [PROGRAM.0, page_tables, vcpus * vcpu, translated, stacks, kernel.0];
    // Whole MiB are easier to read.
    let own = parts.iter().sum::<u64>().next_multiple_of(Bytes::mib(1).0);
    // The memory of queue pairs is never on huge pages.
    let (pages, huge) = if huge { (size.nvdimm().0, size.memory.0) } else { (size.all_memory().0, 0) };
    ProcessLimits { memory: Bytes(pages.saturating_add(own)), huge: Bytes(huge), processes }
}

/// Returns the limits of a process to which memory for queue pairs is added while it runs.
pub fn add_queue_pairs(limits: ProcessLimits, queue_pairs: Bytes) -> ProcessLimits {
    let nvdimm = VmciSpec::nvdimm_of(queue_pairs).0;
    let page_tables = (nvdimm / PAGE_TABLES).next_multiple_of(Bytes::mib(1).0);
    let memory = Bytes(limits.memory.0.saturating_add(nvdimm).saturating_add(page_tables));
    ProcessLimits { memory, ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: ProcessNeeds = ProcessNeeds {
        accelerator: VmAccelerator::Kvm,
        size: MachineSize { vcpus: 2, memory: Bytes::mib(1024), queue_pairs: Bytes(0) },
        huge: false,
        locked: false,
        kernel: Bytes(0),
    };

    #[test]
    fn a_process_gets_the_guests_memory_and_what_its_program_needs() {
        let (memory, huge) = (Bytes::mib(1024 + 256 + 16 + 8), Bytes(0));
        assert_eq!(limit_process(&NEEDS), ProcessLimits { memory, huge, processes: 82 });
        let locked = limit_process(&ProcessNeeds { locked: true, ..NEEDS });
        assert_eq!(locked.memory, Bytes(memory.0 + 82 * STACK.0));
    }

    #[test]
    fn an_emulated_vcpu_gets_memory_for_translated_addresses() {
        let emulated = |mib| {
            let size = MachineSize { memory: Bytes::mib(mib), ..NEEDS.size };
            let limits = limit_process(&ProcessNeeds { accelerator: VmAccelerator::Tcg, size, ..NEEDS });
            limits.memory.0 - TCG_CACHE.0
        };
        for (memory, vcpu) in [(64, 32), (4096, 64), (65536, 256)] {
            assert_eq!(emulated(memory), Bytes::mib(memory + 256 + memory / 64 + 2 * vcpu).0, "{memory} MiB");
        }
    }

    #[test]
    fn a_kernel_with_a_large_file_system_inside_fits() {
        let plain = limit_process(&NEEDS).memory;
        let kernel = Bytes(Bytes::mib(900).0 + 1);
        let limit = limit_process(&ProcessNeeds { kernel, ..NEEDS }).memory;
        assert_eq!(limit, Bytes(plain.0 + Bytes::mib(901).0), "it is rounded up");
    }

    #[test]
    fn huge_pages_are_counted_apart() {
        let huge = limit_process(&ProcessNeeds { huge: true, ..NEEDS });
        assert_eq!((huge.memory, huge.huge), (Bytes::mib(256 + 16 + 8), Bytes::mib(1024)));
    }

    #[test]
    fn queue_pairs_are_memory_beside_the_guests() {
        let size = MachineSize { queue_pairs: Bytes::mib(62), ..NEEDS.size };
        for huge in [false, true] {
            let without = limit_process(&ProcessNeeds { huge, ..NEEDS });
            let with = limit_process(&ProcessNeeds { size, huge, ..NEEDS });
            // 2 MiB precede them, and a 64th of all are page tables.
            assert_eq!(with.memory, Bytes(without.memory.0 + Bytes::mib(64 + 1).0));
            assert_eq!(with.huge, without.huge);
            assert_eq!(add_queue_pairs(without, Bytes::mib(62)), with, "they may come later");
        }
    }
}
