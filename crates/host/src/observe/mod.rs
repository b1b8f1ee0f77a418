//! Counters of the kernel for VMs and their disturbers, all machines of the host, network cards,
//! and hosts captured in a text file.

pub mod captured;
pub mod cards;
pub mod evidence;
pub mod load;
pub mod machines;
