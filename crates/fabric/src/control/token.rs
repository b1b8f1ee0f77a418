//! What an event of the control thread's belongs to; for a port, its number is added.

/// The bits that tell what it is.
pub(super) const KIND: u64 = !0xffff;
/// `tautd` connects.
pub(super) const CONTROL: u64 = 1 << 16;
/// `tautd` sent something.
pub(super) const PEER: u64 = 2 << 16;
/// A worker has incidents.
pub(super) const ALARM: u64 = 3 << 16;
/// A port's front end sent something.
pub(super) const FRONT_END: u64 = 4 << 16;
/// A front end connects to a port.
pub(super) const LISTENER: u64 = 5 << 16;
/// There is news of VMCI devices.
pub(super) const VMCI: u64 = 6 << 16;
