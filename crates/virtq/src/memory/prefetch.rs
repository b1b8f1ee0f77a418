//! Hints to the processor, without any effect that a program can see.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Asks for the cache line of an address, to be read soon.
#[inline]
pub(crate) fn for_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the cache line of an address, to be written soon.
#[inline]
pub(crate) fn for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // By its name, because the compiler's own hint becomes an ordinary prefetch when it builds for any x86-64: the line
    // would come shared, and be asked for again by the write. Processors that do not know the instruction pass over it.
    // SAFETY: a prefetch never faults, whatever the address, and changes neither memory, stack nor flags.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
