//! Files and calls of the Linux kernel, each in a file of its own.

pub mod namespace;
pub mod netlink;
