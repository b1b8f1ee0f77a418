//! The device end of a socket device's queues, over memory that a driver writes before and between
//! operations.
//!
//! Input: [`Header`] (6 bytes), [`OPERATIONS`] operations of 5 bytes, for each of two rings its
//! descriptors and available entries, an indirect table, and bytes for the rest of the memory, such
//! as packet headers. Descriptors have a short form of 6 bytes, so that most inputs pass the first
//! checks, or 16 raw bytes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::AsFd;

use taut_virtq::device::socket::{InFlight, Packet, Piece, RING_FEATURES, SocketRx, SocketTx};
use taut_virtq::socket_header::{LEN, MAX_PAYLOAD};
use taut_virtq::{QueueError, RingFault, SocketHeader, Start, features};

use crate::input::Input;
use crate::setup::{DriverWrite, Header, Setup};
use crate::world::{RINGS, World};
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "socket", run, budget: Budget::of(100, 16) };

/// Most operations of an input.
const OPERATIONS: usize = 20;

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new(MAX_PAYLOAD as usize));
}

fn read_setup(input: &mut Input<'_>) -> Setup {
    let header = Header::read(input);
    // Most inputs lack these two features, so that the queues can be set up at all.
    let unknown = header.feature(4, header.feature(8, features::RING_PACKED | features::IN_ORDER));
    let wanted = header.feature(1, features::EVENT_IDX)
        | header.feature(2, features::INDIRECT_DESC)
        | features::VERSION_1;
    let size = header.size(&[2048, 40000]);
    header.setup(wanted & RING_FEATURES | unknown, size, header.start, 7)
}

/// The queues of one input.
struct Queues {
    tx: SocketTx,
    rx: SocketRx,
    /// Packets that are taken, in this order.
    taken: Vec<Packet>,
    /// Heads that are given back but not published.
    returned: BTreeSet<u16>,
    /// Heads that a predecessor had taken and that are not taken again yet.
    again: BTreeSet<u16>,
    fault: Option<RingFault>,
}

impl Queues {
    fn new(world: &World, setup: &Setup, start: Start) -> Result<Self, QueueError> {
        let log = InFlight::new(&world.log, 3);
        let tx = SocketTx::new(&world.guest, &setup.config(0, start, None), log)?;
        // A receive queue has nothing in flight.
        let rx = SocketRx::new(&world.guest, &setup.config(usize::from(!setup.same), Start::Recover, None))?;
        let (taken, returned, again) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        Ok(Self { tx, rx, taken, returned, again, fault: None })
    }

    fn take(&mut self) {
        let packet = match self.tx.take() {
            Ok(Some(packet)) => packet,
            Ok(None) => {
                assert!(self.fault.is_none() && self.again.is_empty(), "{:?} forgotten", self.again);
                return;
            }
            Err(fault) => {
                assert!(self.fault.is_none_or(|before| before == fault), "a broken queue stays broken");
                self.fault = Some(fault);
                return;
            }
        };
        assert!(self.fault.is_none());
        assert!(packet.payload <= MAX_PAYLOAD);
        let bytes: [u8; LEN] = packet.header.to_bytes();
        assert_eq!(SocketHeader::from_bytes(&bytes), packet.header);
        assert!(self.taken.iter().all(|other| other.head != packet.head), "{} twice", packet.head);
        assert!(!self.returned.contains(&packet.head), "{} is not the driver's yet", packet.head);
        if !self.again.is_empty() {
            assert!(self.again.remove(&packet.head), "{} comes before {:?}", packet.head, self.again);
        }
        self.taken.push(packet);
        assert!(self.tx.taken().eq(self.taken.iter().map(|packet| packet.head)));
    }

    fn give_back(&mut self, which: usize) {
        if !self.taken.is_empty() {
            let packet = self.taken.remove(which % self.taken.len());
            self.tx.give_back(packet.head);
            self.returned.insert(packet.head);
        }
    }

    fn publish(&mut self) {
        self.tx.publish();
        self.returned.clear();
    }

    /// The head of a packet, and the number of its bytes behind an offset.
    fn packet(&self, which: usize, offset: u32) -> Option<(u16, usize)> {
        let packet = self.taken.get(which % self.taken.len().max(1))?;
        let len = packet.payload.min(packet.header.len).saturating_sub(offset);
        Some((packet.head, len as usize))
    }

