//! The device end of a packed ring (2.8).
//!
//! A descriptor's length, id and flags are one word: read once, written once. What a batch returns becomes visible by the
//! word of its first descriptor, which is written last; behind it the driver sees all the others.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::chain::{Chain, Chains, Direction, Part};
use super::position_log::PositionLog;
use super::{QueueConfig, Start};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::header;
use crate::memory::{Area, GuestMemory};
use crate::packed::{self, DESC_USED, Descriptor, EVENT_LEN, Event, Position};
use crate::split::{self, DESC_INDIRECT, DESC_NEXT, DESC_WRITE};

/// The device end of a packed ring. Chains are returned in the order in which they were fetched.
#[derive(Debug)]
pub(super) struct PackedRing {
    size: u16,
    event_idx: bool,
    /// The device writes the buffers, and tells how much.
    writes: bool,
    desc: Area<16>,
    /// What the driver wants to be told.
    driver_event: Area<4>,
    /// What this end wants to be told.
    device_event: Area<4>,
    log: Option<PositionLog>,
    /// Next descriptor to fetch.
    next_avail: Position,
    /// Descriptors fetched and not returned.
    outstanding: u16,
    /// Where the next used descriptor goes.
    next_used: Position,
    /// Behind what the driver sees as used.
    published: Position,
    /// The used descriptor of the batch's first chain, which belongs at `published`.
    held: Option<Descriptor>,
    /// Descriptors returned since the driver was last told, or found not to want it; at most `size`.
    unsignalled: u16,
}

impl Descriptor {
    fn part(self) -> Part {
        Part { addr: self.addr, len: self.len, writable: self.has(DESC_WRITE) }
    }
}

