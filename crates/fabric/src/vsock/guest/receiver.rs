//! The receive side of a guest's device: packets to the guest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use taut_virtq::device::socket::{Piece, SocketRx};
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::{RST, SocketHeader};

use super::Kick;
use crate::sys::event_fd::EventFd;
use crate::vsock::proto::Pledged;

/// A guest's receive ring that runs.
#[derive(Debug)]
pub(crate) struct RxRing {
    pub(crate) queue: SocketRx,
    pub(crate) _kick: Kick,
}

/// How long a guest has had no buffer for what waits for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Starvation {
    /// The guest had a buffer for everything.
    #[default]
    No,
    /// A packet first found no buffer at this time, and none was delivered since.
    Since(Instant),
    /// The guest was reported, and has got nothing since.
    Reported,
}

/// The receive side of one device.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub(crate) ring: Option<RxRing>,
    /// Interrupts the guest for packets that it has received.
    pub(crate) call: Option<Arc<EventFd>>,
    /// Resets for packets that belong to no connection.
    pub(crate) replies: VecDeque<SocketHeader>,
    /// The guest has no buffer, and will kick when it has one.
    pub(crate) full: bool,
    /// How long the guest has had no buffer for what waits for it.
    pub(crate) starvation: Starvation,
    /// A look at whether the guest has buffers again is scheduled.
    pub(crate) check_is_due: bool,
    /// Packets were delivered that the guest has not been shown.
    pub(crate) unpublished: bool,
    /// Bytes that senders were promised to be taken by the guest and that it has not been handed.
    pub(crate) pledged: Pledged,
}

impl Receiver {
    /// Stores a packet in the guest's next buffer. Returns `false` if there is none.
    #[inline]
    pub(crate) fn deliver<'a>(
        &mut self,
        header: SocketHeader,
        payload: impl Iterator<Item = Piece<'a>>,
    ) -> Result<bool, RingFault> {
        let Some(ring) = &mut self.ring else { return Ok(false) };
        if ring.queue.room()?.is_none() {
            return Ok(false);
        }
        ring.queue.deliver(header, payload)?;
        Ok(true)
    }

    /// Stores a packet without payload in the guest's next buffer. Returns `false` if there is
    /// none.
    #[inline]
    pub(crate) fn deliver_header(&mut self, header: SocketHeader) -> Result<bool, RingFault> {
        self.deliver(header, std::iter::empty())
    }

    /// Notes that something waits for the guest, which has no buffer and will kick when it has one.
    /// Returns when the wait began, or `None` if it was reported already.
    pub(crate) fn note_full(&mut self, now: Instant) -> Option<Instant> {
        self.full = true;
        match self.starvation {
            Starvation::No => {
                self.starvation = Starvation::Since(now);
                Some(now)
            }
            Starvation::Since(since) => Some(since),
            Starvation::Reported => None,
        }
    }

    /// Notes that the ring starts. A guest whose ring was stopped could take nothing, so its time
    /// begins anew. A guest that was reported still counts as reported.
    pub(crate) fn note_start(&mut self) {
        self.full = false;
        if let Starvation::Since(_) = self.starvation {
            self.starvation = Starvation::No;
        }
    }

    /// Queues a reset in answer to a packet of the guest's that belongs to no connection.
    pub(crate) fn reply_by_reset(&mut self, to: &SocketHeader) {
        self.replies.push_back(SocketHeader {
            src_cid: to.dst_cid,
            dst_cid: to.src_cid,
            src_port: to.dst_port,
            dst_port: to.src_port,
            len: 0,
            kind: to.kind,
            op: RST,
            flags: 0,
            buf_alloc: 0,
            fwd_cnt: 0,
        });
    }
}
