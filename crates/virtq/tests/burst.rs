//! The driver end for load generators against the device end.

use std::sync::Arc;

use taut_virtq::device::{Delivery, RxQueue, TxQueue};
use taut_virtq::driver::burst::{BufferPool, BurstFault, BurstQueue, MAX_BURST};
use taut_virtq::driver::{QueueLayout, Ram};
use taut_virtq::features::{IN_ORDER, NET_MRG_RXBUF, RING_FEATURES, RING_PACKED, VERSION_1};
use taut_virtq::header::LEN;
use taut_virtq::ring::Start;

const SIZE: u16 = 64;
const FRAME: u32 = 100;

/// The driver ends of a sender and a receiver, with the device ends between them.
struct Pair {
    sender: BurstQueue,
    sent: BufferPool,
    receiver: BurstQueue,
    received: BufferPool,
    tx: TxQueue,
    rx: RxQueue,
}

impl Pair {
    fn new(features: u64, buffers: u32) -> Self {
        let mut ram = Ram::new(4 << 20).unwrap();
        let [tx, rx] = [(); 2].map(|()| QueueLayout::allocate(&mut ram, SIZE).unwrap());
        let [sent, mut received] = [(); 2].map(|()| BufferPool::allocate(&mut ram, buffers, FRAME).unwrap());
        let sender = BurstQueue::new(ram.memory(), tx, features).unwrap();
        let mut receiver = BurstQueue::new(ram.memory(), rx, features).unwrap();
        receiver.fill(&mut received);
        let tx = TxQueue::new(ram.memory(), &tx.config(features, Start::first(features))).unwrap();
        let rx = RxQueue::new(ram.memory(), &rx.config(features, Start::first(features))).unwrap();
        for buffer in 0..sent.count() {
            ram.memory().write(sent.frame_addr(buffer) - LEN as u64, &[0; LEN + FRAME as usize]).unwrap();
        }
        Self { sender, sent, receiver, received, tx, rx }
    }

    fn forward(&mut self) -> usize {
        let count = self.tx.peek().unwrap();
        self.rx.prepare(count).unwrap();
        for index in 0..count {
            let frame = self.tx.frame(index);
            assert_eq!(self.rx.deliver(&frame, &frame.header()).unwrap(), Delivery::Stored);
        }
        self.rx.publish();
        self.tx.complete(count);
        count
    }
}

#[test]
fn every_frame_arrives_once_and_in_order() {
    let transports = [0, IN_ORDER, RING_PACKED, RING_PACKED | IN_ORDER];
    // Only formats that the device end supports.
    for transport in transports.into_iter().filter(|transport| transport & !RING_FEATURES == 0) {
        let features = VERSION_1 | NET_MRG_RXBUF | transport;
        let mut pair = Pair::new(features, 96);
        let (mut next, mut expected) = (0u64, 0u64);
        for round in 0..1000 {
            let burst = 1 + round % MAX_BURST;
            let sent = pair.sender.send(&mut pair.sent, burst, FRAME + LEN as u32, |frame| {
                frame.store(16, next);
                next += 1;
            });
            assert_eq!(sent.unwrap(), burst, "there is room once the device has returned everything");
            pair.forward();
            while expected < next {
                let count = pair.receiver.receive(&mut pair.received, 7, true, |frame, len| {
                    assert_eq!((frame.load(16), len, frame.buffers()), (expected, FRAME + LEN as u32, 1));
                    expected += 1;
                });
                assert!(count.unwrap() > 0, "{} frames are missing", next - expected);
            }
        }
        assert_eq!(pair.receiver.receive(&mut pair.received, 7, true, |_, _| ()), Ok(0));
    }
}

#[test]
fn a_full_ring_takes_no_frames_until_the_device_returns_some() {
    let mut pair = Pair::new(VERSION_1 | NET_MRG_RXBUF, 96);
    let len = FRAME + LEN as u32;
    assert_eq!(pair.sender.send(&mut pair.sent, 60, len, |_| ()), Ok(60));
    assert_eq!(pair.sender.send(&mut pair.sent, 60, len, |_| ()), Ok(4));
    assert_eq!((pair.sender.send(&mut pair.sent, 60, len, |_| ()), pair.sender.in_flight()), (Ok(0), 64));
    let forwarded = pair.forward();
    assert_eq!(pair.sender.send(&mut pair.sent, 60, len, |_| ()), Ok(forwarded.min(60)));
}

#[test]
fn a_device_that_returns_frames_out_of_order_is_a_fault() {
    let mut ram = Ram::new(1 << 20).unwrap();
    let layout = QueueLayout::allocate(&mut ram, SIZE).unwrap();
    let mut pool = BufferPool::allocate(&mut ram, 64, FRAME).unwrap();
    let memory = Arc::clone(ram.memory());
    let mut queue = BurstQueue::new(&memory, layout, VERSION_1).unwrap();
    queue.send(&mut pool, SIZE.into(), FRAME, |_| ()).unwrap();
    // The device returns one entry: the second one.
    memory.write(layout.used + 4, &1u32.to_le_bytes()).unwrap();
    memory.write(layout.used + 2, &1u16.to_le_bytes()).unwrap();
    let fault = queue.send(&mut pool, 1, FRAME, |_| ());
    assert_eq!(fault, Err(BurstFault::OutOfOrder { found: 1, expected: 0 }));
    memory.write(layout.used + 2, &100u16.to_le_bytes()).unwrap();
    let fault = queue.send(&mut pool, 1, FRAME, |_| ());
    assert_eq!(fault, Err(BurstFault::TooMany { returned: 100, had: 64 }));
}