    fn read(&self, world: &mut World, which: usize, offset: u32) {
        let room = world.bytes.len() - 1000;
        let Some((head, len)) = self.packet(which, offset) else { return };
        assert_eq!(self.tx.read(head, offset, &mut world.bytes[..room]), len.min(room));
        let written = self.tx.write_to(head, offset, world.null.as_fd()).expect("it takes everything");
        assert_eq!(written, len);
    }

    fn deliver(&mut self, world: &World, which: usize, offset: u32, own: usize) {
        let Some(room) = self.room() else { return };
        let mut pieces = vec![Piece::Bytes(&world.bytes[..own])];
        let mut sum = own;
        for which in [which, which + 1] {
            let Some((head, len)) = self.packet(which, offset) else { continue };
            sum += len;
            pieces.push(Piece::Packet { from: &self.tx, head, offset, len: u32::MAX });
        }
        let header = SocketHeader { src_cid: 5, ..SocketHeader::default() };
        let stored = self.rx.deliver(header, pieces).expect("there is a buffer");
        assert_eq!(stored as usize, sum.min(room as usize));
    }

    fn room(&mut self) -> Option<u32> {
        let room = self.rx.room();
        assert_eq!(self.rx.room(), room, "the same until it is used");
        room.ok()?.inspect(|&room| assert!(room > 0))
    }

    /// Replaces the queues by a successor, which must have exactly the packets that this one had
    /// not returned in the driver's eyes.
    fn go_on(mut self, world: &World, setup: &Setup, in_order: bool) -> Result<Self, QueueError> {
        let order = if in_order && self.again.is_empty() {
            self.tx.hand_over();
            self.returned.clear();
            Some(self.tx.taken().collect::<Vec<u16>>())
        } else {
            None
        };
        let mut again = self.again;
        again.extend(self.taken.iter().map(|packet| packet.head));
        again.extend(self.returned);
        let used = world.read_word(World::at(RINGS[0].used) + 2);
        let count = again.len() as u16;
        // The driver may have changed the used index, or the receive queue may lie on top.
        let honest = used.wrapping_add(count) == self.tx.position() && setup.moved.is_none() && !setup.same;
        drop(self.tx);
        let mut next = Self::new(world, setup, Start::Recover)?;
        if setup.moved.is_none() {
            assert_eq!(next.tx.position(), used.wrapping_add(count));
        }
        next.again = again;
        for head in order.into_iter().flatten() {
            next.take();
            let taken = next.taken.last().map(|packet| packet.head);
            // The driver has changed the chain.
            if next.fault.is_some() {
                break;
            }
            assert!(!honest || taken == Some(head), "{head} is next");
        }
        Ok(next)
    }
}

fn run(data: &[u8]) {
    WORLD.with_borrow_mut(|world| run_in(world, data));
}

fn run_in(world: &mut World, data: &[u8]) {
    let mut input = Input(data);
    let setup = read_setup(&mut input);
    let mut operations = Input(input.slice(5 * OPERATIONS));
    setup.fill(world, &mut input);
    InFlight::new(&world.log, 3).clear();
    if let Ok(queues) = Queues::new(world, &setup, setup.first_start()) {
        operate(world, &setup, queues, &mut operations);
    }
    world.check_gaps();
}

fn operate(world: &mut World, setup: &Setup, mut queues: Queues, operations: &mut Input<'_>) {
    while !operations.is_empty() {
        let code = operations.u8();
        let (at, value) = (operations.u16(), operations.u16());
        match code % 16 {
            0..=2 => queues.take(),
            3 => queues.give_back(value.into()),
            4 => queues.publish(),
            5 => DriverWrite::Anywhere.write(world, false, at, value),
            6 => DriverWrite::Descriptor.write(world, false, at, value),
            7 => DriverWrite::Available.write(world, false, at, value),
            8 => queues.read(world, at.into(), u32::from(value) % 3000),
            9 | 10 => queues.deliver(world, at.into(), u32::from(value) % 500, usize::from(at >> 8)),
            11 => queues.deliver(world, at.into(), 0, usize::from(value)),
            12 => queues.rx.publish(),
            13 => _ = (queues.tx.needs_interrupt(), queues.rx.needs_interrupt(), queues.rx.position()),
            14 => {
                if at & 1 == 0 {
                    queues.tx.suspend_kicks();
                    queues.rx.suspend_kicks();
                } else {
                    let waits = queues.tx.arm_kicks();
                    assert!(waits || queues.again.is_empty(), "the inherited packets would wait for ever");
                    _ = queues.rx.arm_kicks();
                }
            }
            _ => match queues.go_on(world, setup, at & 1 != 0) {
                Ok(again) => queues = again,
                Err(_) => return,
            },
        }
    }
}
