//! Driver end against device end: everything that a correct driver posts arrives byte for byte.

use std::os::fd::AsFd;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::counters::SharedWords;
use crate::driver::{QueueLayout, Ram, Ring, RxDriver, TxDriver};
use crate::features::{EVENT_IDX, IN_ORDER, INDIRECT_DESC, NET_MRG_RXBUF, RING_PACKED, VERSION_1};
use crate::header::{self, NetHeader};
use crate::ring::packed::Position;
use crate::ring::{Part, PositionLog, QueueConfig, Start};

/// Both formats, in order and out of order.
const FORMATS: [u64; 4] = [0, IN_ORDER, RING_PACKED, RING_PACKED | IN_ORDER];

/// All features except those that select the format.
const ALL: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC;

/// Position `count` descriptors after the start.
fn position(features: u64, size: u16, count: u16) -> u16 {
    if features & RING_PACKED == 0 { count } else { Position::START.advance(count, size).to_bits() }
}

/// Shared words for position logs.
pub(super) fn words() -> Arc<SharedWords> {
    let file = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 64).unwrap();
    Arc::new(SharedWords::map(file.as_fd(), 8).unwrap())
}

/// The rings of a sender and a receiver, with the simplest possible switch between them.
struct Pair {
    sender: TxDriver,
    receiver: RxDriver,
    tx: TxQueue,
    rx: RxQueue,
}

impl Pair {
    fn new(size: u16, tx_buffer: u32, rx_buffer: u32, features: u64) -> Self {
        let mut ram = Ram::new(64 << 20).unwrap();
        let [tx_layout, rx_layout] = [(); 2].map(|()| QueueLayout::allocate(&mut ram, size).unwrap());
        let sender = TxDriver::new(&mut ram, tx_layout, features, tx_buffer).unwrap().unwrap();
        let mut receiver = RxDriver::new(&mut ram, rx_layout, features, rx_buffer).unwrap().unwrap();
        receiver.ring().publish();
        let tx = TxQueue::new(ram.memory(), &tx_layout.config(features, Start::first(features))).unwrap();
        let rx = RxQueue::new(ram.memory(), &rx_layout.config(features, Start::first(features))).unwrap();
        Self { sender, receiver, tx, rx }
    }

    /// Forwards as many frames as possible. Returns how many.
    fn forward(&mut self) -> usize {
        let count = self.tx.peek().unwrap();
        self.rx.prepare(count).unwrap();
        let mut done = 0;
        while done < count {
            let frame = self.tx.frame(done);
            match self.rx.deliver(&frame, &frame.header()).unwrap() {
                Delivery::Stored => done += 1,
                Delivery::Full => break,
                Delivery::TooLong => panic!("too long: {} bytes", frame.len()),
            }
        }
        self.rx.publish();
        self.tx.complete(done);
        done
    }
}

/// A frame whose every byte depends on its length and number.
fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(17) ^ len) as u8).collect()
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..200usize, 2 => 200..4000usize, 1 => 60_000..=MAX_FRAME_LEN]
}

