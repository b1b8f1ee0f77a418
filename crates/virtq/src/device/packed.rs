//! The device end of a packed ring (2.8).
//!
//! Length, ID and flags of a descriptor are one word, which is read once and written once. A batch
//! of returned chains becomes visible through the word of its first descriptor, which is written
//! last.
//!
//! A cache line has four descriptors, and each line travels between the driver's core and this one
//! twice a turn of the ring. How the ring is read decides its speed:
//! - The lines of a receive ring are prefetched for writing. A line that was only read would have
//!   to be claimed from the driver's core once more.
//! - The lines of a transmit ring behind a long burst are prefetched while the burst is copied.
//! - A look at a transmit ring takes at most twice as many chains as the last look found, or four.
//!   A look that goes on until it finds nothing fetches the line in which the driver is writing,
//!   and the driver's core has to fetch it back. Receive rings have no such limit, because their
//!   drivers usually add buffers far ahead.

use std::sync::Arc;

use super::chain::{Chain, Chains, Fetch, QueueKind};
use crate::fault::{QueueError, RingFault};
use crate::header;
use crate::memory::GuestMemory;
use crate::ring::packed::{self, Areas, DESC_USED, Position};
use crate::ring::{
    DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor, PositionLog, QueueConfig, Start, desc_at,
};

/// Descriptors in a cache line.
const PER_LINE: u16 = 4;
/// Chains that a look at a transmit ring may always take.
const SHORT_LOOK: usize = 4;
/// A look that found more chains prefetches the descriptors behind them.
const LONG_BURST: usize = 8;

/// The device end of a packed ring. Chains are returned in the order in which they were fetched.
#[derive(Debug)]
pub(super) struct PackedRing {
    areas: Areas,
    /// True if the device writes the buffers, and tells how many bytes.
    writes: bool,
    log: Option<PositionLog>,
    /// Next descriptor to fetch.
    next_avail: Position,
    /// Chains that the next look at a transmit ring takes at most, and the next look at a receive
    /// ring prefetches.
    look_limit: usize,
    /// Descriptors fetched and not returned.
    outstanding: u16,
    /// Position of the next used descriptor.
    next_used: Position,
    /// Position behind the last descriptor that the driver sees as used.
    published: Position,
    /// The used descriptor of the first chain in the batch. It belongs at `published`.
    held: Option<Descriptor>,
    /// Descriptors returned since the driver was last interrupted, or found not to want an
    /// interrupt; at most the size of the ring.
    unsignalled: u16,
}

