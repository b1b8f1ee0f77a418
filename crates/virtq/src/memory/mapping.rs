//! A shared mapping of a file, unmapped when dropped.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::lost::Entry;

/// `len` bytes at `base`, mapped readable and writable for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// What the process does when pages of the mapping vanish.
    entry: Option<&'static Entry>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed only through raw
// pointers whose users expect other writers (the guest).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset`, which must be a multiple of its page size. Core
    /// dumps of this process leave the mapping out.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, len: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address, so no existing object is replaced. Nothing
        // refers to the new pages except through this value.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::FAULT)?;
        let mut mapping = Self { base, len, entry: None };
        // SAFETY: the advice changes no page and no access; the range is the new mapping.
        unsafe { madvise(mapping.base.as_ptr().cast(), len, Advice::LinuxDontDump)? };
        mapping.entry = Some(Entry::of(base.as_ptr().addr(), len).ok_or(rustix::io::Errno::NOMEM)?);
        Ok(mapping)
    }

    /// Address of the first byte. Valid for [`Self::len`] bytes while `self` lives.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Tells whether pages of the file have vanished. The mapping reads as zeros since then.
    pub(crate) fn is_lost(&self) -> bool {
        self.entry.is_some_and(Entry::is_lost)
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            entry.give_back();
        }
        // SAFETY: base and length are those that mmap returned. Every holder of a pointer into the
        // mapping also keeps this value alive, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping failed: {unmapped:?}");
    }
}
