//! The transmit side of a guest's device: packets from the guest.

use std::sync::Arc;

use taut_virtq::device::socket::SocketTx;
use taut_virtq::{QueueConfig, Start};

use super::Kick;
use crate::sys::event_fd::EventFd;
use crate::vsock::proto::{PacketQueue, PacketSlots};

/// Identity and position of a transmit ring. They tell a ring that goes on from one that a guest
/// set up anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingPlace {
    /// Number of entries.
    pub(crate) size: u16,
    /// Guest addresses of the three areas.
    pub(crate) desc: u64,
    pub(crate) avail: u64,
    pub(crate) used: u64,
    /// Position at which the ring starts, or has stopped.
    pub(crate) start: Start,
}

impl RingPlace {
    pub(crate) fn of(config: &QueueConfig) -> Self {
        let &QueueConfig { size, desc, avail, used, start, .. } = config;
        Self { size, desc, avail, used, start }
    }

    /// The same ring, stopped at a position.
    pub(crate) fn stopped_at(self, position: u16) -> Self {
        Self { start: Start::At(position), ..self }
    }
}

/// A guest's transmit ring that runs.
#[derive(Debug)]
pub(crate) struct TxRing {
    pub(crate) queue: SocketTx,
    pub(crate) place: RingPlace,
    pub(crate) _kick: Kick,
}

/// The transmit side of one device.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pub(crate) ring: Option<TxRing>,
    /// Interrupts the guest for packets that it has got back.
    pub(crate) call: Option<Arc<EventFd>>,
    /// The waiting packets of each flow, as lists: one slot for each descriptor of the ring.
    pub(crate) slots: PacketSlots,
    /// Number of packets that were taken from the ring and not given back.
    pub(crate) taken: usize,
    /// Bytes that were copied out of the ring and wait for programs on the host.
    pub(crate) copied_for_host: usize,
    /// Packets were given back that the guest has not been shown.
    pub(crate) unpublished: bool,
    /// The guest is to be interrupted for packets that it has got back.
    pub(crate) owes_interrupt: bool,
    /// Position of the used ring at the last interrupt.
    pub(crate) interrupted_at: u16,
    /// The ring is crowded, and is to be looked at.
    pub(crate) relief_is_due: bool,
}

impl Sender {
    /// Gives a waiting packet back to the guest, which sees it after the next publish.
    #[inline]
    pub(crate) fn give_back(&mut self, packet: u16) {
        if let Some(ring) = &mut self.ring {
            ring.queue.give_back(packet);
        }
        self.taken = self.taken.saturating_sub(1);
    }

    /// Gives the packets of a flow back to the guest.
    pub(crate) fn give_back_all(&mut self, mut packets: PacketQueue) {
        while let Some(packet) = packets.pop(&self.slots) {
            self.give_back(packet);
        }
    }

    /// Tells whether packets that wait fill so much of the ring that the guest may soon be unable
    /// to send on any connection. A packet takes up one entry of the ring, or a few.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| self.taken >= usize::from(ring.place.size / 4).max(1))
    }

    /// Tells whether a guest that is owed an interrupt has filled half of its ring since the last
    /// one.
    #[inline]
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.owes_interrupt
            && self.ring.as_ref().is_some_and(|ring| {
                ring.queue.position().wrapping_sub(self.interrupted_at) >= ring.place.size / 2
            })
    }

    /// Interrupts the guest for the packets that it has got back. Returns `true` if it can be
    /// interrupted.
    pub(crate) fn interrupt(&mut self) -> bool {
        self.owes_interrupt = false;
        if let Some(ring) = &self.ring {
            self.interrupted_at = ring.queue.used_position();
        }
        let Some(call) = &self.call else { return false };
        call.signal();
        true
    }
}
