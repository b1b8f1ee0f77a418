//! The memory of a guest that this process simulates.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::memory::{GuestMemory, MemoryError, RegionSpec};

/// Seals of memory as QEMU makes it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// One region of memory in a memfd, from guest address [`Ram::START`] on. Guest addresses and
/// front-end addresses are the same. Memory is allocated and never freed.
#[derive(Debug)]
pub struct Ram {
    file: OwnedFd,
    memory: Arc<GuestMemory>,
    spec: RegionSpec,
    next: u64,
}

impl Ram {
    /// First address. Not 0, so that an address that was never set is outside.
    pub const START: u64 = 0x1_0000;

    /// Creates `size` bytes of zeroed memory, which is sealed.
    pub fn new(size: u64) -> Result<Self, MemoryError> {
        Self::with(size, MemfdFlags::empty(), SEALS)
    }

    /// Creates memory that can be shortened and extended, by whoever has its file. An access to
    /// what was cut off raises `SIGBUS`.
    pub fn unsealed(size: u64) -> Result<Self, MemoryError> {
        Self::with(size, MemfdFlags::empty(), SealFlags::empty())
    }

    /// Creates memory of huge pages, which must be reserved. `size` is a multiple of their size.
    pub fn huge(size: u64) -> Result<Self, MemoryError> {
        Self::with(size, MemfdFlags::HUGETLB, SEALS)
    }

    fn with(size: u64, flags: MemfdFlags, seals: SealFlags) -> Result<Self, MemoryError> {
        let failed = |source: rustix::io::Errno| MemoryError::Map { size, source: source.into() };
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("taut-guest-ram", flags).map_err(failed)?;
        ftruncate(&file, size).map_err(failed)?;
        fcntl_add_seals(&file, seals).map_err(failed)?;
        let spec = RegionSpec { guest_addr: Self::START, user_addr: Self::START, size, file_offset: 0 };
        let memory = Arc::new(GuestMemory::map(&[spec], &[file.as_fd()])?);
        Ok(Self { file, memory, spec, next: Self::START })
    }

    /// Allocates `len` bytes; `align` is a power of two. `None` when too few are left.
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<u64> {
        let start = self.next.checked_next_multiple_of(align)?;
        let end = start.checked_add(len)?;
        if end > Self::START + self.spec.size {
            return None;
        }
        self.next = end;
        Some(start)
    }

    /// The mapped memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The only region.
    pub fn spec(&self) -> RegionSpec {
        self.spec
    }

    /// The memfd.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
