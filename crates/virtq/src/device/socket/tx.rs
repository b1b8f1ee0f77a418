//! Transmit queues: packets from the guest.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{InFlight, MAX_SIZE};
use crate::device::chain::{Chain, Chains, QueueKind};
use crate::device::split::SplitRing;
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::{Buffer, GuestMemory};
use crate::ring::{QueueConfig, Start};
use crate::socket_header::{self, MAX_PAYLOAD, SocketHeader};

/// A packet that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Head of its chain: the name of the packet until it is given back.
    pub head: u16,
    /// Its header as the guest wrote it.
    pub header: SocketHeader,
    /// Number of bytes in the chain behind the header, at most [`MAX_PAYLOAD`]. A packet with a
    /// larger `header.len` is malformed.
    pub payload: u32,
}

/// The transmit queue of a guest's socket device.
#[derive(Debug)]
pub struct SocketTx {
    ring: SplitRing,
    in_flight: InFlight,
    /// One slot for each head.
    slots: Box<[Slot]>,
    /// Heads that a predecessor had taken and that were not taken again yet, the oldest first.
    inherited: VecDeque<u16>,
    /// Heads that were given back but not published.
    returned: Vec<u16>,
    /// Number of packets taken so far.
    count: u64,
    /// True if the used ring may hold the order of the packets in flight, behind the used index.
    ordered: bool,
    fault: Option<RingFault>,
}

/// A place in the descriptor table, and the chain that begins there.
#[derive(Debug)]
struct Slot {
    state: State,
    chain: Chain,
    /// The parts of the chain. Each slot has its own list, since chains come and go in any order.
    parts: Chains,
    /// Number of payload bytes that are read: as many as the header says, if the chain has them.
    payload: u32,
    /// Number of the packet, which tells the order.
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The driver has it.
    Free,
    /// Taken by a predecessor, but not yet by this queue.
    Inherited,
    /// Taken by this queue.
    Taken,
    /// Given back, but not yet visible to the driver.
    Returned,
}

impl SocketTx {
    /// Sets up the device end of a queue that a driver and its front end have configured. The ring
    /// must be split and have at most [`MAX_SIZE`] entries.
    ///
    /// The start decides what happens to the packets that a predecessor had taken and not given
    /// back, which `in_flight` knows. With [`Start::Recover`], and with [`Start::At`] at the
    /// position where the predecessor stopped ([`Self::position`]), they are taken again. Any other
    /// start clears `in_flight`.
    pub fn new(
        memory: &Arc<GuestMemory>,
        config: &QueueConfig,
        in_flight: InFlight,
    ) -> Result<Self, QueueError> {
        super::check(config)?;
        if config.size > MAX_SIZE {
            return Err(QueueError::Size(config.size));
        }
        let mut ring = SplitRing::new(memory, config)?;
        let used = ring.used_index();
        let mut inherited = in_flight.recover(&ring, used);
        let next = used.wrapping_add(inherited.len() as u16);
        if config.start == Start::Recover || (!inherited.is_empty() && config.start == Start::At(next)) {
            ring.resume(used, inherited.len() as u16);
        } else {
            inherited.clear();
        }
        if inherited.is_empty() {
            in_flight.start();
        }
        let most = socket_header::LEN as u64 + u64::from(MAX_PAYLOAD);
        let indirect = config.features & features::INDIRECT_DESC != 0;
        // Header and payload usually are one part or two.
        let parts = || Chains::new(memory, QueueKind::Transmit(most), indirect, 2);
        let slot =
            || Slot { state: State::Free, chain: Chain::default(), parts: parts(), payload: 0, number: 0 };
        let mut slots: Box<[Slot]> = (0..config.size).map(|_| slot()).collect();
        for &head in &inherited {
            slots[usize::from(head)].state = State::Inherited;
        }
        let returned = Vec::with_capacity(config.size.into());
        Ok(Self {
            ring,
            in_flight,
            slots,
            inherited: inherited.into(),
            returned,
            count: 0,
            ordered: true,
            fault: None,
        })
    }

    /// Takes the next packet; `None` when there is none. Packets that a predecessor had taken come
    /// first, the oldest first.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Packet>, RingFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.take_next().inspect_err(|fault| self.fault = Some(*fault))
    }

    #[inline]
    fn take_next(&mut self) -> Result<Option<Packet>, RingFault> {
        let inherited = self.inherited.front().copied();
        let head = match inherited {
            Some(head) => head,
            None => match self.ring.next_head()? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let outside = RingFault::HeadOutOfRange { head, size: self.ring.size() };
        let slot = self.slots.get_mut(usize::from(head)).ok_or(outside)?;
        if slot.state != if inherited.is_some() { State::Inherited } else { State::Free } {
            return Err(RingFault::AlreadyTaken { head });
        }
        let packet = slot.load(&self.ring, head)?;
        if inherited.is_some() {
            self.inherited.pop_front();
        } else {
            self.in_flight.add(head);
            self.ring.pass_available();
        }
        (slot.state, slot.number) = (State::Taken, self.count);
        self.count += 1;
        Ok(Some(packet))
    }
}

