//! Chains of buffers, and the checks that every descriptor of either ring format passes.

use std::sync::Arc;

use super::MAX_PARTS;
use crate::fault::RingFault;
use crate::memory::{Buffer, GuestMemory, Spans};
use crate::ring::{DESC_INDIRECT, DESC_LEN, DESC_NEXT, DESC_WRITE, Descriptor, Part};

/// Kind of a queue, seen from the driver: it decides what the device does with the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// The device reads. A chain has at most this many bytes.
    Transmit(u64),
    /// The device writes.
    Receive,
}

impl QueueKind {
    /// Most bytes of a chain.
    fn most_bytes(self) -> u64 {
        match self {
            Self::Transmit(most) => most,
            Self::Receive => u64::from(u32::MAX),
        }
    }
}

/// A checked chain. Its parts are `count` spans from `first` on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chain {
    pub(super) first: u32,
    pub(super) len: u32,
    /// Name of the chain towards the driver: its head (split rings) or buffer ID (packed rings).
    pub(super) id: u16,
    pub(super) count: u16,
    /// Number of descriptors in the ring. Used by packed rings only.
    pub(super) descriptors: u16,
    /// True if the chain is an indirect table. Used by packed rings only.
    pub(super) table: bool,
}

/// Destination and limits of a fetch.
#[derive(Debug)]
pub(super) struct Fetch<'a> {
    /// Takes the parts of the chains.
    pub(super) chains: &'a mut Chains,
    /// Takes the chains; its length is the most that are fetched.
    pub(super) out: &'a mut [Chain],
    /// Number of parts in `chains` from which on no further chain is fetched.
    pub(super) parts: usize,
}

/// The checked chains of a queue that are in use.
#[derive(Debug)]
pub(super) struct Chains {
    kind: QueueKind,
    /// True if `INDIRECT_DESC` was negotiated.
    indirect: bool,
    pub(super) spans: Spans,
}

impl Chains {
    /// Chains with room for `capacity` parts before the list of parts has to grow.
    pub(super) fn new(memory: &Arc<GuestMemory>, kind: QueueKind, indirect: bool, capacity: usize) -> Self {
        Self { kind, indirect, spans: Spans::new(Arc::clone(memory), capacity) }
    }

    /// The bytes of a chain.
    #[inline]
    pub(super) fn buffer(&self, chain: Chain) -> Buffer<'_> {
        self.spans.buffer(chain.first as usize, chain.count.into())
    }

    /// Adds *singles*, the most frequent kind of chains, quickly: chains of one buffer each, in the
    /// same memory region as the last buffer. Stops at the first chain of another kind, or when
    /// there are `parts` parts. `next` reads the head descriptor of a chain by its number. Returns
    /// how many chains were added.
    ///
    /// Each chain is written to its final place. A chain that is built elsewhere and copied would
    /// be read before its fields have left the processor's store buffer.
    #[inline(always)]
    pub(super) fn push_singles(
        &mut self,
        parts: usize,
        out: &mut [Chain],
        next: impl Fn(u16) -> Option<(u16, Descriptor)>,
    ) -> usize {
        let wanted = if self.kind == QueueKind::Receive { DESC_WRITE } else { 0 };
        let begin = self.spans.len();
        let count = out.len().min(parts.saturating_sub(begin));
        let out = &mut out[..count];
        self.spans.push_near(count, self.kind.most_bytes(), |number| {
            let (id, Descriptor { addr, len, flags, .. }) = next(number as u16)?;
            if flags & (DESC_NEXT | DESC_WRITE | DESC_INDIRECT) != wanted {
                return None;
            }
            out[number] =
                Chain { first: (begin + number) as u32, count: 1, id, len, descriptors: 1, table: false };
            Some((addr, len.into()))
        })
    }

    /// Adds a chain of one buffer.
    #[inline]
    pub(super) fn push_single(&mut self, id: u16, part: Part, out: &mut Chain) -> Result<(), RingFault> {
        let first = self.begin();
        let len = self.push(id, part)?;
        self.end(first, id, len.into(), out)
    }

    /// Begins a chain of several parts. [`Self::end`] ends it.
    #[inline]
    pub(super) fn begin(&self) -> usize {
        self.spans.len()
    }

    /// Ends the chain that was begun at `first` and has `len` bytes in total.
    #[inline]
    pub(super) fn end(&mut self, first: usize, id: u16, len: u64, out: &mut Chain) -> Result<(), RingFault> {
        let most = self.kind.most_bytes();
        if len > most {
            self.spans.truncate(first);
            return Err(RingFault::LengthOverflow { head: id, len, most });
        }
        let count = (self.spans.len() - first) as u16;
        *out = Chain { first: first as u32, count, id, len: len as u32, descriptors: 1, table: false };
        Ok(())
    }

    /// Removes the parts of a faulty chain that was begun at `first`.
    #[cold]
    pub(super) fn abandon(&mut self, first: usize) {
        self.spans.truncate(first);
    }

    /// Checks one buffer and adds it to the spans. Returns its length.
    #[inline]
    pub(super) fn push(&mut self, id: u16, part: Part) -> Result<u32, RingFault> {
        let Part { addr, len, writable } = part;
        let device_writes = self.kind == QueueKind::Receive;
        if len != 0 && writable == device_writes && self.spans.push(addr, u64::from(len)) {
            return Ok(len);
        }
        Err(self.fault_of(id, part))
    }

    /// The fault of a part that [`Self::push`] refused.
    #[cold]
    fn fault_of(&self, head: u16, part: Part) -> RingFault {
        let (addr, len) = (part.addr, u64::from(part.len));
        match self.kind {
            QueueKind::Transmit(_) if part.writable => RingFault::WritableInTransmit { head },
            QueueKind::Receive if !part.writable => RingFault::ReadableInReceive { head },
            _ if len == 0 => RingFault::ZeroLength { head },
            _ if addr.checked_add(len).is_none() => RingFault::AddressOverflow { addr, len },
            _ => RingFault::AddressOutside { addr, len },
        }
    }

    /// Adds a part to the chain that was begun at `first`. Fails if the chain has too many parts.
    pub(super) fn push_another(&mut self, first: usize, id: u16, part: Part) -> Result<u32, RingFault> {
        let len = self.push(id, part)?;
        if self.spans.len() - first > MAX_PARTS {
            return Err(RingFault::ChainTooLong { head: id, most: MAX_PARTS });
        }
        Ok(len)
    }

    /// Checks the address and length of an indirect table and returns its number of descriptors.
    /// `next`: whether the descriptor of the table has a successor.
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

    /// Reads entry `index` of a table that [`Self::check_table`] accepted: two words, each once.
    pub(super) fn table_entry(&mut self, table: u64, index: u16) -> Result<[u64; 2], RingFault> {
        // No overflow: the table's end was checked.
        let addr = table + (usize::from(index) * DESC_LEN) as u64;
        let outside = RingFault::AddressOutside { addr, len: DESC_LEN as u64 };
        self.spans.load_u64_pair(addr).ok_or(outside)
    }
}
