//! Receive queues: packets to the guest.

use std::sync::Arc;

use super::SocketTx;
use crate::device::chain::{Chain, Chains, Direction};
use crate::device::split::SplitRing;
use crate::device::{MAX_PARTS, QueueConfig};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::GuestMemory;
use crate::socket_header::{self, SocketHeader};

/// What a buffer has to have: a header, and a byte of payload, or a stream could never arrive.
const LEAST: u32 = socket_header::LEN as u32 + 1;

/// A piece of a packet's payload.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// Of a packet that is taken.
    Packet {
        /// The queue that it was taken from.
        from: &'a SocketTx,
        /// Which packet.
        head: u16,
        /// Payload bytes in front of the piece.
        offset: u32,
        /// Bytes of the piece. What the packet does not have is left out.
        len: u32,
    },
    /// Bytes of this process.
    Bytes(&'a [u8]),
}

/// The receive queue of a guest's socket device.
#[derive(Debug)]
pub struct SocketRx {
    ring: SplitRing,
    chains: Chains,
    /// The buffer that was fetched and not used yet.
    next: Option<Chain>,
    fault: Option<RingFault>,
}

impl SocketRx {
    /// The device end of a queue that a driver and its front end have set up. Split rings only.
    pub fn new(memory: &Arc<GuestMemory>, config: &QueueConfig) -> Result<Self, QueueError> {
        super::check(config)?;
        let indirect = config.features & features::INDIRECT_DESC != 0;
        let chains = Chains::new(memory, Direction::Receive, indirect, MAX_PARTS + 1);
        Ok(Self { ring: SplitRing::new(memory, config)?, chains, next: None, fault: None })
    }

    /// Payload bytes that the next buffer takes behind the header, at least one; `None` when there is no buffer.
    #[inline]
    pub fn room(&mut self) -> Result<Option<u32>, RingFault> {
        Ok(self.next()?.map(|chain| chain.len - socket_header::LEN as u32))
    }

    /// The next buffer.
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
        self.chains.segments.clear();
        if self.ring.fetch(&mut self.chains, &mut out, MAX_PARTS)? == 0 {
            return Ok(None);
        }
        let [chain] = out;
        if chain.len < LEAST {
            return Err(RingFault::ChainTooShort { head: chain.id, len: chain.len, header: LEAST });
        }
        Ok(Some(chain))
    }

    /// Stores one packet in the next buffer: `header`, its `len` set to what was stored, and behind it the pieces, by one copy.
    /// The pieces together have at most [`Self::room`] bytes; what does not fit is left out. Returns how many payload bytes
    /// were stored. The guest sees the packet after [`Self::publish`].
    ///
    /// # Panics
    /// If there is no buffer.
    #[inline]
    pub fn deliver<'a>(
        &mut self,
        header: SocketHeader,
        pieces: impl IntoIterator<Item = Piece<'a>>,
    ) -> Result<u32, RingFault> {
        let chain = self.next()?.expect("a packet is delivered into a buffer");
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
        // No more than the chain has, whose length fits.
        let len = stored as u32;
        start.write_array(&SocketHeader { len, ..header }.to_bytes());
        self.ring.push_used(std::iter::once((chain, socket_header::LEN as u32 + len)));
        self.next = None;
        Ok(len)
    }

    /// Shows the guest everything stored since the last call.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Position of the first buffer that was not used: what vhost-user's `GET_VRING_BASE` asks for. Publish first.
    pub fn position(&self) -> u16 {
        self.ring.position()
    }

    /// Has the driver asked to be interrupted for what was published since the last call? Each answer is given once: a
    /// caller that delays the interrupt must remember it.
    #[inline]
    pub fn needs_interrupt(&mut self) -> bool {
        self.ring.needs_interrupt()
    }

    /// Asks the driver not to kick when it adds buffers.
    pub fn suspend_kicks(&mut self) {
        self.ring.suspend_kicks();
    }

    /// Asks the driver to kick when it adds a buffer, after [`Self::room`] found none. True if it has done so already: then try
    /// again.
    pub fn arm_kicks(&mut self) -> bool {
        self.ring.arm_kicks()
    }
}
