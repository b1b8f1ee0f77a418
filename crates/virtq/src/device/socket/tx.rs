//! Transmit queues: packets from the guest.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{InFlight, MAX_SIZE};
use crate::device::chain::{Chain, Chains, Direction};
use crate::device::split::SplitRing;
use crate::device::{QueueConfig, Start};
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::{Buffer, GuestMemory};
use crate::socket_header::{self, MAX_PAYLOAD, SocketHeader};

/// A packet that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// What it is known by until it is given back.
    pub head: u16,
    /// Its header as the guest wrote it.
    pub header: SocketHeader,
    /// Bytes in the chain behind the header, at most [`MAX_PAYLOAD`]. A packet whose `header.len` is more makes no sense.
    pub payload: u32,
}

/// The transmit queue of a guest's socket device.
#[derive(Debug)]
pub struct SocketTx {
    ring: SplitRing,
    in_flight: InFlight,
    /// By head.
    slots: Box<[Slot]>,
    /// Heads that a predecessor had taken and that were not taken again yet, the oldest first.
    again: VecDeque<u16>,
    /// Heads that were given back and not published.
    returned: Vec<u16>,
    /// Packets taken so far.
    count: u64,
    /// The used ring may tell the order of packets behind the used index.
    ordered: bool,
    fault: Option<RingFault>,
}

/// A place in the descriptor table, and the chain that begins there.
#[derive(Debug)]
struct Slot {
    state: State,
    chain: Chain,
    /// The chain's parts. Its own list, since chains come and go in any order.
    parts: Chains,
    /// Payload bytes that are read: as many as the header says, and as there are.
    payload: u32,
    /// Number of the packet, for the order.
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The driver's.
    Free,
    /// Taken by a predecessor, not yet by this queue.
    Again,
    Taken,
    /// Given back, which the driver does not see yet.
    Returned,
}

