//! Guest addresses translated to host addresses.
//!
//! A [`Span`] is a checked host address. It never leaves the [`Spans`] that translated it,
//! which keep the memory mapped; a [`Buffer`] borrows from there. The bytes behind both can change
//! at any time, and two spans may overlap when two guests share memory. All copies are therefore
//! `memmove`s over raw pointers.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::{Buffer, GuestMemory, frame_copy, prefetch};

/// `len` mapped bytes at `base`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

impl Span {
    /// A span without bytes.
    pub(super) const EMPTY: Self = Self { base: NonNull::dangling(), len: 0 };
}

/// The region of the last address. Nearly always it is also that of the next address.
#[derive(Debug, Clone, Copy)]
struct LastRegion {
    start: u64,
    size: u64,
    host: NonNull<u8>,
}

/// Spans of one guest memory, which stays mapped while they exist.
#[derive(Debug)]
pub(crate) struct Spans {
    memory: Arc<GuestMemory>,
    last: LastRegion,
    /// The spans; the first `len` are in use.
    list: Box<[Span]>,
    len: usize,
    /// Room that the list keeps when it is emptied.
    capacity: usize,
}

/// Room that every list may keep: that of a packet of 64 KiB in pages, which Linux sends.
const KEPT: usize = 32;

// SAFETY: the pointers lie in `memory`, which is Send and Sync, and are used only for copies that
// expect concurrent writers.
unsafe impl Send for Spans {}
// SAFETY: as above.
unsafe impl Sync for Spans {}

impl Spans {
    /// An empty list with room for `capacity` spans. More of them allocate; [`Self::clear`] gives
    /// that back.
    pub(crate) fn new(memory: Arc<GuestMemory>, capacity: usize) -> Self {
        let last = LastRegion { start: 0, size: 0, host: NonNull::dangling() };
        Self { memory, last, list: vec![Span::EMPTY; capacity].into(), len: 0, capacity: capacity.max(KEPT) }
    }

    /// Number of spans.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of spans that fit without growing.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.list.len()
    }

    /// Removes all spans.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        if self.list.len() > self.capacity {
            self.shrink();
        }
    }

    /// Gives back the room that the list has gained for a driver with very many parts.
    #[cold]
    fn shrink(&mut self) {
        let mut list = std::mem::take(&mut self.list).into_vec();
        list.truncate(self.capacity);
        self.list = list.into();
    }

    /// Removes all spans from `len` on.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes the first `count` spans; the others move to the front.
    pub(crate) fn remove_first(&mut self, count: usize) {
        self.list.copy_within(count..self.len, 0);
        self.len -= count;
    }

    #[inline]
    fn add(&mut self, span: Span) {
        if self.len == self.list.len() {
            self.grow();
        }
        self.list[self.len] = span;
        self.len += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let mut list = std::mem::take(&mut self.list).into_vec();
        list.resize(2 * list.len().max(1), Span::EMPTY);
        self.list = list.into();
    }

    /// Adds up to `count` spans of one to `most` bytes in the same region as the last span. `next`
    /// returns address and length of a span by its number. Stops at the first span that is not so,
    /// and when the list is full. Returns how many were added.
    #[inline(always)]
    pub(crate) fn push_near(
        &mut self,
        count: usize,
        most: u64,
        mut next: impl FnMut(usize) -> Option<(u64, u64)>,
    ) -> usize {
        // A local, which stays in registers.
        let LastRegion { start, size, host } = self.last;
        let mut added = 0;
        for (number, room) in self.list[self.len..].iter_mut().take(count).enumerate() {
            let Some((addr, len)) = next(number) else { break };
            let at = addr.wrapping_sub(start);
            if at >= size || len > size - at || len.wrapping_sub(1) >= most {
                break;
            }
            // SAFETY: `at` is less than the region's size, so this is inside the region.
            *room = Span { base: unsafe { host.add(at as usize) }, len: len as usize };
            added = number + 1;
        }
        self.len += added;
        added
    }

    /// The longest piece in one region from an address on, at most `len` bytes.
    #[inline]
    fn translate(&mut self, addr: u64, len: u64) -> Option<Span> {
        let mut at = addr.wrapping_sub(self.last.start);
        if at >= self.last.size {
            let region = self.memory.find(addr)?;
            debug_assert!(region.offset as u64 + region.spec.size <= region.mapping.len() as u64);
            // SAFETY: a region's offset is inside its mapping.
            let host = unsafe { region.mapping.base().add(region.offset) };
            self.last = LastRegion { start: region.spec.guest_addr, size: region.spec.size, host };
            at = addr - region.spec.guest_addr;
        }
        let len = len.min(self.last.size - at) as usize;
        // SAFETY: `at` is less than the region's size, so this is inside the region.
        Some(Span { base: unsafe { self.last.host.add(at as usize) }, len })
    }

    /// Adds `len` bytes from a guest address on, which may lie in several adjoining regions.
    /// Returns false and adds nothing when one of the bytes is not in guest memory.
    #[inline]
    pub(crate) fn push(&mut self, addr: u64, len: u64) -> bool {
        match self.translate(addr, len) {
            Some(span) if span.len as u64 == len => {
                self.add(span);
                true
            }
            Some(_) => self.push_across_regions(addr, len),
            None => false,
        }
    }

    #[cold]
    fn push_across_regions(&mut self, mut addr: u64, mut len: u64) -> bool {
        let before = self.len;
        while len > 0 {
            let Some(span) = self.translate(addr, len) else {
                self.len = before;
                return false;
            };
            self.add(span);
            len -= span.len as u64;
            let Some(next) = addr.checked_add(span.len as u64) else {
                self.len = before;
                return false;
            };
            addr = next;
        }
        true
    }

    /// Reads two little-endian words, each once, at a guest address aligned to 8 bytes.
    pub(crate) fn load_u64_pair(&mut self, addr: u64) -> Option<[u64; 2]> {
        let span =
            self.translate(addr, 16).filter(|s| s.len == 16 && s.base.as_ptr().addr().is_multiple_of(8))?;
        #[expect(clippy::cast_ptr_alignment, reason = "checked above")]
        let words = span.base.as_ptr().cast::<u64>();
        // SAFETY: these are 16 mapped bytes, aligned to 8. This process accesses them only by
        // atomics and raw copies.
        let [low, high] = unsafe { [AtomicU64::from_ptr(words), AtomicU64::from_ptr(words.add(1))] };
        Some([low, high].map(|word| u64::from_le(word.load(Ordering::Relaxed))))
    }

    /// View of the spans, for a loop over many of them.
    #[inline(always)]
    pub(crate) fn view(&self) -> SpanView<'_> {
        SpanView(&self.list[..self.len])
    }

    /// Prefetches the first two cache lines of span `number` for writing.
    #[inline(always)]
    pub(crate) fn prefetch_for_write(&self, number: usize) {
        let base = self.list[..self.len][number].base.as_ptr();
        prefetch::for_write(base);
        prefetch::for_write(base.wrapping_add(prefetch::LINE));
    }

    /// The bytes of `count` spans in a row, from `first` on.
    #[inline]
    pub(crate) fn buffer(&self, first: usize, count: usize) -> Buffer<'_> {
        match self.list[..self.len][first..first + count] {
            [head, ref rest @ ..] => Buffer::new(head, rest),
            [] => Buffer::empty(),
        }
    }
}

