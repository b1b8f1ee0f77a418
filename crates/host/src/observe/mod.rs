//! Counters of the kernel for VMs and their disturbers, processes and threads of the host, its
//! memory, disks, interrupts and network cards, and hosts captured in a text file.

pub mod captured;
pub mod cards;
pub mod disks;
pub mod evidence;
pub mod interrupts;
pub mod load;
pub mod processes;