impl SocketTx {
    /// The device end of a queue that a driver and its front end have set up. Split rings of up to [`MAX_SIZE`] entries.
    ///
    /// With [`Start::Recover`], and with [`Start::At`] where a predecessor stopped ([`Self::position`]), the packets that it had
    /// taken and not given back are taken again; `in_flight` knows them. With any other start `in_flight` is cleared.
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
        let mut again = in_flight.recover(&ring, used);
        let next = used.wrapping_add(again.len() as u16);
        if config.start == Start::Recover || (!again.is_empty() && config.start == Start::At(next)) {
            ring.resume(used, again.len() as u16);
        } else {
            again.clear();
        }
        if again.is_empty() {
            in_flight.start();
        }
        let most = socket_header::LEN as u64 + u64::from(MAX_PAYLOAD);
        let indirect = config.features & features::INDIRECT_DESC != 0;
        // Header and payload are one part or two.
        let parts = || Chains::new(memory, Direction::Transmit(most), indirect, 2);
        let slot =
            || Slot { state: State::Free, chain: Chain::default(), parts: parts(), payload: 0, number: 0 };
        let mut slots: Box<[Slot]> = (0..config.size).map(|_| slot()).collect();
        for &head in &again {
            slots[usize::from(head)].state = State::Again;
        }
        let returned = Vec::with_capacity(config.size.into());
        Ok(Self {
            ring,
            in_flight,
            slots,
            again: again.into(),
            returned,
            count: 0,
            ordered: true,
            fault: None,
        })
    }

    /// Takes the next packet; `None` when there is none. Those that a predecessor had taken come first, the oldest first.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Packet>, RingFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.take_next().inspect_err(|fault| self.fault = Some(*fault))
    }

    #[inline]
    fn take_next(&mut self) -> Result<Option<Packet>, RingFault> {
        let again = self.again.front().copied();
        let head = match again {
            Some(head) => head,
            None => match self.ring.next_head()? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let outside = RingFault::HeadOutOfRange { head, size: self.ring.size() };
        let slot = self.slots.get_mut(usize::from(head)).ok_or(outside)?;
        if slot.state != if again.is_some() { State::Again } else { State::Free } {
            return Err(RingFault::AlreadyTaken { head });
        }
        let packet = slot.look(&self.ring, head)?;
        if again.is_some() {
            self.again.pop_front();
        } else {
            self.in_flight.add(head);
            self.ring.pass_available();
        }
        (slot.state, slot.number) = (State::Taken, self.count);
        self.count += 1;
        Ok(Some(packet))
    }

    /// Gives a packet back that was taken; in any order. The driver sees it after [`Self::publish`].
    ///
    /// # Panics
    /// If it is not taken.
    #[inline]
    pub fn give_back(&mut self, head: u16) {
        let slot = &mut self.slots[usize::from(head)];
        assert_eq!(slot.state, State::Taken, "packet {head} is given back");
        slot.state = State::Returned;
        if std::mem::take(&mut self.ordered) {
            self.in_flight.forget_order();
        }
        self.ring.push_used(std::iter::once((slot.chain, 0)));
        self.returned.push(head);
    }

    /// Shows the driver everything that was given back since the last call.
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

    /// Position of the first entry that was not taken: what vhost-user's `GET_VRING_BASE` asks for. Behind the used index if
    /// packets are in flight; a queue that is started at this position goes on with them. See [`Self::hand_over`].
    pub fn position(&self) -> u16 {
        self.ring.available_position()
    }

    /// Position behind the last packet that was given back.
    pub fn used_position(&self) -> u16 {
        self.ring.position()
    }

    /// Publishes, and writes the order of the packets in flight down for whoever goes on. The last call before a queue ends that
    /// is to go on; without it, a successor knows the order only as far as the available ring still tells.
    pub fn hand_over(&mut self) {
        self.publish();
        let order = self.taken().chain(self.again.iter().copied());
        self.in_flight.write_order(&self.ring, order);
        self.ordered = true;
    }

    /// Packets that were taken and not given back, the oldest first. Not those of a predecessor that have not been taken again.
    pub fn taken(&self) -> impl Iterator<Item = u16> + use<> {
        let taken = self.slots.iter().zip(0..).filter(|(slot, _)| slot.state == State::Taken);
        let mut taken: Vec<(u64, u16)> = taken.map(|(slot, head)| (slot.number, head)).collect();
        taken.sort_unstable();
        taken.into_iter().map(|(_, head)| head)
    }

    /// How many packets of a predecessor's have not been taken again: the next ones that [`Self::take`] returns.
    pub fn again(&self) -> usize {
        self.again.len()
    }

    /// Copies payload of a packet that is taken, from byte `offset` on; returns how many bytes. A packet's payload has as many
    /// bytes as its header says, fewer if its chain has fewer.
    pub fn read(&self, head: u16, offset: u32, out: &mut [u8]) -> usize {
        let (mut payload, len) = self.payload(head, offset);
        let len = len.min(out.len());
        payload.read(&mut out[..len])
    }

    /// Writes the payload of a packet that is taken to a descriptor, from byte `offset` on, by one `writev`; returns what the
    /// kernel took.
    pub fn write_to(&self, head: u16, offset: u32, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (payload, len) = self.payload(head, offset);
        payload.write_to(fd, [&[]; 2], len)
    }

    /// The payload from byte `offset` on, and how many bytes of it count. Nothing if the packet is not taken.
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

    /// Has the driver asked to be interrupted for what was published since the last call? Each answer is given once: a
    /// caller that delays the interrupt must remember it.
    #[inline]
    pub fn needs_interrupt(&mut self) -> bool {
        self.ring.needs_interrupt()
    }

    /// Asks the driver not to kick.
    pub fn suspend_kicks(&mut self) {
        self.ring.suspend_kicks();
    }

    /// Asks the driver to kick at the next packet. True if there is one already: then take it.
    pub fn arm_kicks(&mut self) -> bool {
        self.ring.arm_kicks() || !self.again.is_empty()
    }
}

impl Slot {
    /// Checks the chain from `head` and reads its header.
    #[inline]
    fn look(&mut self, ring: &SplitRing, head: u16) -> Result<Packet, RingFault> {
        self.parts.segments.clear();
        ring.look(&mut self.parts, head, &mut self.chain)?;
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
