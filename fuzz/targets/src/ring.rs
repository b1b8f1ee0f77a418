//! The device end of virtqueues over memory that a driver has written, and goes on writing between operations.
//!
//! Input: [`Setup`] (6 bytes), [`OPERATIONS`] operations of 5 bytes, then for each of two rings its descriptors and what
//! it makes available, then an indirect table, then bytes for everything behind. Descriptors are written short (6 bytes),
//! so that most inputs get past the first checks, or as 16 raw bytes.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use taut_virtq::PositionLog;
use taut_virtq::device::{BURST, FIRST_BYTES, MAX_FRAME_LEN};
use taut_virtq::{NetHeader, QueueConfig, QueueError, RingFault, RxQueue, Start, TxQueue, features};

use crate::input::Input;
use crate::world::{FILE_LEN, MOST_ENTRIES, REGIONS, REST, RINGS, TABLE, TABLE_ENTRIES, USER, World};

/// Operations of one input.
const OPERATIONS: usize = 20;

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new(MAX_FRAME_LEN));
}

impl World {
    /// Fills the image with what the input says; returns the rest of the input's operations.
    fn set_up(&mut self, setup: &Setup, input: &mut Input<'_>) {
        self.begin();
        let entries = usize::from(setup.size.min(MOST_ENTRIES));
        for ring in RINGS {
            self.descriptors(setup, input, ring.desc, entries);
            self.put(ring.avail, input.slice(if setup.packed() { 4 } else { 2 }));
            if !setup.packed() {
                let index = setup.start.wrapping_add(u16::from(input.u8()));
                self.put(ring.avail + 2, &index.to_le_bytes());
                for entry in 0..entries as u64 {
                    self.put(ring.avail + 4 + 2 * entry, &u16::from(input.u8()).to_le_bytes());
                }
            }
            // A ring that goes on: what the device has returned so far.
            self.put(ring.used + 2, &setup.start.to_le_bytes());
        }
        self.descriptors(setup, input, TABLE, TABLE_ENTRIES);
        let room = FILE_LEN - Self::at(REST);
        self.put(REST, input.slice(room.min(0x1700)));
        self.end();
        for word in &self.log.words()[..RINGS.len()] {
            word.store(setup.logged, Ordering::Relaxed);
        }
    }

    fn descriptors(&mut self, setup: &Setup, input: &mut Input<'_>, table: u64, count: usize) {
        for entry in 0..count as u64 {
            let bytes = if setup.raw { input.array() } else { setup.descriptor(input.array()) };
            self.put(table + 16 * entry, &bytes);
        }
    }
}

/// How the queues are set up.
struct Setup {
    features: u64,
    size: u16,
    start: u16,
    recover: bool,
    /// Descriptors are raw bytes.
    raw: bool,
    /// The receive queue lies on top of the transmit queue.
    same: bool,
    /// An area's address is replaced by this one.
    moved: Option<(u8, u64)>,
    transmit: bool,
    receive: bool,
    /// What the word of a packed ring's position holds.
    logged: u64,
}

impl Setup {
    fn read(input: &mut Input<'_>) -> Self {
        let [bits, more, size] = input.array();
        let start = input.u16();
        let moved = input.u8();
        let packed = bits & 4 != 0;
        let has = |bit: u8, feature: u64| if bits & bit != 0 { feature } else { 0 };
        let features = has(1, features::EVENT_IDX)
            | has(2, features::INDIRECT_DESC)
            | has(4, features::RING_PACKED)
            | has(8, IN_ORDER)
            | has(16, features::NET_MRG_RXBUF)
            | if bits & 32 == 0 { features::VERSION_1 } else { 0 };
        let size = match size % 16 {
            shift @ 0..=5 => 1 << shift,
            6 => 0,
            7 => 3,
            8 => 17,
            9 => 40000,
            10 => 32768,
            _ => 8,
        };
        // An index beyond the ring would be refused in most cases.
        let start = match more & 16 {
            0 if packed => (start & 0x8000) | ((start & 0x7fff) % size.max(1)),
            _ => start,
        };
        Self {
            features,
            size,
            start,
            recover: bits & 64 != 0,
            raw: bits & 128 != 0,
            same: more & 1 != 0,
            // Around the ends of regions, and where nothing is.
            moved: (more & 2 != 0).then(|| (more >> 6, USER + 0x0f00 + (u64::from(moved) << 4))),
            transmit: (more >> 2) % 4 != 2,
            receive: (more >> 2) % 4 != 1,
            logged: if more & 32 == 0 { 1 << 32 | u64::from(start) << 16 | u64::from(start) } else { 0 },
        }
    }