/// View of spans that do not change in the meantime, so that their address stays in registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanView<'s>(&'s [Span]);

impl SpanView<'_> {
    /// Copies the first `N` bytes of span `number` out, header and rest separately: buffers are
    /// often placed so that one of the two is a whole cache line. Returns false and copies nothing
    /// when the span is shorter.
    #[inline(always)]
    pub(crate) fn read_start<const HEADER: usize, const N: usize>(
        self,
        number: usize,
        out: &mut [u8; N],
    ) -> bool {
        let span = self.0[number];
        if span.len < N {
            return false;
        }
        let (header, rest) = out.split_at_mut(HEADER);
        // SAFETY: N mapped bytes, HEADER of them first; see `Buffer::read`.
        unsafe {
            std::ptr::copy(span.base.as_ptr(), header.as_mut_ptr(), HEADER);
            std::ptr::copy(span.base.as_ptr().add(HEADER), rest.as_mut_ptr(), N - HEADER);
        }
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Copies `len` bytes into span `to`: `header`, then `start` as far as it is needed, and
    /// behind both what lies behind as many bytes in span `at` of `from`. False, and nothing
    /// copied, when either span or `len` is too short. `next` is the span whose lines are
    /// asked for meanwhile: the one that as much will be written to next, or `to`.
    #[inline(always)]
    pub(crate) fn copy_behind<const HEADER: usize, const START: usize>(
        self,
        to: usize,
        (header, start): (&[u8; HEADER], &[u8; START]),
        from: Self,
        at: usize,
        len: usize,
        next: impl FnOnce() -> usize,
    ) -> bool {
        let to = self.0[to];
        if len > to.len || len < HEADER {
            return false;
        }
        let head = HEADER + START;
        if len <= head {
            // SAFETY: `len` bytes of both into a mapped span that is at least as long.
            unsafe {
                std::ptr::copy(header.as_ptr(), to.base.as_ptr(), HEADER);
                frame_copy::short(start.as_ptr(), to.base.as_ptr().add(HEADER), len - HEADER, START);
            };
            return true;
        }
        let from = from.0[at];
        if len > from.len {
            return false;
        }
        let next = self.0[next()].base.as_ptr().wrapping_add(head);
        // SAFETY: `head` < `len`, and both spans are mapped and have `len` bytes; ptr::copy
        // allows them to overlap.
        unsafe {
            std::ptr::copy(header.as_ptr(), to.base.as_ptr(), HEADER);
            std::ptr::copy(start.as_ptr(), to.base.as_ptr().add(HEADER), START);
            frame_copy::rest(from.base.as_ptr().add(head), to.base.as_ptr().add(head), len - head, next);
        }
        true
    }
}
