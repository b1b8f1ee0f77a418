//! Counters of the kernel for VMs and their disturbers, and hosts captured in a text file.

pub mod captured;
pub mod evidence;
