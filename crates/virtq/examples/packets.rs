//! Measures how fast packets of a socket device move from one guest's ring to another's. One thread
//! plays the drivers and the switch: `cargo run --release -p taut-virtq --example packets
//! [SECONDS]`.
//!
//! For each payload and receive buffer, the output has the time with and without the driver ends,
//! beside plain copies of as many bytes between as many buffers.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_virtq::counters::SharedWords;
use taut_virtq::device::socket::{InFlight, Piece, RING_FEATURES, SocketRx, SocketTx, WORDS};
use taut_virtq::driver::{QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver};
use taut_virtq::{SocketHeader, Start, socket_header};

const SIZE: u16 = 128;
/// Number of packets in a round.
const BURST: usize = 12;
/// Number of packets in a publication. So many always find buffers, of which each takes at most 18.
const AT_ONCE: usize = 6;

/// Payload bytes of a packet and of a receive buffer: that of Linux, and one that holds any packet.
const CASES: [(u32, u32); 6] =
    [(64, 3700), (256, 3700), (4096, 3700), (65_536, 3700), (4096, 65_536), (65_536, 65_536)];

fn main() {
    let seconds: u64 = std::env::args().nth(1).map_or(1, |seconds| seconds.parse().expect("SECONDS"));
    for (payload, room) in CASES {
        let mut pair = Pair::new(payload, room);
        // The best of many short rounds, because other programs use this machine too.
        let (mut device, mut all, mut copies) = (Duration::MAX, Duration::MAX, Duration::MAX);
        let begun = Instant::now();
        let mut rounds = 0_u32;
        while begun.elapsed() < Duration::from_secs(seconds) {
            let round = Instant::now();
            device = device.min(pair.round(payload));
            all = all.min(round.elapsed());
            copies = copies.min(pair.copies());
            rounds += 1;
        }
        let each = |time: Duration| time.as_nanos() as f64 / BURST as f64;
        let speed = |time: Duration| f64::from(payload) / each(time);
        println!(
            "{payload:5} B into {room:5} B: device {:7.0} ns {:5.1} GB/s, with drivers {:7.0} ns, plain copies {:7.0} ns {:5.1} GB/s ({rounds} rounds)",
            each(device),
            speed(device),
            each(all),
            each(copies),
            speed(copies),
        );
    }
}

/// Two guests with one queue each.
struct Pair {
    sender: SocketTxDriver,
    receiver: SocketRxDriver,
    tx: SocketTx,
    rx: SocketRx,
    from: Vec<Vec<u8>>,
    to: Vec<Vec<u8>>,
    next: usize,
    _memories: [Ram; 2],
}

impl Pair {
    fn new(payload: u32, room: u32) -> Self {
        let mut memories = [(); 2].map(|()| Ram::new(64 << 20).expect("memory"));
        let layouts = memories.each_mut().map(|ram| QueueLayout::allocate(ram, SIZE).expect("memory"));
        let (shape, features) = (Shape::Apart, RING_FEATURES & !taut_virtq::features::INDIRECT_DESC);
        let sender = SocketTxDriver::new(&mut memories[0], layouts[0], features, shape, payload);
        let receiver = SocketRxDriver::new(&mut memories[1], layouts[1], features, Shape::Whole, room);
        let mut receiver = receiver.expect("a ring").expect("memory");
        receiver.ring().publish();
        let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 8 * WORDS as u64).expect("room");
        let words = Arc::new(SharedWords::map(file.as_fd(), WORDS).expect("words"));
        let config = |end: usize| layouts[end].config(features, Start::At(0));
        let tx = SocketTx::new(memories[0].memory(), &config(0), InFlight::new(&words, 0)).expect("a queue");
        let rx = SocketRx::new(memories[1].memory(), &config(1)).expect("a queue");
        let buffers = |len: u32, count: usize| vec![vec![1; len as usize]; count];
        let (from, to) = (buffers(payload, BURST), buffers(payload, SIZE.into()));
        let sender = sender.expect("a ring").expect("memory");
        Self { sender, receiver, tx, rx, from, to, next: 0, _memories: memories }
    }

    /// Moves a burst of packets. Returns the time spent in the device ends.
    fn round(&mut self, payload: u32) -> Duration {
        let header = SocketHeader { op: socket_header::RW, ..SocketHeader::default() };
        for _ in 0..BURST {
            assert!(self.sender.send_as_it_is(header, payload));
        }
        self.sender.ring().publish();
        let mut in_device = Duration::ZERO;
        let mut left = BURST;
        while left > 0 {
            let before = Instant::now();
            left -= forward(&mut self.tx, &mut self.rx);
            in_device += before.elapsed();
            while self.receiver.receive(|_, _| ()).expect("a device that keeps the rules").is_some() {}
            self.receiver.ring().publish();
        }
        self.sender.reclaim().expect("a device that keeps the rules");
        in_device
    }

    /// Copies the same bytes plainly. The targets take turns as receive buffers do.
    fn copies(&mut self) -> Duration {
        let begun = Instant::now();
        for from in &self.from {
            self.next = (self.next + 1) % self.to.len();
            self.to[self.next].copy_from_slice(std::hint::black_box(from));
        }
        begun.elapsed()
    }
}

/// Forwards the packets of one publication. Returns how many.
#[inline(never)]
fn forward(tx: &mut SocketTx, rx: &mut SocketRx) -> usize {
    let mut count = 0;
    while count < AT_ONCE
        && let Some(packet) = tx.take().expect("no fault")
    {
        let mut offset = 0;
        while offset < packet.payload {
            let room = rx.room().expect("no fault").expect("a buffer");
            let len = room.min(packet.payload - offset);
            let piece = Piece::Packet { from: tx, head: packet.head, offset, len };
            rx.deliver(packet.header, [piece]).expect("no fault");
            offset += len;
        }
        tx.give_back(packet.head);
        count += 1;
    }
    rx.publish();
    tx.publish();
    count
}
