//! Descriptors that a VM's process inherits, because it may open almost nothing itself.

use std::path::PathBuf;

use taut_api::Bytes;

/// Number of the first inherited descriptor behind the standard streams. The others follow in the
/// order of their sources. Smaller numbers belong to the program that starts the process.
pub const FIRST: i32 = 10;

/// A descriptor that the daemon opens for a VM's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A Unix socket that listens at this path.
    Listener(PathBuf),
    /// A connection to the Unix socket at this path.
    Connection(PathBuf),
    /// An image of the disk's chain ([`super::DiskChain`]), by its index. The first one is open for
    /// writing, too, unless writes are discarded.
    Image(usize),
    /// A sealed copy in memory of a file. The process opens it by `/proc/self/fd`, for which it
    /// needs no rights on the file itself.
    Copy(PathBuf),
    /// A new qcow2 image of this virtual size, in bytes, which takes the writes to a disk that are
    /// discarded when the VM stops.
    Overlay(u64),
    /// A new memory file with queue pairs of this size. The process opens it by `/proc/self/fd`,
    /// and keeps the descriptor open.
    QueuePairs(Bytes),
}

/// The sources of a process's descriptors, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Inherited(Vec<Source>);

impl Inherited {
    /// Adds a descriptor and returns its number.
    pub(super) fn add(&mut self, source: Source) -> i32 {
        // A VM has some dozens of sources.
        let number = FIRST + i32::try_from(self.0.len()).unwrap_or(i32::MAX - FIRST);
        self.0.push(source);
        number
    }

    /// Returns the sources.
    pub(super) fn into_sources(self) -> Vec<Source> {
        self.0
    }
}
