//! Memory that is mapped for as long as a value lives.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::Copying;
use crate::layout::HEADER_LEN;

/// `len` bytes at `base`, readable and writable for as long as this value lives.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed only by atomics and
// by raw copies whose users expect other writers.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `len` bytes of a file from `offset` on, shared with all that have the file mapped. Core
    /// dumps of this process leave the bytes out.
    ///
    /// Offset and length of a device-DAX device are multiples of
    /// [`DATA_OFFSET`](crate::dax::DATA_OFFSET).
    pub fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address, so no existing object is replaced. Nothing
        // refers to the new pages except through this value.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        let memory = Self { base, len };
        // SAFETY: the advice changes no page and no access; the range is the new mapping.
        unsafe { madvise(memory.base.as_ptr().cast(), len, Advice::LinuxDontDump)? };
        Ok(memory)
    }

    /// Maps `len` bytes of zeros that this process, and those that it forks, share.
    pub fn anonymous(len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::SHARED)? };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::FAULT)?, len })
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the header of a region out; `None` if the memory is shorter than a header.
    pub fn header(&self) -> Option<[u8; HEADER_LEN]> {
        let mut header = [MaybeUninit::uninit(); HEADER_LEN];
        if self.len < HEADER_LEN {
            return None;
        }
        self.copy_out(0, &mut header, Copying::Library);
        // SAFETY: `copy_out` has initialised every byte.
        Some(header.map(|byte| unsafe { byte.assume_init() }))
    }

    /// Writes the header of a region, before another process uses the memory.
    ///
    /// # Panics
    /// If the memory is shorter than a header.
    pub fn write_header(&self, header: &[u8; HEADER_LEN]) {
        self.copy_in(0, header, Copying::Library);
    }

    /// The word at an offset.
    ///
    /// # Safety
    /// The word is in the memory and aligned.
    #[inline]
    pub(super) unsafe fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: the word is inside the memory and aligned, because the caller has checked the
        // offset and `base` is the beginning of a page. This process accesses words only
        // atomically: rings, into which bytes are copied, never overlap words (`Channel`). Accesses
        // of other processes are outside the language.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Address of `len` bytes at an offset.
    ///
    /// # Panics
    /// If they are not in the memory.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset, "bytes outside of the mapping");
        // SAFETY: the offset is inside the memory, or at its end if there are no bytes.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Copies bytes out. The result is private: the compiler must not read shared memory again
    /// instead.
    #[inline]
    pub(crate) fn copy_out(&self, offset: usize, out: &mut [MaybeUninit<u8>], copying: Copying) {
        let (from, to) = (self.at(offset, out.len()), out.as_mut_ptr().cast());
        // SAFETY: `at` has checked the source, `out` is the target.
        unsafe { copying.copy(from, to, out.len()) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Copies bytes in.
    #[inline]
    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8], copying: Copying) {
        let (from, to) = (bytes.as_ptr(), self.at(offset, bytes.len()));
        // SAFETY: `bytes` is the source, `at` has checked the target.
        unsafe { copying.copy(from, to, bytes.len()) };
    }

    /// Copies bytes from other memory, or from another place in this one.
    #[inline]
    pub(super) fn copy_from(&self, offset: usize, from: &Self, at: usize, len: usize, copying: Copying) {
        // SAFETY: `at` has checked both.
        unsafe { copying.copy(from.at(at, len), self.at(offset, len), len) };
    }
}

/// Views bytes as memory that need not be initialised. For copies out of shared memory only, which
/// initialise every byte that they touch.
#[inline]
pub(crate) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (base, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: the same bytes, borrowed for as long. Callers store only initialised bytes.
    unsafe { std::slice::from_raw_parts_mut(base, len) }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: base and length are those that mmap returned. Every holder of a pointer into the
        // mapping also keeps this value alive, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap failed: {unmapped:?}");
    }
}
