//! The device end of virtqueues, over memory that a driver writes before and between operations.
//!
//! Input: [`Header`] (6 bytes), [`OPERATIONS`] operations of 5 bytes, for each of two rings its
//! descriptors and available entries, an indirect table, and bytes for the rest of the memory.
//! Descriptors have a short form of 6 bytes, so that most inputs pass the first checks, or 16 raw
//! bytes.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use taut_virtq::PositionLog;
use taut_virtq::device::{BURST, FIRST_BYTES, MAX_FRAME_LEN};
use taut_virtq::{NetHeader, QueueConfig, QueueError, RingFault, RxQueue, Start, TxQueue, features};

use crate::input::Input;
use crate::setup::{DriverWrite, Header, Setup};
use crate::world::{RINGS, World};
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "ring", run, budget: Budget::of(100, 16) };

/// Most operations of an input.
const OPERATIONS: usize = 20;

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new(MAX_FRAME_LEN));
}

/// How the queues are set up.
struct Case {
    setup: Setup,
    transmit: bool,
    receive: bool,
    /// Content of the log of a packed ring's position.
    logged: u64,
}

impl Case {
    fn read(input: &mut Input<'_>) -> Self {
        let header = Header::read(input);
        let (more, start) = (header.more, header.start);
        let packed = header.bits & 4 != 0;
        let features = header.feature(1, features::EVENT_IDX)
            | header.feature(2, features::INDIRECT_DESC)
            | header.feature(4, features::RING_PACKED)
            | header.feature(8, features::IN_ORDER)
            | header.feature(16, features::NET_MRG_RXBUF)
            | if header.bits & 32 == 0 { features::VERSION_1 } else { 0 };
        let size = header.size(&[17, 40000, 32768]);
        // An index beyond the ring would be refused in most cases.
        let start = match more & 16 {
            0 if packed => (start & 0x8000) | ((start & 0x7fff) % size.max(1)),
            _ => start,
        };
        Self {
            setup: header.setup(features, size, start, 0x8087),
            transmit: (more >> 2) % 4 != 2,
            receive: (more >> 2) % 4 != 1,
            logged: if more & 32 == 0 { 1 << 32 | u64::from(start) << 16 | u64::from(start) } else { 0 },
        }
    }

    fn fill(&self, world: &mut World, input: &mut Input<'_>) {
        self.setup.fill(world, input);
        for word in &world.log.words()[..RINGS.len()] {
            word.store(self.logged, Ordering::Relaxed);
        }
    }

    fn config(&self, world: &World, ring: usize, start: Start) -> QueueConfig {
        self.setup.config(ring, start, PositionLog::new(&world.log, ring))
    }
}

/// The queues of one input.
struct Queues {
    tx: Option<TxQueue>,
    rx: Option<RxQueue>,
    /// Number of frames of the last look that are not completed.
    waiting: usize,
    /// Fault of the transmit queue, which must stay the same.
    fault: Option<RingFault>,
}

impl Queues {
    fn new(world: &World, case: &Case, start: Start) -> Result<Self, QueueError> {
        let receive = usize::from(!case.setup.same);
        let tx = case.transmit.then(|| TxQueue::new(&world.guest, &case.config(world, 0, start)));
        let rx = case.receive.then(|| RxQueue::new(&world.guest, &case.config(world, receive, start)));
        Ok(Self { tx: tx.transpose()?, rx: rx.transpose()?, waiting: 0, fault: None })
    }

    fn peek(&mut self, world: &mut World) {
        let Some(tx) = &mut self.tx else { return };
        match tx.peek() {
            Ok(count) => {
                assert!(count <= BURST && self.fault.is_none());
                assert!(self.waiting == 0 || self.waiting == count, "the window changed");
                self.waiting = count;
            }
            Err(fault) => {
                assert!(self.fault.is_none_or(|before| before == fault));
                assert_eq!(self.waiting, 0, "frames before the fault are lost");
                self.fault = Some(fault);
            }
        }
        for index in 0..self.waiting {
            let frame = tx.frame(index);
            assert!(frame.len() <= MAX_FRAME_LEN);
            assert_eq!(frame.first_bytes().len(), frame.len().min(FIRST_BYTES));
            let room = if index == 0 { MAX_FRAME_LEN } else { 256 };
            let out = &mut world.bytes[..room];
            assert_eq!(frame.copy_to(out), frame.len().min(room));
        }
    }