impl Slot {
    /// Checks the chain from `head` and reads its header.
    #[inline]
    fn load(&mut self, ring: &SplitRing, head: u16) -> Result<Packet, RingFault> {
        self.parts.spans.clear();
        ring.fetch_from(&mut self.parts, head, &mut self.chain)?;
        let len = self.chain.len;
        let Some(payload) = len.checked_sub(socket_header::LEN as u32) else {
            return Err(RingFault::ChainTooShort { head, len, header: socket_header::LEN as u32 });
        };
        let mut bytes = [0; socket_header::LEN];
        self.parts.buffer(self.chain).read_array(&mut bytes);
        let header = SocketHeader::from_bytes(&bytes);
        self.payload = payload.min(header.len);
        Ok(Packet { head, header, payload })
    }
}

/// The payload of packets that are taken.
impl SocketTx {
    /// Copies payload of a packet that is taken, from byte `offset` on. Returns the number of
    /// bytes. The payload has as many bytes as the header says, or fewer if the chain has fewer.
    pub fn read(&self, head: u16, offset: u32, out: &mut [u8]) -> usize {
        let (mut payload, len) = self.payload(head, offset);
        let len = len.min(out.len());
        payload.read(&mut out[..len])
    }

    /// Writes the payload of a packet that is taken to a file descriptor by one `writev`, from byte
    /// `offset` on. Returns the number of bytes that the kernel took.
    pub fn write_to(&self, head: u16, offset: u32, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (payload, len) = self.payload(head, offset);
        payload.write_to(fd, [&[]; 2], len)
    }

    /// The payload from byte `offset` on and its length in bytes. Empty if the packet is not taken.
    #[inline]
    pub(super) fn payload(&self, head: u16, offset: u32) -> (Buffer<'_>, usize) {
        match self.slots.get(usize::from(head)) {
            Some(slot) if slot.state == State::Taken && offset < slot.payload => {
                let mut buffer = slot.parts.buffer(slot.chain);
                buffer.skip(socket_header::LEN + offset as usize);
                (buffer, (slot.payload - offset) as usize)
            }
            _ => (Buffer::empty(), 0),
        }
    }
}

/// The return of packets, and the state for a successor.
impl SocketTx {
    /// Gives back a packet that was taken. Packets may be given back in any order. The driver sees
    /// it after [`Self::publish`].
    ///
    /// # Panics
    /// If the packet is not taken.
    #[inline]
    pub fn give_back(&mut self, head: u16) {
        let slot = &mut self.slots[usize::from(head)];
        assert_eq!(slot.state, State::Taken, "packet {head} is given back");
        slot.state = State::Returned;
        slot.parts.spans.clear();
        if std::mem::take(&mut self.ordered) {
            self.in_flight.forget_order();
        }
        self.ring.push_used(std::iter::once((slot.chain, 0)));
        self.returned.push(head);
    }

    /// Makes everything that was given back since the last call visible to the driver.
    #[inline]
    pub fn publish(&mut self) {
        if self.returned.is_empty() {
            return;
        }
        let new = self.ring.position();
        self.in_flight.begin_batch(new.wrapping_sub(self.returned.len() as u16), new);
        self.ring.publish();
        self.in_flight.end_batch(&self.returned);
        for head in self.returned.drain(..) {
            self.slots[usize::from(head)].state = State::Free;
        }
    }

    /// Position of the first entry that was not taken: the value for vhost-user's `GET_VRING_BASE`.
    /// With packets in flight it is ahead of the used index; a queue that starts at this position
    /// goes on with those packets. See [`Self::hand_over`].
    pub fn position(&self) -> u16 {
        self.ring.available_position()
    }

    /// Position behind the last packet that was given back: the used index.
    pub fn used_position(&self) -> u16 {
        self.ring.position()
    }

    /// Publishes, and logs the order of the packets in flight for a successor. This must be the
    /// last call before the queue is handed over. Without it, a successor knows the order only as
    /// far as the available ring still tells.
    pub fn hand_over(&mut self) {
        self.publish();
        let order = self.taken().chain(self.inherited.iter().copied());
        self.in_flight.write_order(&self.ring, order);
        self.ordered = true;
    }

    /// Packets that were taken and not given back, the oldest first. Packets of a predecessor count
    /// only once they are taken again.
    pub fn taken(&self) -> impl Iterator<Item = u16> + use<> {
        let taken = self.slots.iter().zip(0..).filter(|(slot, _)| slot.state == State::Taken);
        let mut taken: Vec<(u64, u16)> = taken.map(|(slot, head)| (slot.number, head)).collect();
        taken.sort_unstable();
        taken.into_iter().map(|(_, head)| head)
    }

    /// Number of packets of a predecessor that were not taken again yet. [`Self::take`] returns
    /// them next.
    pub fn again(&self) -> usize {
        self.inherited.len()
    }

    interrupts!();

    /// Asks the driver to kick at the next packet. Returns true if there is one already; the caller
    /// should then take it.
    pub fn arm_kicks(&mut self) -> bool {
        self.ring.arm_kicks() || !self.inherited.is_empty()
    }
}
