//! Limits of a VM's process (row SE17): what it may use of the host, whatever runs in it.

use taut_api::Bytes;
use taut_api::enforcement::ProcessLimits;
use taut_api::machine::{TCG_CACHE, VmAccelerator};

use crate::facts::{MachineSize, Process};

/// Memory of the program itself: its code, devices, buffers of disks and cards.
const PROGRAM: Bytes = Bytes::mib(256);
/// The part of the guest's memory that is added for page tables: those of the process, of KVM and
/// of an IOMMU take a 512th each.
const PAGE_TABLES: u64 = 64;
/// Stack of a thread, which is allocated as a whole if all memory is locked.
const STACK: Bytes = Bytes::mib(8);
/// Threads besides the vCPUs: QEMU reads and writes disks with up to 64.
const OTHER_THREADS: u64 = 80;

/// Returns the limits of a process; `None` if its size is not known.
pub fn limit_process(process: &Process) -> Option<ProcessLimits> {
    let size = process.machine.size?;
    Some(limits(process.accelerator, size, process.machine.memory.huge, process.locked))
}

/// Returns the limits of a VM of this size. `huge` tells whether its memory is on huge pages, and
/// `locked` whether all memory of the process is.
pub fn limits(accelerator: VmAccelerator, size: MachineSize, huge: bool, locked: bool) -> ProcessLimits {
    let processes = u64::from(size.vcpus) + OTHER_THREADS;
    let translated = if accelerator == VmAccelerator::Tcg { TCG_CACHE.0 } else { 0 };
    let stacks = if locked { STACK.0 * processes } else { 0 };
    // Whole MiB are easier to read.
    let page_tables = (size.memory.0 / PAGE_TABLES).next_multiple_of(Bytes::mib(1).0);
    let own = PROGRAM.0 + page_tables + translated + stacks;
    let (pages, huge) = if huge { (0, size.memory.0) } else { (size.memory.0, 0) };
    ProcessLimits { memory: Bytes(pages.saturating_add(own)), huge: Bytes(huge), processes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: MachineSize = MachineSize { vcpus: 2, memory: Bytes::mib(1024) };

    #[test]
    fn a_process_gets_the_guests_memory_and_what_its_program_needs() {
        let plain = limits(VmAccelerator::Kvm, SIZE, false, false);
        let (memory, huge) = (Bytes::mib(1024 + 256 + 16), Bytes(0));
        assert_eq!(plain, ProcessLimits { memory, huge, processes: 82 });
        let emulated = limits(VmAccelerator::Tcg, SIZE, false, false);
        assert_eq!(emulated.memory, Bytes(memory.0 + TCG_CACHE.0));
        let locked = limits(VmAccelerator::Kvm, SIZE, false, true);
        assert_eq!(locked.memory, Bytes(memory.0 + 82 * STACK.0));
    }

    #[test]
    fn huge_pages_are_counted_apart() {
        let huge = limits(VmAccelerator::Native, SIZE, true, false);
        assert_eq!((huge.memory, huge.huge), (Bytes::mib(256 + 16), Bytes::mib(1024)));
    }

    #[test]
    fn a_process_of_unknown_size_has_no_limits() {
        let mut process = Process::default();
        assert_eq!(limit_process(&process), None);
        process.machine.size = Some(SIZE);
        assert_eq!(limit_process(&process).unwrap().processes, 82);
    }
}