    fn complete(&mut self, count: usize) {
        let Some(tx) = &mut self.tx else { return };
        let count = count % (self.waiting + 1);
        tx.complete(count);
        self.waiting -= count;
    }

    fn write_out(&self, world: &World, index: usize, with_header: bool) {
        let (Some(tx), true) = (&self.tx, index < self.waiting) else { return };
        let frame = tx.frame(index);
        let header = NetHeader::default().to_bytes();
        let prefix = if with_header { &header[..] } else { &[] };
        let written = frame.write_to(world.null.as_fd(), prefix).expect("it takes everything");
        assert_eq!(written, frame.len() + prefix.len());
    }

    fn deliver(&mut self, world: &World, index: usize, len: usize) {
        let Some(rx) = &mut self.rx else { return };
        let header = NetHeader { flags: 1, csum_start: 14, ..NetHeader::default() };
        let delivered = match &self.tx {
            Some(tx) if index < self.waiting => rx.deliver(&tx.frame(index), &header),
            _ => rx.deliver_bytes(&world.bytes[..len], &header),
        };
        if let Err(fault) = delivered {
            assert_eq!(rx.prepare(0), Err(fault), "a broken queue stays broken");
        }
    }

    fn deliver_run(&mut self, first: usize, count: usize) {
        let (Some(tx), Some(rx)) = (&self.tx, &mut self.rx) else { return };
        let first = first % (self.waiting + 1);
        let run = rx.deliver_run(tx, first, count % (self.waiting - first + 1));
        assert!(run.frames <= self.waiting - first);
    }
}

fn run(data: &[u8]) {
    WORLD.with_borrow_mut(|world| run_in(world, data));
}

fn run_in(world: &mut World, data: &[u8]) {
    let mut input = Input(data);
    let case = Case::read(&mut input);
    let mut operations = Input(input.slice(5 * OPERATIONS));
    case.fill(world, &mut input);
    if let Ok(queues) = Queues::new(world, &case, case.setup.first_start()) {
        operate(world, &case, queues, &mut operations);
    }
    world.check_gaps();
}

fn operate(world: &mut World, case: &Case, mut queues: Queues, operations: &mut Input<'_>) {
    let packed = case.setup.packed();
    while !operations.is_empty() {
        let code = operations.u8();
        let (at, value) = (operations.u16(), operations.u16());
        match code % 16 {
            0 | 1 => queues.peek(world),
            2 => queues.complete(value.into()),
            3 => DriverWrite::Anywhere.write(world, packed, at, value),
            4 => DriverWrite::Descriptor.write(world, packed, at, value),
            5 => DriverWrite::Available.write(world, packed, at, value),
            6 => queues.write_out(world, usize::from(value) % BURST, at & 1 != 0),
            7 => queues.deliver(world, usize::from(at), usize::from(value) % 9000),
            8 => queues.deliver(world, usize::MAX, usize::from(value)),
            9 => queues.deliver_run(at.into(), value.into()),
            10 => _ = queues.rx.as_mut().map(|rx| rx.prepare(usize::from(value) % 100)),
            11 => _ = queues.rx.as_mut().map(RxQueue::publish),
            12 => _ = queues.rx.as_mut().map(|rx| (rx.needs_interrupt(), rx.position())),
            13 => _ = queues.tx.as_mut().map(|tx| (tx.needs_interrupt(), tx.position())),
            14 => {
                _ = queues
                    .tx
                    .as_mut()
                    .map(|tx| if at & 1 == 0 { tx.suspend_kicks() } else { _ = tx.arm_kicks() });
                _ = queues
                    .rx
                    .as_mut()
                    .map(|rx| if at & 2 == 0 { rx.suspend_kicks() } else { _ = rx.arm_kicks() });
            }
            _ => match Queues::new(world, case, Start::Recover) {
                Ok(again) => queues = again,
                Err(_) => return,
            },
        }
    }
}
