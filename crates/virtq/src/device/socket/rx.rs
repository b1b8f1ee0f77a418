//! Receive queues: packets to the guest.

use std::sync::Arc;

use super::SocketTx;
use crate::device::MAX_PARTS;
use crate::device::chain::{Chain, Chains, Fetch, QueueKind};
use crate::device::split::SplitRing;
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::GuestMemory;
use crate::ring::QueueConfig;
use crate::socket_header::{self, SocketHeader};

/// Least length of a buffer: a header and a byte of payload. A stream could not make progress with
/// less.
const LEAST: u32 = socket_header::LEN as u32 + 1;

/// A piece of the payload to deliver.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// A piece of a packet that is taken.
    Packet {
        /// The queue that the packet was taken from.
        from: &'a SocketTx,
        /// Head of the packet.
        head: u16,
        /// Offset of the piece in the payload, in bytes.
        offset: u32,
        /// Length of the piece in bytes. Bytes beyond the end of the packet are left out.
        len: u32,
    },
    /// Bytes in the memory of this process.
    Bytes(&'a [u8]),
}

/// The receive queue of a guest's socket device.
#[derive(Debug)]
pub struct SocketRx {
    ring: SplitRing,
    chains: Chains,
    /// The buffer that was fetched and is not used yet.
    next: Option<Chain>,
    fault: Option<RingFault>,
}

impl SocketRx {
    /// Sets up the device end of a queue that a driver and its front end have configured. The ring
    /// must be split.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        super::check(config)?;
        let indirect = config.features & features::INDIRECT_DESC != 0;
        let chains = Chains::new(memory, QueueKind::Receive, indirect, MAX_PARTS + 1);
        Ok(Self { ring: SplitRing::new(memory, config)?, chains, next: None, fault: None })
    }

    /// Number of payload bytes that the next buffer takes behind the header, at least one; `None`
    /// when there is no buffer.
    #[inline]
    pub fn room(&mut self) -> Result<Option<u32>, RingFault> {
        Ok(self.next()?.map(|chain| chain.len - socket_header::LEN as u32))
    }

    /// The next buffer, fetched if necessary.
    #[inline]
    fn next(&mut self) -> Result<Option<Chain>, RingFault> {
        if self.next.is_none() {
            if let Some(fault) = self.fault {
                return Err(fault);
            }
            self.next = self.fetch().inspect_err(|fault| self.fault = Some(*fault))?;
        }
        Ok(self.next)
    }

    #[inline]
    fn fetch(&mut self) -> Result<Option<Chain>, RingFault> {
        let mut out = [Chain::default()];
        self.chains.spans.clear();
        if self.ring.fetch(Fetch { chains: &mut self.chains, out: &mut out, parts: MAX_PARTS })? == 0 {
            return Ok(None);
        }
        let [chain] = out;
        if chain.len < LEAST {
            return Err(RingFault::ChainTooShort { head: chain.id, len: chain.len, header: LEAST });
        }
        Ok(Some(chain))
    }

    /// Stores one packet in the next buffer: `header` and behind it the pieces, by one copy. The
    /// header's `len` is set to the number of bytes stored. Of the pieces at most [`Self::room`]
    /// bytes are stored; the rest is left out. Returns the number of payload bytes stored. The
    /// guest sees the packet after [`Self::publish`].
    ///
    /// # Panics
    /// If there is no buffer.
    #[inline]
    pub fn deliver<'a>(
        &mut self,
        header: SocketHeader,
        pieces: impl IntoIterator<Item = Piece<'a>>,
    ) -> Result<u32, RingFault> {
        let chain = self.next()?.expect("a packet is delivered only after room() found a buffer");
        let mut start = self.chains.buffer(chain);
        let mut rest = start;
        rest.skip(socket_header::LEN);
        let mut stored = 0;
        for piece in pieces {
            stored += match piece {
                Piece::Packet { from, head, offset, len } => {
                    let (mut payload, most) = from.payload(head, offset);
                    rest.write_from(&mut payload, most.min(len as usize))
                }
                Piece::Bytes(bytes) => rest.write(bytes),
            };
        }
        // Fits, because the length of the chain does.
        let len = stored as u32;
        start.write_array(&SocketHeader { len, ..header }.to_bytes());
        self.ring.push_used(std::iter::once((chain, socket_header::LEN as u32 + len)));
        self.next = None;
        Ok(len)
    }

    /// Makes everything that was stored since the last call visible to the guest.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    position_and_kicks!();
    interrupts!();
}
