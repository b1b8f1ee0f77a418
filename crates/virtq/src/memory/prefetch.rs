//! Hints to the processor that have no effect on the behaviour of the program.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Prefetches the cache line of an address for reading.
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

/// Prefetches the cache line of an address for writing.
#[inline]
pub(crate) fn for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // Assembly, because for generic x86-64 the compiler turns its own hint into an ordinary
    // prefetch: the line would arrive shared and the write would request it again. Processors that
    // do not support the instruction ignore it. SAFETY: a prefetch never faults, whatever the
    // address, and changes neither memory, stack nor flags.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
