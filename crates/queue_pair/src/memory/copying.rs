//! Ways of copying bytes.
#![allow(unsafe_code, reason = "copies by pointers, because others may write to the bytes meanwhile")]

/// Least number of bytes for which starting a string instruction pays.
const LEAST_BY_WORDS: usize = 128;

/// How bytes are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copying {
    /// By the language's library: the fastest on a processor.
    Library,
    /// By words of eight bytes, with one string instruction: for programs in guests. An emulator
    /// executes it as a loop of its own, which takes half of the time of vector instructions and an
    /// eighth of that of a copy by bytes. Processors execute it nearly as fast as the library.
    Words,
}

impl Copying {
    /// Copies bytes.
    ///
    /// # Safety
    /// Source and target have `len` bytes each. Other processes may write to either at the same
    /// time, and a program may pass bytes that overlap: that changes only which bytes arrive.
    #[inline]
    pub(super) unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if self == Self::Words && len >= LEAST_BY_WORDS {
                copy_words(from, to, len);
            } else if len > 0 {
                std::ptr::copy(from, to, len);
            }
        }
    }
}

/// Copies bytes, most of them by words.
///
/// # Safety
/// As [`Copying::copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize) {
    let (rest, rest_to): (*const u8, *mut u8);
    // SAFETY: the instruction reads and writes `len / 8` words, which both have. The direction flag
    // is clear, as the calling convention demands.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") len / 8 => _,
            inout("rsi") from => rest,
            inout("rdi") to => rest_to,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: the instruction has moved both pointers behind the last word. The rest follows there.
    unsafe { std::ptr::copy(rest, rest_to, len % 8) };
}

/// Copies bytes as the library does.
///
/// # Safety
/// As [`Copying::copy`].
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy(from, to, len) };
}
