//! What needs `unsafe`: inherited descriptors, and system calls that no library wraps.

pub(crate) mod calls;
pub(crate) mod inherited;