    fn packed(&self) -> bool {
        self.features & features::RING_PACKED != 0
    }

    /// The 16 bytes of a short descriptor: address, length, flags, and next or id.
    fn descriptor(&self, [a, b, c, d, flags, link]: [u8; 6]) -> [u8; 16] {
        let addr = u64::from(u16::from_le_bytes([a, b]));
        let len = u32::from(u16::from_le_bytes([c, d]));
        let (flags, link) = (u16::from(flags), u16::from(link));
        // In packed rings, AVAIL is bit 7 and USED bit 15.
        let flags = flags & 0x87 | (flags & 0x40) << 9;
        let (third, fourth) = if self.packed() { (link, flags) } else { (flags, link) };
        let word = u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&addr.to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    fn config(&self, world: &World, ring: usize, start: Start) -> QueueConfig {
        let (log, ring) = (PositionLog::new(&world.log, ring), RINGS[ring]);
        let mut areas = [ring.desc, ring.avail, ring.used].map(|addr| USER + addr);
        if let Some((which, addr)) = self.moved
            && let Some(area) = areas.get_mut(usize::from(which))
        {
            *area = addr;
        }
        let [desc, avail, used] = areas;
        QueueConfig { size: self.size, desc, avail, used, features: self.features, start, log }
    }
}

/// Offered as soon as the queues know it.
const IN_ORDER: u64 = 1 << 35;

/// The queues of one input.
struct Queues {
    tx: Option<TxQueue>,
    rx: Option<RxQueue>,
    /// Frames of the last look that are not completed.
    waiting: usize,
    /// A fault of the transmit queue: it must stay.
    fault: Option<RingFault>,
}

impl Queues {
    fn new(world: &World, setup: &Setup, start: Start) -> Result<Self, QueueError> {
        let receive = usize::from(!setup.same);
        let tx = setup.transmit.then(|| TxQueue::new(&world.guest, &setup.config(world, 0, start)));
        let rx = setup.receive.then(|| RxQueue::new(&world.guest, &setup.config(world, receive, start)));
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
        let header = with_header.then(NetHeader::default);
        let written = frame.write_to(world.null.as_fd(), header.as_ref()).expect("it takes everything");
        assert_eq!(written, frame.len() + if with_header { taut_virtq::header::LEN } else { 0 });
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

/// Runs one input.
pub fn run(data: &[u8]) {
    WORLD.with_borrow_mut(|world| run_in(world, data));
}

fn run_in(world: &mut World, data: &[u8]) {
    let mut input = Input(data);
    let setup = Setup::read(&mut input);
    let mut operations = Input(input.slice(5 * OPERATIONS));
    world.set_up(&setup, &mut input);
    let start = if setup.recover { Start::Recover } else { Start::At(setup.start) };
    if let Ok(queues) = Queues::new(world, &setup, start) {
        operate(world, &setup, queues, &mut operations);
    }
    world.check_gaps();
}

fn operate(world: &mut World, setup: &Setup, mut queues: Queues, operations: &mut Input<'_>) {
    let first = World::at(REGIONS[0].0);
    while !operations.is_empty() {
        let code = operations.u8();
        let (at, value) = (operations.u16(), operations.u16());
        match code % 16 {
            0 | 1 => queues.peek(world),
            2 => queues.complete(value.into()),
            // The driver writes anywhere …
            3 => world.write_word(first + usize::from(at) % (REGIONS[0].2 - 1), value),
            // … into a descriptor …
            4 => {
                let descriptor = usize::from(at % MOST_ENTRIES) * 16 + usize::from(at >> 13) * 2;
                let ring = RINGS[usize::from(at >> 8) % 2];
                world.write_word(World::at(ring.desc) + descriptor, value);
            }
            // … or makes more available.
            5 if setup.packed() => {
                let flags = World::at(RINGS[usize::from(at) % 2].desc) + usize::from(at >> 1) % 32 * 16 + 14;
                world.write_word(flags, value & 0x8087);
            }
            5 => {
                let index = World::at(RINGS[usize::from(at) % 2].avail) + 2;
                world.write_word(index, world.read_word(index).wrapping_add(value % 8));
            }
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
            _ => match Queues::new(world, setup, Start::Recover) {
                Ok(again) => queues = again,
                Err(_) => return,
            },
        }
    }
}
