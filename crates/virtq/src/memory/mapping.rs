//! A shared mapping of a file, unmapped when dropped.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// `len` bytes at `base`, mapped readable and writable for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed only through raw
// pointers whose users expect other writers (the guest).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset`, which must be a multiple of its page size.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, len: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address, so no existing object is replaced. Nothing
        // refers to the new pages except through this value.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::FAULT)?;
        Ok(Self { base, len })
    }

    /// Address of the first byte. Valid for [`Self::len`] bytes while `self` lives.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those that mmap returned. Every holder of a pointer into the
        // mapping also keeps this value alive, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping failed: {unmapped:?}");
    }
}
