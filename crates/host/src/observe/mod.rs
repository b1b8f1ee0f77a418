//! Counters of the kernel for VMs and their disturbers, network cards, and hosts captured in a text
//! file.

pub mod captured;
pub mod cards;
pub mod evidence;