fn format() -> impl Strategy<Value = u64> {
    proptest::sample::select(FORMATS.as_slice())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn frames_arrive_byte_for_byte(
        lengths in proptest::collection::vec(lengths(), 1..400),
        tx_buffer in 64..5000u32,
        rx_buffer in 1600..5000u32,
        event_idx: bool,
        format in format(),
        odd in 0..40u16,
    ) {
        let features = VERSION_1 | NET_MRG_RXBUF | format | if event_idx { EVENT_IDX } else { 0 };
        let size = if format & RING_PACKED == 0 { 256 } else { 256 - odd };
        let mut pair = Pair::new(size, tx_buffer.max(300), rx_buffer, features);
        let mut received = Vec::new();
        let mut expected = std::collections::VecDeque::new();
        let mut number = 0;
        while number < lengths.len() || !expected.is_empty() {
            while let Some(&len) = lengths.get(number) {
                let header = NetHeader { flags: number as u8, csum_start: len as u16, ..NetHeader::default() };
                if !pair.sender.send(&header, &frame(number, len)) {
                    break;
                }
                expected.push_back((header, frame(number, len)));
                number += 1;
            }
            pair.sender.ring().publish();
            prop_assert!(pair.forward() > 0, "stuck");
            while let Some(header) = pair.receiver.receive(&mut received).unwrap() {
                let (sent, bytes) = expected.pop_front().expect("received more than was sent");
                let num_buffers = (header::LEN + bytes.len()).div_ceil(rx_buffer.next_multiple_of(64) as usize).max(1);
                prop_assert_eq!(header, NetHeader { num_buffers: num_buffers as u16, ..sent });
                prop_assert!(received == bytes, "{} bytes instead of {}", received.len(), bytes.len());
            }
            pair.receiver.ring().publish();
            pair.sender.reclaim().unwrap();
        }
        prop_assert_eq!(pair.sender.ring().free(), usize::from(size));
    }

    /// Chains of any shape, direct and indirect, on both sides. The receiver has no mergeable
    /// buffers.
    #[test]
    fn chains_of_any_shape_are_read_and_written(
        len in 0..3000usize,
        tx_cuts in proptest::collection::vec(1..3000u32, 0..12),
        rx_cuts in proptest::collection::vec(1..3000u32, 0..12),
        tx_indirect: bool,
        rx_indirect: bool,
        format in format(),
    ) {
        let mut ram = Ram::new(1 << 20).unwrap();
        let features = ALL | format;
        let bytes = frame(1, len);
        let header = NetHeader { flags: 1, csum_start: 34, csum_offset: 16, num_buffers: 1, ..NetHeader::default() };
        let content = [&header.to_bytes()[..], &bytes].concat();

        let mut ends = [(tx_cuts, tx_indirect, false), (rx_cuts, rx_indirect, true)].map(|(cuts, indirect, writable)| {
            let layout = QueueLayout::allocate(&mut ram, 16).unwrap();
            let mut ring = Ring::new(ram.memory(), layout, features).unwrap();
            let start = ram.allocate(content.len() as u64, 1).unwrap();
            let parts = cut(start, content.len() as u32, &cuts, writable);
            if indirect {
                let table = ram.allocate(16 * 16, 8).unwrap();
                ring.add_indirect(ram.memory(), table, &parts).unwrap();
            } else {
                ring.add(parts.iter().copied()).unwrap();
            }
            ring.publish();
            (ring, layout, start)
        });
        ram.memory().write(ends[0].2, &content).unwrap();
        let mut tx = TxQueue::new(ram.memory(), &ends[0].1.config(features, Start::first(features))).unwrap();
        let mut rx = RxQueue::new(ram.memory(), &ends[1].1.config(features, Start::first(features))).unwrap();

        prop_assert_eq!(tx.peek(), Ok(1));
        let sent = tx.frame(0);
        prop_assert_eq!(sent.header(), header);
        prop_assert_eq!(sent.len(), len);
        prop_assert_eq!(sent.first_bytes(), &bytes[..len.min(FIRST_BYTES)]);
        let mut copy = vec![0; len + 1];
        prop_assert_eq!(sent.copy_to(&mut copy), len);
        prop_assert_eq!(&copy[..len], &bytes[..]);
        prop_assert_eq!(rx.deliver(&sent, &sent.header()), Ok(Delivery::Stored));
        rx.publish();
        tx.complete(1);
        let mut found = vec![0; content.len()];
        ram.memory().read(ends[1].2, &mut found).unwrap();
        prop_assert_eq!(found, content);
        for (end, written) in ends.iter_mut().zip([0, header::LEN + len]) {
            let used = end.0.poll_used().unwrap().expect("returned");
            prop_assert_eq!(used.written as usize, written);
            prop_assert_eq!(end.0.free(), 16);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Frames and buffers of any length at any address: a run copies every byte, and none behind
    /// the last.
    #[test]
    fn a_run_arrives_byte_for_byte(
        frames in proptest::collection::vec((0..1600usize, 0..64u64, 0..64u64, 0..80u32), 1..=BURST),
        format in format(),
    ) {
        const UNTOUCHED: u8 = 0xa5;
        let mut ram = Ram::new(1 << 20).unwrap();
        let features = ALL | format;
        let [mut sender, mut receiver] = [(); 2].map(|()| {
            let layout = QueueLayout::allocate(&mut ram, 64).unwrap();
            (Ring::new(ram.memory(), layout, features).unwrap(), layout)
        });
        let mut places = Vec::new();
        for (number, &(len, from, to, room)) in frames.iter().enumerate() {
            let whole = (header::LEN + len) as u32;
            let [from, to] = [from, to].map(|shift| ram.allocate(2048, 64).unwrap() + shift);
            ram.memory().write(from, &[&NetHeader::default().to_bytes()[..], &frame(number, len)].concat()).unwrap();
            ram.memory().write(to, &[UNTOUCHED; 1800]).unwrap();
            sender.0.add(std::iter::once(Part { addr: from, len: whole, writable: false })).unwrap();
            receiver.0.add(std::iter::once(Part { addr: to, len: whole + room, writable: true })).unwrap();
            places.push(to);
        }
        sender.0.publish();
        receiver.0.publish();
        let mut tx = TxQueue::new(ram.memory(), &sender.1.config(features, Start::first(features))).unwrap();
        let mut rx = RxQueue::new(ram.memory(), &receiver.1.config(features, Start::first(features))).unwrap();
        prop_assert_eq!(tx.peek(), Ok(frames.len()));
        let run = rx.deliver_run(&tx, 0, frames.len());
        prop_assert_eq!(run.frames, frames.len());
        let plain = NetHeader { num_buffers: 1, ..NetHeader::default() }.to_bytes();
        for (number, (&(len, ..), place)) in frames.iter().zip(places).enumerate() {
            let mut found = [0; 1800];
            ram.memory().read(place, &mut found).unwrap();
            let (written, behind) = found.split_at(header::LEN + len);
            prop_assert_eq!(&written[..header::LEN], &plain[..]);
            prop_assert!(written[header::LEN..] == frame(number, len), "frame {} of {} bytes", number, len);
            prop_assert!(behind.iter().all(|&byte| byte == UNTOUCHED), "behind frame {} of {} bytes", number, len);
        }
    }
}

/// Cuts a range into parts of at most the lengths in `cuts`. The last part takes the rest.
fn cut(start: u64, len: u32, cuts: &[u32], writable: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    for &most in cuts {
        let left = len - at;
        if left <= 1 {
            break;
        }
        let part = most.min(left - 1);
        parts.push(Part { addr: start + u64::from(at), len: part, writable });
        at += part;
    }
    parts.push(Part { addr: start + u64::from(at), len: len - at, writable });
    parts
}

#[test]
fn a_full_receiver_changes_nothing_and_the_frame_waits() {
    FORMATS.into_iter().for_each(a_frame_waits);
}

fn a_frame_waits(format: u64) {
    let mut pair = Pair::new(4, 2048, 2048, ALL | NET_MRG_RXBUF | format);
    let at = |count| position(format, 4, count);
    for number in 0..4 {
        assert!(pair.sender.send(&NetHeader::default(), &frame(number, 100)));
    }
    assert!(!pair.sender.send(&NetHeader::default(), &[0; 60]), "the ring has four buffers");
    pair.sender.ring().publish();
    assert_eq!(pair.forward(), 4);
    assert_eq!(pair.sender.reclaim(), Ok(4));
    assert!(pair.sender.send(&NetHeader::default(), &frame(4, 100)));
    assert!(pair.sender.send(&NetHeader::default(), &frame(5, 3000)));
    pair.sender.ring().publish();
    assert_eq!(pair.forward(), 0);
    assert_eq!((pair.tx.peek(), pair.tx.position(), pair.rx.position()), (Ok(2), at(4), at(4)));
    assert!(!pair.rx.arm_kicks(), "no buffer came");

    let mut received = Vec::new();
    for number in 0..2 {
        pair.receiver.receive(&mut received).unwrap().expect("delivered");
        assert_eq!(received, frame(number, 100));
    }
    pair.receiver.ring().publish();
    assert!(pair.receiver.ring().needs_kick());
    assert!(pair.rx.arm_kicks(), "buffers came");
    // The first frame takes one buffer. The second one needs two buffers, and one is left.
    assert_eq!(pair.forward(), 1);
    let (tx, rx) = (pair.tx.position(), pair.rx.position());
    assert_eq!((tx, rx), if format & RING_PACKED == 0 { (5, 5) } else { (1, 1) });
    while pair.receiver.receive(&mut received).unwrap().is_some() {}
    assert_eq!(received, frame(4, 100));
    pair.receiver.ring().publish();
    assert_eq!(pair.forward(), 1);
    assert_eq!(pair.receiver.receive(&mut received).unwrap().map(|header| header.num_buffers), Some(2));
    assert_eq!(received, frame(5, 3000));
}

#[test]
fn without_mergeable_buffers_only_frames_longer_than_a_buffer_are_refused() {
    FORMATS.into_iter().for_each(a_frame_is_too_long);
}

fn a_frame_is_too_long(format: u64) {
    let mut pair = Pair::new(8, 2048, 1024, VERSION_1 | format);
    assert!(pair.sender.send(&NetHeader::default(), &frame(0, 1500)));
    assert!(pair.sender.send(&NetHeader::default(), &frame(1, 1000)));
    pair.sender.ring().publish();
    assert_eq!(pair.tx.peek(), Ok(2));
    let plain = NetHeader::default();
    assert_eq!(pair.rx.deliver(&pair.tx.frame(0), &plain), Ok(Delivery::TooLong));
    assert_eq!(pair.rx.deliver(&pair.tx.frame(1), &plain), Ok(Delivery::Stored));
    assert_eq!(pair.rx.deliver_bytes(&frame(2, 1012), &plain), Ok(Delivery::Stored));
    assert_eq!(pair.rx.deliver_bytes(&frame(3, 1013), &plain), Ok(Delivery::TooLong));
    pair.rx.publish();
    let mut received = Vec::new();
    for (number, len) in [(1, 1000), (2, 1012)] {
        assert!(pair.receiver.receive(&mut received).unwrap().is_some());
        assert_eq!(received, frame(number, len));
    }
    assert_eq!(pair.receiver.receive(&mut received), Ok(None));
}

#[test]
fn a_new_device_end_continues_where_the_last_one_stopped() {
    for features in FORMATS.map(|format| ALL | format) {
        let mut ram = Ram::new(1 << 20).unwrap();
        let layout = QueueLayout::allocate(&mut ram, 8).unwrap();
        let mut sender = TxDriver::new(&mut ram, layout, features, 256).unwrap().unwrap();
        let log = PositionLog::new(&words(), 3);
        let config = |start| QueueConfig { log: log.clone(), ..layout.config(features, start) };
        let mut tx = TxQueue::new(ram.memory(), &config(Start::first(features))).unwrap();
        for number in 0..5 {
            assert!(sender.send(&NetHeader::default(), &frame(number, 100)));
        }
        sender.ring().publish();
        assert_eq!(tx.peek(), Ok(5));
        tx.complete(2);
        drop(tx);
        let mut tx = TxQueue::new(ram.memory(), &config(Start::Recover)).unwrap();
        assert_eq!((tx.position(), tx.peek()), (position(features, 8, 2), Ok(3)));
        assert_eq!(tx.frame(0).first_bytes(), &frame(2, 100)[..64]);
        tx.complete(3);
        assert_eq!(sender.reclaim(), Ok(5));
    }
}

/// Packed rings may have any size. Reads of several descriptors end at the ring's end.
#[test]
fn packed_rings_of_any_size_carry_frames() {
    for (size, order) in [1, 2, 3, 5, 7, 30, 33].into_iter().flat_map(|size| [(size, 0), (size, IN_ORDER)]) {
        let mut pair = Pair::new(size, 256, 256, ALL | RING_PACKED | order);
        let (mut sent, mut received) = (0, 0);
        while received < 200 {
            let burst = sent % 11 + 1;
            while sent < received + burst && pair.sender.send(&NetHeader::default(), &frame(sent, 100)) {
                sent += 1;
            }
            pair.sender.ring().publish();
            while pair.forward() > 0 {}
            assert_eq!(pair.sender.reclaim(), Ok(sent - received));
            let mut bytes = Vec::new();
            while pair.receiver.receive(&mut bytes).unwrap().is_some() {
                assert_eq!(bytes, frame(received, 100), "frame {received} of a ring of {size}");
                received += 1;
            }
            pair.receiver.ring().publish();
            assert_eq!(received, sent, "a ring of {size}");
        }
    }
}

/// After an empty look at a packed ring, ten frames take two looks. None is lost.
#[test]
fn looks_at_a_packed_ring_grow() {
    for (format, looks) in [(0, vec![10]), (RING_PACKED, vec![4, 6])] {
        let features = ALL | format;
        let mut ram = Ram::new(1 << 20).unwrap();
        let layout = QueueLayout::allocate(&mut ram, 16).unwrap();
        let mut sender = TxDriver::new(&mut ram, layout, features, 256).unwrap().unwrap();
        let mut tx = TxQueue::new(ram.memory(), &layout.config(features, Start::first(features))).unwrap();
        let mut sent = 0;
        for (frames, looks) in [(10, vec![10]), (1, vec![1]), (10, looks), (0, vec![])] {
            (0..frames).for_each(|_| assert!(sender.send(&NetHeader::default(), &frame(sent, 60))));
            sender.ring().publish();
            for look in looks {
                assert_eq!(tx.peek(), Ok(look), "after {sent} frames, {features:#x}");
                tx.complete(look);
            }
            assert_eq!(tx.peek(), Ok(0));
            sent += frames;
            assert_eq!(sender.reclaim(), Ok(frames));
        }
    }
}

/// Both ends of a queue sleep and are woken repeatedly. No frame may be left behind.
#[test]
fn a_sleeping_end_is_woken() {
    for features in FORMATS.into_iter().flat_map(|format| [VERSION_1 | format, ALL | format]) {
        let mut pair = Pair::new(16, 256, 256, features);
        pair.tx.suspend_kicks();
        assert!(pair.sender.send(&NetHeader::default(), &[1; 60]));
        pair.sender.ring().publish();
        assert!(pair.tx.arm_kicks(), "a frame came while kicks were suspended");
        assert_eq!(pair.forward(), 1);
        assert!(!pair.tx.arm_kicks());
        pair.sender.ring().needs_kick();
        assert!(pair.sender.send(&NetHeader::default(), &[1; 60]));
        pair.sender.ring().publish();
        assert!(pair.sender.ring().needs_kick(), "the device sleeps");
        assert!(!pair.sender.ring().needs_kick(), "each answer is given once");

        pair.receiver.ring().suspend_interrupts();
        let mut received = Vec::new();
        while pair.receiver.receive(&mut received).unwrap().is_some() {}
        assert!(!pair.receiver.ring().arm_interrupts());
        pair.rx.needs_interrupt();
        assert_eq!(pair.forward(), 1);
        assert!(pair.rx.needs_interrupt(), "the driver sleeps");
        assert!(pair.receiver.ring().arm_interrupts(), "a frame came");
        assert!(pair.receiver.receive(&mut received).unwrap().is_some());
    }
}

#[test]
fn suppressed_notifications_are_not_sent() {
    for features in FORMATS.into_iter().flat_map(|format| [VERSION_1 | format, ALL | format]) {
        let mut pair = Pair::new(16, 256, 256, features);
        pair.tx.arm_kicks();
        assert!(pair.sender.send(&NetHeader::default(), &[1; 60]));
        pair.sender.ring().publish();
        assert!(pair.sender.ring().needs_kick());
        pair.tx.suspend_kicks();
        pair.receiver.ring().arm_interrupts();
        pair.forward();
        assert!(pair.rx.needs_interrupt());
        pair.receiver.ring().suspend_interrupts();
        for _ in 0..8 {
            assert!(pair.sender.send(&NetHeader::default(), &[1; 60]));
            pair.sender.ring().publish();
            assert!(!pair.sender.ring().needs_kick());
            assert_eq!(pair.forward(), 1);
            assert!(!pair.rx.needs_interrupt());
        }
    }
}

#[test]
fn a_scattered_frame_is_written_to_a_descriptor_completely() {
    use rustix::fs::{MemfdFlags, memfd_create};
    let bytes = frame(3, 1200);
    let header = NetHeader { flags: 1, csum_start: 34, ..NetHeader::default() };
    let content = [&header.to_bytes()[..], &bytes].concat();
    for cuts in [vec![], vec![12], vec![40; 10], vec![5; 200]] {
        let mut ram = Ram::new(1 << 20).unwrap();
        let layout = QueueLayout::allocate(&mut ram, 256).unwrap();
        let mut ring = Ring::new(ram.memory(), layout, ALL).unwrap();
        let start = ram.allocate(content.len() as u64, 1).unwrap();
        ram.memory().write(start, &content).unwrap();
        ring.add(cut(start, content.len() as u32, &cuts, false).into_iter()).unwrap();
        ring.publish();
        let mut tx = TxQueue::new(ram.memory(), &layout.config(ALL, Start::At(0))).unwrap();
        assert_eq!(tx.peek(), Ok(1));
        for (prefix, expected) in [(&header.to_bytes()[..], &content), (&[], &bytes)] {
            let file = memfd_create("tap", MemfdFlags::CLOEXEC).unwrap();
            assert_eq!(tx.frame(0).write_to(file.as_fd(), prefix).unwrap(), expected.len());
            let mut found = vec![0; expected.len() + 1];
            assert_eq!(rustix::io::pread(&file, &mut found, 0).unwrap(), expected.len());
            assert_eq!(&found[..expected.len()], &expected[..]);
        }
    }
}
