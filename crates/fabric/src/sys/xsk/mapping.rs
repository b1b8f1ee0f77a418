//! Memory of a file that others map as well.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Most bytes of a mapping.
const LARGEST: u64 = 1 << 30;

/// A mapping.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping can be used from any thread, and ends with this value alone. All access to
// its bytes is by unsafe code that answers for it, or atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on.
    pub(super) fn new(file: impl AsFd, offset: u64, len: u64) -> io::Result<Self> {
        if len == 0 || len > LARGEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = len as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an address that is not in use.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags, file, offset)? };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?, len })
    }

    /// Checks that `len` bytes at `offset` are within the mapping, and that the offset is a
    /// multiple of `align`, which is at most that of a page.
    pub(super) fn check(&self, offset: u64, len: u64, align: usize) -> io::Result<usize> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len as u64);
        if fits && offset.is_multiple_of(align as u64) {
            Ok(offset as usize)
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// Returns the address of an offset that was checked.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.len, "the offset was checked");
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Returns the word at an offset.
    ///
    /// # Safety
    /// [`Self::check`] has admitted these four bytes, aligned to as many. Nobody accesses them
    /// otherwise than atomically.
    pub(super) unsafe fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the word is within the mapping and aligned, by the caller's check.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and nothing refers to it any more. An error would mean
        // that it does not exist.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
