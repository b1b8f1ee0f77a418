//! Chains of buffers, and the checks that every descriptor of either ring format goes through.

use std::sync::Arc;

use super::MAX_PARTS;
use crate::fault::RingFault;
use crate::memory::{Buffer, GuestMemory, Segments};
use crate::split::{DESC_INDIRECT, DESC_LEN, DESC_NEXT, DESC_WRITE};

/// What a queue's buffers are for, seen from the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The device reads; a chain has at most this many bytes.
    Transmit(u64),
    /// The device writes.
    Receive,
}

impl Direction {
    fn most(self) -> u64 {
        match self {
            Self::Transmit(most) => most,
            Self::Receive => u64::from(u32::MAX),
        }
    }
}

/// A checked chain. Its parts are `count` segments from `first` on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) len: u32,
    /// What the driver knows it by: its head (split rings), its buffer ID (packed rings).
    pub(super) id: u16,
    pub(super) count: u16,
    /// How many descriptors it has in the ring. Only packed rings ask.
    pub(super) descriptors: u16,
    /// It is an indirect table. Only packed rings ask.
    pub(super) table: bool,
}

/// One buffer of a chain as the driver described it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) writable: bool,
}

/// The checked chains of a queue that are in use.
#[derive(Debug)]
pub(super) struct Chains {
    direction: Direction,
    /// `INDIRECT_DESC` was negotiated.
    indirect: bool,
    pub(super) segments: Segments,
}

impl Chains {
    /// Room for `capacity` parts.
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        direction: Direction,
        indirect: bool,
        capacity: usize,
    ) -> Self {
        Self { direction, indirect, segments: Segments::new(Arc::clone(memory), capacity) }
    }

    /// The bytes of a chain.
    #[inline]
    pub(super) fn buffer(&self, chain: Chain) -> Buffer<'_> {
        self.segments.buffer(chain.first as usize, chain.count.into())
    }

    /// The most frequent chains, quickly: as many as come first of one buffer near the last one each, until there are `parts`
    /// parts. `next` gives the name, address, length and flags of one by its number; returns how many there were. Each is written
    /// to where it is kept: built elsewhere and copied, it would be read before its parts have left the processor's
    /// store buffer.
    #[inline(always)]
    pub(super) fn near(
        &mut self,
        parts: usize,
        out: &mut [Chain],
        next: impl Fn(u16) -> Option<(u16, u64, u32, u16)>,
    ) -> usize {
        let usual = if self.direction == Direction::Receive { DESC_WRITE } else { 0 };
        let begin = self.segments.len();
        let count = out.len().min(parts.saturating_sub(begin));
        let out = &mut out[..count];
        self.segments.push_near(count, self.direction.most(), |number| {
            let (id, addr, len, flags) = next(number as u16)?;
            if flags & (DESC_NEXT | DESC_WRITE | DESC_INDIRECT) != usual {
                return None;
            }
            out[number] =
                Chain { first: (begin + number) as u32, count: 1, id, len, descriptors: 1, table: false };
            Some((addr, len.into()))
        })
    }

    /// A chain of one buffer.
    #[inline]
    pub(super) fn single(&mut self, id: u16, part: Part, out: &mut Chain) -> Result<(), RingFault> {
        let first = self.begin();
        let len = self.push(id, part)?;
        self.end(first, id, len.into(), out)
    }

    /// Begins a chain of several parts; [`Self::end`] ends it.
    #[inline]
    pub(super) fn begin(&self) -> usize {
        self.segments.len()
    }

    /// Ends the chain that was begun at `first`, with `len` bytes in all.
    #[inline]
    pub(super) fn end(&mut self, first: usize, id: u16, len: u64, out: &mut Chain) -> Result<(), RingFault> {
        let most = self.direction.most();
        if len > most {
            self.segments.truncate(first);
            return Err(RingFault::LengthOverflow { head: id, len, most });
        }
        let count = (self.segments.len() - first) as u16;
        *out = Chain { first: first as u32, count, id, len: len as u32, descriptors: 1, table: false };
        Ok(())
    }

    /// Forgets the parts of a chain that was begun at `first` and turned out faulty.
    #[cold]
    pub(super) fn abandon(&mut self, first: usize) {
        self.segments.truncate(first);
    }

    /// Checks one buffer and adds it to the segments; returns its length.
    #[inline]
    pub(super) fn push(&mut self, id: u16, part: Part) -> Result<u32, RingFault> {
        let Part { addr, len, writable } = part;
        let device_writes = self.direction == Direction::Receive;
        if len != 0 && writable == device_writes && self.segments.push(addr, u64::from(len)) {
            return Ok(len);
        }
        Err(self.why_not(id, part))
    }

    #[cold]
    fn why_not(&self, head: u16, part: Part) -> RingFault {
        let (addr, len) = (part.addr, u64::from(part.len));
        match self.direction {
            Direction::Transmit(_) if part.writable => RingFault::WritableInTransmit { head },
            Direction::Receive if !part.writable => RingFault::ReadableInReceive { head },
            _ if len == 0 => RingFault::ZeroLength { head },
            _ if addr.checked_add(len).is_none() => RingFault::AddressOverflow { addr, len },
            _ => RingFault::AddressOutside { addr, len },
        }
    }

    /// Adds a part to the chain that was begun at `first`, unless that has too many already.
    pub(super) fn push_another(&mut self, first: usize, id: u16, part: Part) -> Result<u32, RingFault> {
        let len = self.push(id, part)?;
        if self.segments.len() - first > MAX_PARTS {
            return Err(RingFault::ChainTooLong { head: id, most: MAX_PARTS });
        }
        Ok(len)
    }

    /// Checks where an indirect table is; returns its number of descriptors. `next`: its descriptor has a successor.
    pub(super) fn check_table(&self, head: u16, addr: u64, len: u32, next: bool) -> Result<u16, RingFault> {
        if !self.indirect {
            return Err(RingFault::IndirectNotNegotiated { head });
        }
        if next {
            return Err(RingFault::IndirectWithNext { head });
        }
        if len == 0 || !(len as usize).is_multiple_of(DESC_LEN) || len as usize > MAX_PARTS * DESC_LEN {
            return Err(RingFault::IndirectTableSize { head, len });
        }
        if !addr.is_multiple_of(8) {
            return Err(RingFault::IndirectTableMisaligned { head, addr });
        }
        if addr.checked_add(u64::from(len)).is_none() {
            return Err(RingFault::AddressOverflow { addr, len: u64::from(len) });
        }
        Ok((len as usize / DESC_LEN) as u16)
    }

    /// The two words of entry `index` of a table that [`Self::check_table`] found in order, read once.
    pub(super) fn table_entry(&mut self, table: u64, index: u16) -> Result<[u64; 2], RingFault> {
        // No overflow: the table's end was checked.
        let addr = table + (usize::from(index) * DESC_LEN) as u64;
        let outside = RingFault::AddressOutside { addr, len: DESC_LEN as u64 };
        self.segments.load_u64_pair(addr).ok_or(outside)
    }
}