impl PackedRing {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        config: &QueueConfig,
        kind: QueueKind,
    ) -> Result<Self, QueueError> {
        let addresses = [config.desc, config.avail, config.used];
        let mut ring = Self {
            areas: Areas::new(memory, config.size, addresses, config.features)?,
            writes: kind == QueueKind::Receive,
            log: config.log.clone(),
            next_avail: Position::START,
            look_limit: usize::MAX,
            outstanding: 0,
            next_used: Position::START,
            published: Position::START,
            held: None,
            unsignalled: 0,
        };
        let position = match config.start {
            Start::At(bits) => ring.check_position(Position::from_bits(bits))?,
            Start::Recover => ring.recover()?,
        };
        (ring.next_avail, ring.next_used, ring.published) = (position, position, position);
        if let Some(log) = &ring.log {
            log.store(position, position);
        }
        Ok(ring)
    }

    /// Checks a position from outside against the size of the ring.
    fn check_position(&self, position: Position) -> Result<Position, QueueError> {
        let Position { index, .. } = position;
        if index < self.areas.size {
            Ok(position)
        } else {
            Err(QueueError::Position { index, size: self.areas.size })
        }
    }

    /// Finds the position where the last device end stopped, and undoes the part of a batch that it
    /// had returned but not published.
    fn recover(&self) -> Result<Position, QueueError> {
        let (old, new) = self.log.as_ref().and_then(PositionLog::load).ok_or(QueueError::PositionUnknown)?;
        let (old, new) = (self.check_position(old)?, self.check_position(new)?);
        // If its first descriptor is still available, the batch never became visible. Otherwise it
        // is used, or even available again in the next turn of the ring.
        let position = if old.is_available(self.areas.load(old).flags) { old } else { new };
        // Drivers never make a descriptor used. Every used descriptor in the turn from here on
        // stems from an unpublished batch, and the driver has not looked at it.
        for ahead in 0..self.areas.size {
            let at = position.advance(ahead, self.areas.size);
            let found = self.areas.load(at);
            if at.is_used(found.flags) {
                self.undo_return(at, found)?;
            }
        }
        Ok(position)
    }

    /// Makes a descriptor available again that was returned but not published.
    fn undo_return(&self, at: Position, found: Descriptor) -> Result<(), QueueError> {
        let mut available = Descriptor { flags: found.flags ^ DESC_USED, ..found };
        if self.writes {
            // The driver's length was overwritten. A single buffer has at least as many bytes as
            // were stored in it, and as a header: it serves as a shorter buffer this time.
            if found.has(DESC_NEXT | DESC_INDIRECT) {
                return Err(QueueError::Torn { index: at.index });
            }
            available.len = found.len.max(header::LEN as u32);
        }
        self.store(at, available);
        Ok(())
    }

    /// Position of the first descriptor that the driver does not see as used.
    pub(super) fn position(&self) -> u16 {
        self.published.to_bits()
    }

    /// Writes everything of a descriptor but its address.
    #[inline]
    fn store(&self, at: Position, descriptor: Descriptor) {
        let [_, state] = packed::encode(descriptor);
        // Release: the payload and, for the first of a batch, the other descriptors before the
        // flags.
        self.areas.desc.store_u64_release(packed::state_at(at.index), state);
    }

    /// Fetches waiting chains and returns how many. See [`super::ring::Ring::fetch`].
    #[inline]
    pub(super) fn fetch(&mut self, into: Fetch<'_>) -> Result<usize, RingFault> {
        let Fetch { chains, out, parts } = into;
        let limit = out.len().min(self.look_limit);
        let out = if self.writes {
            self.lines(self.next_avail.index, limit)
                .for_each(|offset| self.areas.desc.prefetch_for_write(offset));
            out
        } else {
            &mut out[..limit]
        };
        // Locals, which stay in registers.
        let mut at = self.next_avail;
        let mut room = self.areas.size - self.outstanding;
        let mut done = 0;
        loop {
            let singles = self.fetch_singles(chains, at, room, parts, &mut out[done..]);
            at = at.advance(singles, self.areas.size);
            room -= singles;
            done += usize::from(singles);
            if done == out.len() || chains.spans.len() > parts {
                break;
            }
            if singles > 0 && at.index == 0 {
                // Go on at the start of the ring.
                continue;
            }
            // The first chain of another kind.
            let head = self.areas.load(at);
            if !at.is_available(head.flags) {
                break;
            }
            let chain = &mut out[done];
            match self.fetch_any(chains, at, room, head, chain) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(fault) => return Err(fault),
            }
            at = at.advance(chain.descriptors, self.areas.size);
            room -= chain.descriptors;
            done += 1;
        }
        self.look_limit = SHORT_LOOK.max(2 * done);
        self.next_avail = at;
        if !self.writes && done > LONG_BURST {
            self.lines(at.index, done).for_each(|offset| self.areas.desc.prefetch(offset));
        }
        self.outstanding = self.areas.size - room;
        Ok(done)
    }

    /// Returns an offset in each cache line of `count` descriptors from `start` on. If the size of
    /// the ring is not a multiple of [`PER_LINE`], the last line may be missing.
    #[inline(always)]
    fn lines(&self, start: u16, count: usize) -> impl Iterator<Item = usize> + use<> {
        let size = self.areas.size;
        let in_line = start % PER_LINE;
        let mut index = start - in_line;
        (0..(usize::from(in_line) + count).div_ceil(PER_LINE.into())).map(move |_| {
            let offset = desc_at(index);
            index += PER_LINE;
            if index >= size {
                index = 0;
            }
            offset
        })
    }

    /// Fetches at most `room` singles ([`Chains::push_singles`]), until a chain of another kind
    /// comes or the ring ends. Returns how many.
    #[inline(always)]
    fn fetch_singles(
        &self,
        chains: &mut Chains,
        at: Position,
        room: u16,
        parts: usize,
        out: &mut [Chain],
    ) -> u16 {
        // Up to the end of the ring, the same flags make a descriptor available.
        let before_end = self.areas.size - at.index;
        let count = out.len().min(room.min(before_end).into());
        let descriptors = self.areas.desc.pairs(desc_at(at.index), count);
        let singles = chains.push_singles(parts, &mut out[..count], |number| {
            let descriptor = packed::decode(descriptors.load_second_first(number.into()));
            at.is_available(descriptor.flags).then_some((descriptor.id_or_next, descriptor))
        });
        singles as u16
    }

    /// Adds the address to a descriptor that was read without it.
    #[inline]
    fn with_address(&self, at: Position, state: Descriptor) -> Descriptor {
        Descriptor { addr: self.areas.desc.load_u64(desc_at(at.index)), ..state }
    }

    /// Fetches a chain of any kind. `room`: number of descriptors that are not with the device.
    #[cold]
    fn fetch_any(
        &self,
        chains: &mut Chains,
        at: Position,
        room: u16,
        head: Descriptor,
        out: &mut Chain,
    ) -> Result<(), RingFault> {
        if room == 0 {
            return Err(RingFault::TooManyAvailable { index: at.index, size: self.areas.size });
        }
        let first = chains.begin();
        let (len, last, descriptors) =
            self.walk(chains, first, at, room, head).inspect_err(|_| chains.abandon(first))?;
        chains.end(first, at.index, len, out)?;
        (out.id, out.descriptors, out.table) = (last.id_or_next, descriptors, head.has(DESC_INDIRECT));
        Ok(())
    }

    /// Walks a chain, the last descriptor of which may be an indirect table. Returns its length in
    /// bytes, its last descriptor and the number of descriptors.
    fn walk(
        &self,
        chains: &mut Chains,
        first: usize,
        start: Position,
        room: u16,
        head: Descriptor,
    ) -> Result<(u64, Descriptor, u16), RingFault> {
        let mut len = 0;
        let mut walked = 1;
        let mut at = start;
        let mut descriptor = head;
        loop {
            descriptor = self.with_address(at, descriptor);
            if descriptor.has(DESC_INDIRECT) {
                len += Self::table(chains, first, start.index, descriptor)?;
                return Ok((len, descriptor, walked));
            }
            len += u64::from(chains.push_another(first, start.index, descriptor.part())?);
            if !descriptor.has(DESC_NEXT) {
                return Ok((len, descriptor, walked));
            }
            if walked == room {
                return Err(RingFault::DescriptorLoop { head: start.index, size: self.areas.size });
            }
            walked += 1;
            at = at.advance(1, self.areas.size);
            descriptor = self.areas.load(at);
        }
    }

    /// Adds the parts of an indirect table (2.8.7). Returns their length in bytes.
    fn table(chains: &mut Chains, first: usize, head: u16, descriptor: Descriptor) -> Result<u64, RingFault> {
        let Descriptor { addr: table, len, .. } = descriptor;
        let entries = chains.check_table(head, table, len, descriptor.has(DESC_NEXT))?;
        let mut len = 0;
        for index in 0..entries {
            let entry = packed::decode(chains.table_entry(table, index)?);
            if entry.has(DESC_INDIRECT) {
                return Err(RingFault::NestedIndirect { head });
            }
            len += u64::from(chains.push_another(first, head, entry.part())?);
        }
        Ok(len)
    }

    /// Returns chains, each with the number of bytes written. The driver's flags that are kept have
    /// no meaning in a used descriptor (2.8.6); [`Self::recover`] needs them.
    #[inline]
    pub(super) fn push_used(&mut self, used: impl Iterator<Item = (Chain, u32)>) {
        // Locals, which stay in registers.
        let size = self.areas.size;
        let mut at = self.next_used;
        let mut count = 0;
        for (chain, written) in used {
            let next = if chain.descriptors > 1 { DESC_NEXT } else { 0 };
            let table = if chain.table { DESC_INDIRECT } else { 0 };
            self.push(at, chain.id, written, next | table);
            at = at.advance(chain.descriptors, size);
            count += chain.descriptors;
        }
        self.move_on(at, count);
    }

    /// Returns a batch of chains that have `descriptors` descriptors by one used descriptor, which
    /// names the last chain.
    #[inline]
    pub(super) fn push_batch(&mut self, last: Chain, descriptors: u16) {
        self.push(self.next_used, last.id, 0, 0);
        self.move_on(self.next_used.advance(descriptors, self.areas.size), descriptors);
    }

    /// Returns one chain. `kept`: flags of the driver that stay.
    #[inline]
    fn push(&mut self, at: Position, id: u16, written: u32, kept: u16) {
        let write = if self.writes { DESC_WRITE } else { 0 };
        let flags = at.used_flags() | write | kept;
        let used = Descriptor { addr: 0, len: written, id_or_next: id, flags };
        if self.published == at {
            self.held = Some(used);
        } else {
            self.return_descriptor(at, used);
        }
    }

    /// Counts `count` returned descriptors; the next one goes to `at`.
    #[inline]
    fn move_on(&mut self, at: Position, count: u16) {
        self.next_used = at;
        self.outstanding -= count;
        self.unsignalled = self.areas.size.min(self.unsignalled.saturating_add(count));
    }

    /// Writes a used descriptor.
    #[inline]
    fn return_descriptor(&self, at: Position, used: Descriptor) {
        if self.writes {
            self.store(at, used);
        } else {
            // The length has no meaning here and stays as the driver wrote it.
            self.areas.desc.store_u32_release(packed::id_at(at.index), packed::id_and_flags(used));
        }
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        if let Some(first) = self.held.take() {
            if let Some(log) = &self.log {
                log.store(self.published, self.next_used);
            }
            self.return_descriptor(self.published, first);
            self.published = self.next_used;
        }
    }

    #[inline]
    pub(super) fn needs_interrupt(&mut self) -> bool {
        let Areas { driver_event, size, .. } = &self.areas;
        packed::needs_notification(driver_event, &mut self.unsignalled, self.published, *size)
    }

    pub(super) fn suspend_kicks(&mut self) {
        packed::suspend_notifications(&self.areas.device_event);
    }

    pub(super) fn arm_kicks(&mut self) -> bool {
        let at = self.next_avail;
        self.areas.arm_notifications(&self.areas.device_event, at, |flags| at.is_available(flags))
    }
}
