//! The steps of a launch, a file each.

pub(crate) mod confirm;
pub(crate) mod descriptors;
pub(crate) mod document;
pub(crate) mod exec;
pub(crate) mod filter;
pub(crate) mod identity;
pub(crate) mod landlock;
pub(crate) mod limits;
pub(crate) mod namespaces;
pub(crate) mod pid_namespace;
pub(crate) mod root;
