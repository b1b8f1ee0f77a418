//! Sizes and limits of the wire format.

/// Length in bytes of a message's header.
pub const HEADER: usize = 12;
/// Largest number of guest memory regions in a session.
pub const MAX_REGIONS: usize = 32;
/// Longest accepted body: a memory table with [`MAX_REGIONS`] regions.
pub const MAX_BODY: usize = 8 + 32 * MAX_REGIONS;

/// Length in bytes of a configuration space request before its contents: offset, size and flags.
pub const CONFIG_HEADER: usize = 12;
/// Largest number of configuration space bytes in one message.
pub const MAX_CONFIG: usize = 256;

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;
