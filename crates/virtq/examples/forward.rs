//! Measures how fast frames move from one guest's ring to another's. One thread plays the drivers
//! and the switch: `cargo run --release -p taut-virtq --example forward [SIZE] [SECONDS] [FORMAT]`,
//! with FORMAT one of [`FORMATS`].
//!
//! Everything is in the caches of one CPU, so the result measures instructions and not the transfer
//! between CPUs.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_virtq::counters::SharedWords;
use taut_virtq::device::{BURST, Delivery};
use taut_virtq::driver::{QueueLayout, Ram, Ring};
use taut_virtq::features::{EVENT_IDX, IN_ORDER, INDIRECT_DESC, RING_PACKED, VERSION_1};
use taut_virtq::header::LEN;
use taut_virtq::ring::{Part, PositionLog, QueueConfig, Start};
use taut_virtq::{RxQueue, TxQueue};

const FORMATS: [(&str, u64); 4] = [
    ("split", 0),
    ("split in order", IN_ORDER),
    ("packed", RING_PACKED),
    ("packed in order", RING_PACKED | IN_ORDER),
];

const SIZE: u16 = 256;
const ROOM: u32 = 2048;
/// Number of bursts in a round.
const BURSTS: usize = 50;

/// The driver end of one queue, with a buffer for each entry and without copies.
struct Driver {
    ring: Ring,
    layout: QueueLayout,
    buffers: u64,
    next: u64,
}

impl Driver {
    fn new(ram: &mut Ram, features: u64) -> Self {
        let layout = QueueLayout::allocate(ram, SIZE).expect("memory");
        let buffers = ram.allocate(u64::from(SIZE) * u64::from(ROOM), 4096).expect("memory");
        let ring = Ring::new(ram.memory(), layout, features).expect("a ring");
        Self { ring, layout, buffers, next: 0 }
    }

    fn fill(&mut self, count: usize, len: u32, writable: bool) {
        for _ in 0..count.min(self.ring.free()) {
            let addr = self.buffers + self.next % u64::from(SIZE) * u64::from(ROOM);
            self.next += 1;
            self.ring.add(std::iter::once(Part { addr, len, writable }));
        }
        self.ring.publish();
    }

    fn reclaim(&mut self) -> usize {
        let mut count = 0;
        while self.ring.poll_used().expect("a device that keeps the rules").is_some() {
            count += 1;
        }
        count
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let size: u32 = arguments.next().map_or(64, |size| size.parse().expect("SIZE in bytes"));
    let seconds: u64 = arguments.next().map_or(3, |seconds| seconds.parse().expect("SECONDS"));

    let only = arguments.next();
    let chosen = || FORMATS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name));
    let mut pairs: Vec<_> =
        chosen().map(|(_, format)| Pair::new(format | VERSION_1 | EVENT_IDX | INDIRECT_DESC)).collect();
    // The best of many short rounds, because other programs use this machine too. The formats take
    // turns.
    let mut best = [(Duration::MAX, Duration::MAX); FORMATS.len()];
    let begun = Instant::now();
    let mut frames = 0;
    while begun.elapsed() < Duration::from_secs(seconds) || frames == 0 {
        frames += BURSTS * BURST;
        for (pair, (device, all)) in pairs.iter_mut().zip(&mut best) {
            let round = Instant::now();
            *device = pair.round(size).min(*device);
            *all = round.elapsed().min(*all);
        }
    }
    let mpps = |time: Duration| (BURSTS * BURST) as f64 / time.as_secs_f64() / 1e6;
    for ((name, _), (device, all)) in chosen().zip(best) {
        println!(
            "{size} B, {name}: {:.1} Mpps device only, {:.1} with both drivers",
            mpps(device),
            mpps(all)
        );
    }
    println!("{frames} frames of each");
}

/// Two guests with one queue each.
struct Pair {
    sender: Driver,
    receiver: Driver,
    tx: TxQueue,
    rx: RxQueue,
    _memories: [Ram; 2],
}

impl Pair {
    fn new(features: u64) -> Self {
        let mut memories = [(); 2].map(|()| Ram::new(4 << 20).expect("memory"));
        let [sender, mut receiver] = memories.each_mut().map(|ram| Driver::new(ram, features));
        receiver.fill(SIZE.into(), ROOM, true);
        let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 16).expect("room");
        let words = Arc::new(SharedWords::map(file.as_fd(), 2).expect("words"));
        let config = |driver: &Driver, word| {
            let config = driver.layout.config(features, Start::first(features));
            QueueConfig { log: PositionLog::new(&words, word), ..config }
        };
        let tx = TxQueue::new(memories[0].memory(), &config(&sender, 0)).expect("a queue");
        let rx = RxQueue::new(memories[1].memory(), &config(&receiver, 1)).expect("a queue");
        Self { sender, receiver, tx, rx, _memories: memories }
    }

    /// Moves some bursts. Returns the time spent in the device ends.
    fn round(&mut self, size: u32) -> Duration {
        let mut in_device = Duration::ZERO;
        for _ in 0..BURSTS {
            self.sender.fill(BURST, size + LEN as u32, false);
            let before = Instant::now();
            assert_eq!(forward(&mut self.tx, &mut self.rx), BURST);
            in_device += before.elapsed();
            self.sender.reclaim();
            let count = self.receiver.reclaim();
            self.receiver.fill(count, ROOM, true);
        }
        in_device
    }
}

/// Forwards one burst. A function of its own, so that `taut-goals` can count its instructions.
#[inline(never)]
fn forward(tx: &mut TxQueue, rx: &mut RxQueue) -> usize {
    let count = tx.peek().expect("no fault");
    let mut done = rx.deliver_run(tx, 0, count).frames;
    while done < count {
        let frame = tx.frame(done);
        if rx.deliver(&frame, &frame.header()).expect("no fault") != Delivery::Stored {
            break;
        }
        done += 1;
    }
    rx.publish();
    tx.complete(done);
    done
}