impl PackedRing {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        config: &QueueConfig,
        direction: Direction,
    ) -> Result<Self, QueueError> {
        let size = config.size;
        if size == 0 || size > packed::MAX_SIZE {
            return Err(QueueError::PackedSize(size));
        }
        let mut ring = Self {
            size,
            event_idx: config.features & features::EVENT_IDX != 0,
            writes: direction == Direction::Receive,
            desc: split::area(memory, "descriptor ring", config.desc, packed::desc_at(size))?,
            driver_event: split::area(memory, "driver area", config.avail, EVENT_LEN)?,
            device_event: split::area(memory, "device area", config.used, EVENT_LEN)?,
            log: config.log.clone(),
            next_avail: Position::START,
            outstanding: 0,
            next_used: Position::START,
            published: Position::START,
            held: None,
            unsignalled: 0,
        };
        let position = match config.start {
            Start::At(bits) => ring.known(Position::from_bits(bits))?,
            Start::Recover => ring.recover()?,
        };
        (ring.next_avail, ring.next_used, ring.published) = (position, position, position);
        if let Some(log) = &ring.log {
            log.store(position, position);
        }
        Ok(ring)
    }

    /// A position from outside, if the ring has it.
    fn known(&self, position: Position) -> Result<Position, QueueError> {
        let Position { index, .. } = position;
        if index < self.size { Ok(position) } else { Err(QueueError::Position { index, size: self.size }) }
    }

    /// Finds out where the last device end stopped, and clears away what it had begun to return and not shown.
    fn recover(&self) -> Result<Position, QueueError> {
        let (old, new) = self.log.as_ref().and_then(PositionLog::load).ok_or(QueueError::PositionUnknown)?;
        let (old, new) = (self.known(old)?, self.known(new)?);
        // Still available: the batch never became visible. Otherwise it is used, or even available for the next turn.
        let position = if old.is_available(self.load(old).flags) { old } else { new };
        // No driver makes a descriptor used: whatever is, from here to a turn further on, stems from a batch that was not
        // shown. The driver has not looked at it.
        for ahead in 0..self.size {
            let at = position.advance(ahead, self.size);
            let found = self.load(at);
            if at.is_used(found.flags) {
                self.give_up(at, found)?;
            }
        }
        Ok(position)
    }

    /// Makes a descriptor available again that was returned, but not shown.
    fn give_up(&self, at: Position, found: Descriptor) -> Result<(), QueueError> {
        let mut available = Descriptor { flags: found.flags ^ DESC_USED, ..found };
        if self.writes {
            // The driver's length was overwritten. That of a lone buffer is at least what was stored in it, and a header's:
            // it serves as a shorter buffer for once.
            if found.has(DESC_NEXT | DESC_INDIRECT) {
                return Err(QueueError::Torn { index: at.index });
            }
            available.len = found.len.max(header::LEN as u32);
        }
        self.store(at, available);
        Ok(())
    }

    pub(super) fn position(&self) -> u16 {
        self.published.to_bits()
    }

    /// Everything of a descriptor but its address.
    #[inline]
    fn load(&self, at: Position) -> Descriptor {
        // Acquire: the address, the descriptors behind and the buffers were written before the flags.
        Descriptor::from_words([0, self.desc.load_u64_acquire(packed::state_at(at.index))])
    }

    /// Everything of a descriptor but its address.
    #[inline]
    fn store(&self, at: Position, descriptor: Descriptor) {
        let [_, state] = descriptor.to_words();
        // Release: the payload and, for the first of a batch, the other descriptors before the flags.
        self.desc.store_u64_release(packed::state_at(at.index), state);
    }

    #[inline]
    pub(super) fn fetch(
        &mut self,
        chains: &mut Chains,
        out: &mut [Chain],
        parts: usize,
    ) -> Result<usize, RingFault> {
        // Locals, which stay in registers.
        let mut at = self.next_avail;
        let mut room = self.size - self.outstanding;
        let mut done = 0;
        loop {
            let usual = self.near(chains, at, room, parts, &mut out[done..]);
            at = at.advance(usual, self.size);
            room -= usual;
            done += usize::from(usual);
            if done == out.len() || chains.segments.len() > parts {
                break;
            }
            // The first that is something else.
            let head = self.load(at);
            if !at.is_available(head.flags) {
                break;
            }
            let chain = &mut out[done];
            match self.chain(chains, at, room, head, chain) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(fault) => return Err(fault),
            }
            at = at.advance(chain.descriptors, self.size);
            room -= chain.descriptors;
            done += 1;
        }
        self.next_avail = at;
        self.outstanding = self.size - room;
        Ok(done)
    }

    /// The usual chains, one buffer near the last one each, as many as come first, at most `room`; returns how many.
    #[inline(always)]
    fn near(&self, chains: &mut Chains, at: Position, room: u16, parts: usize, out: &mut [Chain]) -> u16 {
        let count = out.len().min(room.into());
        let near = chains.near(parts, &mut out[..count], |number| {
            let at = at.advance(number, self.size);
            let head = self.load(at);
            let Descriptor { addr, len, id, flags } = self.with_address(at, head);
            at.is_available(flags).then_some((id, addr, len, flags))
        });
        near as u16
    }

    #[inline]
    fn with_address(&self, at: Position, state: Descriptor) -> Descriptor {
        Descriptor { addr: self.desc.load_u64(packed::desc_at(at.index)), ..state }
    }

    /// Any chain; `room` descriptors are not with the device.
    #[cold]
    fn chain(
        &self,
        chains: &mut Chains,
        at: Position,
        room: u16,
        head: Descriptor,
        out: &mut Chain,
    ) -> Result<(), RingFault> {
        if room == 0 {
            return Err(RingFault::TooManyAvailable { index: at.index, size: self.size });
        }
        let first = chains.begin();
        let (len, last, descriptors) =
            self.walk(chains, first, at, room, head).inspect_err(|_| chains.abandon(first))?;
        chains.end(first, at.index, len, out)?;
        (out.id, out.descriptors, out.table) = (last.id, descriptors, head.has(DESC_INDIRECT));
        Ok(())
    }

    /// Walks a chain, the last descriptor of which may be an indirect table; returns its length in bytes, its last
    /// descriptor, and how many there are.
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
                return Err(RingFault::DescriptorLoop { head: start.index, size: self.size });
            }
            walked += 1;
            at = at.advance(1, self.size);
            descriptor = self.load(at);
        }
    }

    /// Adds the parts of an indirect table (2.8.7); returns their length.
    fn table(chains: &mut Chains, first: usize, head: u16, descriptor: Descriptor) -> Result<u64, RingFault> {
        let Descriptor { addr: table, len, .. } = descriptor;
        let entries = chains.check_table(head, table, len, descriptor.has(DESC_NEXT))?;
        let mut len = 0;
        for index in 0..entries {
            let entry = Descriptor::from_words(chains.table_entry(table, index)?);
            if entry.has(DESC_INDIRECT) {
                return Err(RingFault::NestedIndirect { head });
            }
            len += u64::from(chains.push_another(first, head, entry.part())?);
        }
        Ok(len)
    }

    /// Returns chains. What is kept of the driver's flags has no meaning in a used descriptor (2.8.6); it is for
    /// [`Self::recover`].
    #[inline]
    pub(super) fn push_used(&mut self, used: impl Iterator<Item = (Chain, u32)>) {
        // Locals, which stay in registers.
        let mut at = self.next_used;
        let mut count = 0;
        for (chain, written) in used {
            let next = if chain.descriptors > 1 { DESC_NEXT } else { 0 };
            let table = if chain.table { DESC_INDIRECT } else { 0 };
            self.push(at, chain.id, written, next | table);
            at = at.advance(chain.descriptors, self.size);
            count += chain.descriptors;
        }
        self.move_on(at, count);
    }

    /// Returns a batch of chains, of which this is the last one and which have so many descriptors, by one used descriptor.
    #[inline]
    pub(super) fn push_batch(&mut self, last: Chain, descriptors: u16) {
        self.push(self.next_used, last.id, 0, 0);
        self.move_on(self.next_used.advance(descriptors, self.size), descriptors);
    }

    #[inline]
    fn push(&mut self, at: Position, id: u16, written: u32, kept: u16) {
        let write = if self.writes { DESC_WRITE } else { 0 };
        let used = Descriptor { addr: 0, len: written, id, flags: at.used_flags() | write | kept };
        if self.published == at {
            self.held = Some(used);
        } else {
            self.return_descriptor(at, used);
        }
    }

    /// `count` descriptors were returned; the next one goes to `at`.
    #[inline]
    fn move_on(&mut self, at: Position, count: u16) {
        self.next_used = at;
        self.outstanding -= count;
        self.unsignalled = self.size.min(self.unsignalled.saturating_add(count));
    }

    #[inline]
    fn return_descriptor(&self, at: Position, used: Descriptor) {
        if self.writes {
            self.store(at, used);
        } else {
            // The length means nothing here, and remains the driver's.
            self.desc.store_u32_release(packed::id_at(at.index), used.id_and_flags());
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
        let moved = std::mem::take(&mut self.unsignalled);
        if moved == 0 {
            return false;
        }
        // The flags must be visible before the driver's wish is read: either we see its new wish, or it, after stating
        // the wish, sees our flags.
        fence(Ordering::SeqCst);
        Event::from_word(self.driver_event.load_u32(0)).wants(self.published, moved, self.size)
    }

    pub(super) fn suspend_kicks(&mut self) {
        self.device_event.store_u32(0, Event::Disable.to_word());
    }

    pub(super) fn arm_kicks(&mut self) -> bool {
        let event = if self.event_idx { Event::At(self.next_avail) } else { Event::Enable };
        self.device_event.store_u32(0, event.to_word());
        // The wish must be visible before the ring is looked at again, or a buffer that comes now is missed by both.
        fence(Ordering::SeqCst);
        self.next_avail.is_available(self.load(self.next_avail).flags)
    }
}
