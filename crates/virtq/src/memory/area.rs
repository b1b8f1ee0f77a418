//! One area of a ring, whose words both ends read and write atomically.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::GuestMemory;

/// `len` bytes of guest memory, aligned to `ALIGN` bytes. Keeps the memory mapped.
#[derive(Debug)]
pub(crate) struct Area<const ALIGN: usize> {
    base: NonNull<u8>,
    len: usize,
    _memory: Arc<GuestMemory>,
}

// SAFETY: the pointer is used for atomic accesses only, and the memory behind it is Send and Sync.
unsafe impl<const ALIGN: usize> Send for Area<ALIGN> {}
// SAFETY: as above.
unsafe impl<const ALIGN: usize> Sync for Area<ALIGN> {}

/// Reason why an area cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AreaError {
    /// The area does not lie in one region.
    Unmapped,
    /// The host address of the area is not a multiple of its alignment.
    Misaligned,
}

impl<const ALIGN: usize> Area<ALIGN> {
    /// Maps the area of `len` bytes at a front-end address.
    pub(crate) fn at_user_addr(
        memory: &Arc<GuestMemory>,
        user_addr: u64,
        len: usize,
    ) -> Result<Self, AreaError> {
        let (region, offset) = memory.find_user(user_addr, len as u64).ok_or(AreaError::Unmapped)?;
        assert!(offset + len <= region.mapping.len());
        // SAFETY: `len` bytes from `offset` on are inside the mapping.
        let base = unsafe { region.mapping.base().add(offset) };
        if !base.as_ptr().addr().is_multiple_of(ALIGN) {
            return Err(AreaError::Misaligned);
        }
        Ok(Self { base, len, _memory: Arc::clone(memory) })
    }

    /// Address of a word, which is mapped while `self` lives and aligned for its type.
    #[inline]
    fn word<T>(&self, offset: usize) -> *mut T {
        const { assert!(size_of::<T>() <= ALIGN) };
        assert!(offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.len);
        // SAFETY: the offset and the word behind it are inside the area.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }

    /// Prefetches the cache line at any offset for reading.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        super::prefetch::for_read(self.base.as_ptr().wrapping_add(offset));
    }

    /// Prefetches the cache line at any offset for writing.
    #[inline]
    pub(crate) fn prefetch_for_write(&self, offset: usize) {
        super::prefetch::for_write(self.base.as_ptr().wrapping_add(offset));
    }

    #[inline]
    fn u16_at(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: `word` returns a mapped, aligned address. Every access of this process to it is
        // atomic; accesses of the guest are outside the language.
        unsafe { AtomicU16::from_ptr(self.word(offset)) }
    }

    #[inline]
    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.word(offset)) }
    }

    #[inline]
    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }
    }

    /// Reads two neighbouring words, each once; `None` when they are not both in the area.
    #[inline]
    pub(crate) fn load_u64_pair(&self, offset: usize) -> Option<[u64; 2]> {
        const { assert!(ALIGN >= 8) };
        if !offset.is_multiple_of(8) || offset + 16 > self.len {
            return None;
        }
        // SAFETY: both words are inside the area, which is aligned for them; see `u16_at`.
        let words = unsafe {
            let first = self.base.as_ptr().add(offset).cast();
            [AtomicU64::from_ptr(first), AtomicU64::from_ptr(first.add(1))]
        };
        Some(words.map(|word| u64::from_le(word.load(Ordering::Relaxed))))
    }

    /// Returns `count` consecutive pairs of words, from `offset` on.
    #[inline]
    pub(crate) fn pairs(&self, offset: usize, count: usize) -> Pairs<'_> {
        const { assert!(ALIGN >= 8) };
        assert!(offset.is_multiple_of(8) && offset <= self.len && count <= (self.len - offset) / 16);
        // SAFETY: the offset is inside the area, or at its end if there are no pairs.
        let first = unsafe { self.base.add(offset) }.cast();
        Pairs { first, count, _area: PhantomData }
    }

    /// Stores up to `count` pairs of words in a row.
    #[inline]
    pub(crate) fn store_u32_pairs(
        &self,
        offset: usize,
        count: usize,
        pairs: &mut impl Iterator<Item = [u32; 2]>,
    ) {
        const { assert!(ALIGN >= 4) };
        assert!(offset.is_multiple_of(4) && offset + 8 * count <= self.len);
        // SAFETY: all of them are inside the area, which is aligned for them.
        let first: *mut u32 = unsafe { self.base.as_ptr().add(offset).cast() };
        for (number, pair) in pairs.take(count).enumerate() {
            // SAFETY: as above; see `u16_at`.
            unsafe {
                AtomicU32::from_ptr(first.add(2 * number)).store(pair[0].to_le(), Ordering::Relaxed);
                AtomicU32::from_ptr(first.add(2 * number + 1)).store(pair[1].to_le(), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    pub(crate) fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        u16::from_le(self.u16_at(offset).load(order))
    }

    #[inline]
    pub(crate) fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        self.u16_at(offset).store(value.to_le(), order);
    }

    #[inline]
    pub(crate) fn load_u32(&self, offset: usize) -> u32 {
        u32::from_le(self.u32_at(offset).load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn store_u32(&self, offset: usize, value: u32) {
        self.u32_at(offset).store(value.to_le(), Ordering::Relaxed);
    }

    /// Stores with release ordering: a thread that sees the value sees everything written before.
    #[inline]
    pub(crate) fn store_u32_release(&self, offset: usize, value: u32) {
        self.u32_at(offset).store(value.to_le(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.u64_at(offset).load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        self.u64_at(offset).store(value.to_le(), Ordering::Relaxed);
    }

    /// Loads with acquire ordering: everything written before the value was stored is visible.
    #[inline]
    pub(crate) fn load_u64_acquire(&self, offset: usize) -> u64 {
        u64::from_le(self.u64_at(offset).load(Ordering::Acquire))
    }

    /// Stores with release ordering: a thread that sees the value sees everything written before.
    #[inline]
    pub(crate) fn store_u64_release(&self, offset: usize, value: u64) {
        self.u64_at(offset).store(value.to_le(), Ordering::Release);
    }
}

/// Consecutive pairs of words in an area. One check covers all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pairs<'a> {
    /// The first word, which is aligned. `2 * count` words from here on are in the area.
    first: NonNull<u64>,
    count: usize,
    _area: PhantomData<&'a AtomicU64>,
}

impl Pairs<'_> {
    /// Reads the second word of a pair with acquire ordering, then the first word: the other end
    /// writes them in the opposite order.
    #[inline(always)]
    pub(crate) fn load_second_first(self, number: usize) -> [u64; 2] {
        assert!(number < self.count);
        // SAFETY: both words of each pair are in the area, which stays mapped while it is borrowed,
        // and aligned; see `u16_at`.
        let words = unsafe {
            let first = self.first.as_ptr().add(2 * number);
            [AtomicU64::from_ptr(first), AtomicU64::from_ptr(first.add(1))]
        };
        let second = words[1].load(Ordering::Acquire);
        [words[0].load(Ordering::Relaxed), second].map(u64::from_le)
    }
}
