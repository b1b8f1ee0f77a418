//! How fast frames go from one guest's ring into another's, in one thread with nobody on the other ends:
//! `cargo run --release -p taut-virtq --example forward [SIZE] [SECONDS]`.
//!
//! Everything is in one CPU's caches: what is measured is instructions, not the way between CPUs.

use std::time::{Duration, Instant};

use taut_virtq::device::{BURST, Delivery};
use taut_virtq::driver::{Part, QueueLayout, Ram, Ring};
use taut_virtq::features::RING_FEATURES;
use taut_virtq::header::LEN;
use taut_virtq::{RxQueue, Start, TxQueue};

const SIZE: u16 = 256;
const ROOM: u32 = 2048;
/// Bursts per round.
const BURSTS: usize = 50;

/// One queue, a buffer per entry, no copies on the driver's side.
struct Driver {
    ring: Ring,
    layout: QueueLayout,
    buffers: u64,
    next: u64,
}

impl Driver {
    fn new(ram: &mut Ram) -> Self {
        let layout = QueueLayout::allocate(ram, SIZE).expect("memory");
        let buffers = ram.allocate(u64::from(SIZE) * u64::from(ROOM), 4096).expect("memory");
        let ring = Ring::new(ram.memory(), layout, RING_FEATURES).expect("a ring");
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

    let mut memories = [(); 2].map(|()| Ram::new(4 << 20).expect("memory"));
    let mut sender = Driver::new(&mut memories[0]);
    let mut receiver = Driver::new(&mut memories[1]);
    let start = Start::At(0);
    let mut tx =
        TxQueue::new(memories[0].memory(), &sender.layout.config(RING_FEATURES, start)).expect("a queue");
    let mut rx =
        RxQueue::new(memories[1].memory(), &receiver.layout.config(RING_FEATURES, start)).expect("a queue");
    receiver.fill(SIZE.into(), ROOM, true);

    // The best of many short rounds: others use this machine too.
    let (mut device, mut all) = (Duration::MAX, Duration::MAX);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        let round = Instant::now();
        let mut in_device = Duration::ZERO;
        for _ in 0..BURSTS {
            sender.fill(BURST, size + LEN as u32, false);
            let before = Instant::now();
            assert_eq!(forward(&mut tx, &mut rx), BURST);
            in_device += before.elapsed();
            sender.reclaim();
            let count = receiver.reclaim();
            receiver.fill(count, ROOM, true);
        }
        device = device.min(in_device);
        all = all.min(round.elapsed());
    }
    let mpps = |time: Duration| (BURSTS * BURST) as f64 / time.as_secs_f64() / 1e6;
    println!("{size} B: {:.1} Mpps device only, {:.1} with both drivers", mpps(device), mpps(all));
}

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
