//! Memory of a guest that this process plays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::memory::{GuestMemory, MemoryError, RegionSpec};

/// One region of memory in a sealed memfd, from guest address [`Ram::START`] on. Guest addresses and front-end addresses
/// are the same. Space is handed out once and never taken back.
#[derive(Debug)]
pub struct Ram {
    file: OwnedFd,
    memory: Arc<GuestMemory>,
    spec: RegionSpec,
    next: u64,
}

impl Ram {
    /// First address. Not 0, so that an address that was forgotten is outside.
    pub const START: u64 = 0x1_0000;

    /// Memory of `size` bytes, zeroed.
    pub fn new(size: u64) -> Result<Self, MemoryError> {
        Self::with(size, MemfdFlags::empty())
    }

    /// The same of huge pages, which must have been reserved; `size` is a multiple of theirs.
    pub fn huge(size: u64) -> Result<Self, MemoryError> {
        Self::with(size, MemfdFlags::HUGETLB)
    }

    fn with(size: u64, flags: MemfdFlags) -> Result<Self, MemoryError> {
        let failed = |source: rustix::io::Errno| MemoryError::Map { size, source: source.into() };
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("taut-guest-ram", flags).map_err(failed)?;
        ftruncate(&file, size).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(failed)?;
        let spec = RegionSpec { guest_addr: Self::START, user_addr: Self::START, size, file_offset: 0 };
        let memory = Arc::new(GuestMemory::map(&[spec], &[file.as_fd()])?);
        Ok(Self { file, memory, spec, next: Self::START })
    }

    /// Hands out `len` bytes; `align` is a power of two. `None` when there are not so many left.
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<u64> {
        let start = self.next.checked_next_multiple_of(align)?;
        let end = start.checked_add(len)?;
        if end > Self::START + self.spec.size {
            return None;
        }
        self.next = end;
        Some(start)
    }

    /// The memory, mapped.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Its only region.
    pub fn spec(&self) -> RegionSpec {
        self.spec
    }

    /// Its file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
