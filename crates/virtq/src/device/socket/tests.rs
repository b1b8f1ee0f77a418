//! Driver end against device end: everything that a correct driver sends arrives byte for byte, in
//! whatever order packets are returned.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::counters::SharedWords;
use crate::device::MAX_PARTS;
use crate::driver::{QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver};
use crate::features::{EVENT_IDX, INDIRECT_DESC, VERSION_1};
use crate::ring::Start;
use crate::socket_header::{MAX_PAYLOAD, RW, SocketHeader};

/// An unused log.
pub(super) fn in_flight() -> InFlight {
    let file = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 256).unwrap();
    InFlight::new(&Arc::new(SharedWords::map(file.as_fd(), 32).unwrap()), 7)
}

/// Both ends of a sender's transmit queue and of a receiver's receive queue.
struct Pair {
    sender: SocketTxDriver,
    receiver: SocketRxDriver,
    tx: SocketTx,
    rx: SocketRx,
}

impl Pair {
    fn new(features: u64, size: u16, sent: (Shape, u32), received: (Shape, u32)) -> Self {
        let mut ram = Ram::new(16 << 20).unwrap();
        let [tx_layout, rx_layout] = [(); 2].map(|()| QueueLayout::allocate(&mut ram, size).unwrap());
        let sender = SocketTxDriver::new(&mut ram, tx_layout, features, sent.0, sent.1).unwrap().unwrap();
        let receiver = SocketRxDriver::new(&mut ram, rx_layout, features, received.0, received.1);
        let mut receiver = receiver.unwrap().unwrap();
        receiver.ring().publish();
        let config = |layout: QueueLayout| layout.config(features, Start::At(0));
        let tx = SocketTx::new(ram.memory(), &config(tx_layout), in_flight()).unwrap();
        let rx = SocketRx::new(ram.memory(), &config(rx_layout)).unwrap();
        Self { sender, receiver, tx, rx }
    }

    fn send(&mut self, header: SocketHeader, payload: &[&[u8]]) -> bool {
        let sent = self.sender.send(header, payload);
        self.sender.ring().publish();
        sent
    }

    fn receive(&mut self) -> Option<(SocketHeader, Vec<u8>)> {
        let received = self.receiver.receive(|header, payload| {
            let mut bytes = vec![0; payload.left() + 1];
            let len = payload.read(&mut bytes);
            assert_eq!((len, payload.left()), (bytes.len() - 1, 0));
            bytes.truncate(len);
            (header, bytes)
        });
        self.receiver.ring().publish();
        received.unwrap()
    }
}

fn header(connection: u32) -> SocketHeader {
    SocketHeader {
        src_cid: 3,
        dst_cid: 4,
        src_port: connection,
        dst_port: 7,
        len: 0,
        kind: 1,
        op: RW,
        flags: 0,
        buf_alloc: 1 << 18,
        fwd_cnt: 99,
    }
}

/// Pieces are long enough that the longest packet has at most `MAX_PARTS` of them.
fn shape() -> impl Strategy<Value = Shape> {
    let shortest = MAX_PAYLOAD.div_ceil(MAX_PARTS as u32 - 1);
    prop_oneof![Just(Shape::Whole), Just(Shape::Apart), (shortest..5000).prop_map(Shape::Pieces)]
}

fn feature_sets() -> impl Strategy<Value = u64> {
    proptest::sample::select([0, EVENT_IDX, INDIRECT_DESC, EVENT_IDX | INDIRECT_DESC].as_slice())
        .prop_map(|features| features | VERSION_1)
}

/// The streams from one guest to another.
struct Streams {
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
    /// For each stream, the packets that are taken and not forwarded completely, and the number of
    /// bytes forwarded of the first one.
    waiting: Vec<VecDeque<Packet>>,
    offsets: Vec<u32>,
}

impl Streams {
    fn new(count: usize) -> Self {
        let none = vec![Vec::new(); count];
        Self {
            sent: none.clone(),
            received: none,
            waiting: vec![VecDeque::new(); count],
            offsets: vec![0; count],
        }
    }

    fn take(&mut self, pair: &mut Pair) -> bool {
        let Some(packet) = pair.tx.take().unwrap() else { return false };
        let SocketHeader { src_port, len, .. } = packet.header;
        assert_eq!(packet.header, SocketHeader { len, ..header(src_port) });
        assert_eq!(packet.payload, len);
        self.waiting[src_port as usize].push_back(packet);
        true
    }

    /// Forwards at most `most` bytes of up to two packets of a stream as one packet.
    fn forward(&mut self, pair: &mut Pair, stream: usize, most: u32) {
        let waiting = &mut self.waiting[stream];
        let Some(room) = pair.rx.room().unwrap() else { return };
        let mut left = room.min(most);
        let mut offset = self.offsets[stream];
        let mut pieces = Vec::new();
        let mut done = 0;
        let mut copy = [0; 64];
        for packet in waiting.iter().take(2) {
            let len = left.min(packet.header.len - offset);
            let head = packet.head;
            // Short pieces go through a copy and stand for bytes from the host.
            if len > 0 && (len as usize) < copy.len() && pieces.is_empty() {
                let len = pair.tx.read(head, offset, &mut copy[..len as usize]);
                pieces.push((head, offset, len as u32, true));
            } else {
                pieces.push((head, offset, len, false));
            }
            left -= len;
            offset += len;
            if offset < packet.header.len {
                break;
            }
            (offset, done) = (0, done + 1);
        }
        self.offsets[stream] = offset;
        let sum: u32 = pieces.iter().map(|piece| piece.2).sum();
        let pieces = pieces.into_iter().map(|(head, offset, len, copied)| {
            if copied {
                Piece::Bytes(&copy[..len as usize])
            } else {
                Piece::Packet { from: &pair.tx, head, offset, len }
            }
        });
        assert_eq!(pair.rx.deliver(header(stream as u32), pieces), Ok(sum));
        for packet in waiting.drain(..done) {
            pair.tx.give_back(packet.head);
        }
    }

    fn receive(&mut self, pair: &mut Pair) {
        pair.rx.publish();
        while let Some((found, bytes)) = pair.receive() {
            assert_eq!(found, SocketHeader { len: bytes.len() as u32, ..header(found.src_port) });
            self.received[found.src_port as usize].extend(bytes);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send { stream: usize, lens: [usize; 2] },
    Take,
    Forward { stream: usize, most: u32 },
    Publish,
    Receive,
}

const STREAMS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![3 => 0..100usize, 1 => 0..=MAX_PAYLOAD as usize / 2];
    let most = prop_oneof![1 => 0..100u32, 3 => Just(u32::MAX)];
    prop_oneof![
        4 => (0..STREAMS, len(), len()).prop_map(|(stream, a, b)| Step::Send { stream, lens: [a, b] }),
        4 => Just(Step::Take),
        8 => (0..STREAMS, most).prop_map(|(stream, most)| Step::Forward { stream, most }),
        2 => Just(Step::Publish),
        3 => Just(Step::Receive),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn streams_arrive_byte_for_byte_when_they_overtake_each_other(
        features in feature_sets(),
        size in (0..8u32).prop_map(|shift| 1 << shift),
        sent in shape(),
        received in (shape(), 20..5000u32),
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        // A packet in very small pieces would need more descriptors than a small ring has.
        let direct = features & INDIRECT_DESC == 0;
        let sent = match sent { Shape::Pieces(_) if direct => Shape::Apart, shape => shape };
        let received = match received { (Shape::Pieces(_), most) if direct => (Shape::Apart, most), other => other };
        let size = if direct { size.max(2) } else { size };
        let mut pair = Pair::new(features, size, (sent, MAX_PAYLOAD), received);
        let mut streams = Streams::new(STREAMS);
        let mut number = 0;
        for step in steps {
            match step {
                Step::Send { stream, lens } => {
                    let pieces = lens.map(|len| {
                        number += 1;
                        (0..len).map(|at| (at * 7 + number * 31) as u8).collect::<Vec<_>>()
                    });
                    let [a, b] = &pieces;
                    pair.sender.reclaim().unwrap();
                    if pair.send(header(stream as u32), &[a, b]) {
                        streams.sent[stream].extend(pieces.concat());
                    }
                }
                Step::Take => _ = streams.take(&mut pair),
                Step::Forward { stream, most } => streams.forward(&mut pair, stream, most),
                Step::Publish => pair.tx.publish(),
                Step::Receive => streams.receive(&mut pair),
            }
        }
        while streams.take(&mut pair) {}
        for stream in 0..STREAMS {
            let mut tries = 0;
            while !streams.waiting[stream].is_empty() {
                streams.forward(&mut pair, stream, u32::MAX);
                streams.receive(&mut pair);
                tries += 1;
                prop_assert!(tries <= 128 * MAX_PAYLOAD, "stuck");
            }
        }
        streams.receive(&mut pair);
        pair.tx.publish();
        pair.sender.reclaim().unwrap();
        prop_assert_eq!(pair.sender.ring().free(), usize::from(size));
        for (sent, received) in streams.sent.iter().zip(&streams.received) {
            prop_assert!(sent == received, "{} bytes sent, {} received", sent.len(), received.len());
        }
    }
}

#[test]
fn a_part_of_a_packet_is_read_and_written() {
    for shape in [Shape::Whole, Shape::Apart, Shape::Pieces(7)] {
        let mut pair = Pair::new(RING_FEATURES, 8, (shape, 1000), (Shape::Whole, 1000));
        let bytes: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        assert!(pair.send(header(1), &[&bytes]));
        let head = pair.tx.take().unwrap().unwrap().head;
        let mut out = [0; 300];
        for (offset, len) in [(0, 300), (699, 300), (900, 100), (999, 1), (1000, 0), (u32::MAX, 0)] {
            assert_eq!(pair.tx.read(head, offset, &mut out), len, "{offset}");
            assert_eq!(out[..len], bytes[(offset as usize).min(1000)..][..len]);
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(pair.tx.write_to(head, 100, ours.as_fd()).unwrap(), 900);
        assert_eq!(pair.tx.write_to(head, 1000, ours.as_fd()).unwrap(), 0);
        drop(ours);
        let mut found = Vec::new();
        theirs.read_to_end(&mut found).unwrap();
        assert_eq!(found, bytes[100..]);
        let closed = pair.tx.write_to(head, 100, theirs.as_fd()).unwrap_err();
        assert_eq!(closed.kind(), std::io::ErrorKind::BrokenPipe);
        pair.tx.give_back(head);
        assert_eq!(pair.tx.read(head, 0, &mut out), 0, "it is given back");
        assert_eq!(pair.tx.read(9999, 0, &mut out), 0, "there is no such packet");
    }
}

#[test]
fn bytes_that_do_not_fit_are_left_out() {
    let mut pair = Pair::new(RING_FEATURES, 8, (Shape::Apart, 1000), (Shape::Apart, 100));
    assert!(pair.send(header(1), &[&[5; 500]]));
    let head = pair.tx.take().unwrap().unwrap().head;
    assert_eq!(pair.rx.room(), Ok(Some(100)));
    let piece = |offset, len| Piece::Packet { from: &pair.tx, head, offset, len };
    let pieces = [Piece::Bytes(&[1; 30]), piece(490, 20), Piece::Bytes(&[2; 50]), piece(0, u32::MAX)];
    assert_eq!(pair.rx.deliver(header(1), pieces), Ok(100));
    assert_eq!(pair.rx.deliver(header(2), []), Ok(0));
    assert_eq!(pair.rx.position(), 2);
    pair.rx.publish();
    let expected = [&[1; 30][..], &[5; 10], &[2; 50], &[5; 10]].concat();
    assert_eq!(pair.receive(), Some((SocketHeader { len: 100, ..header(1) }, expected)));
    assert_eq!(pair.receive(), Some((header(2), Vec::new())));
    assert_eq!(pair.receive(), None);
}

#[test]
fn only_a_sleeping_end_is_notified() {
    for features in [VERSION_1, RING_FEATURES] {
        let mut pair = Pair::new(features, 4, (Shape::Whole, 100), (Shape::Whole, 100));
        pair.tx.suspend_kicks();
        assert!(pair.send(header(0), &[]));
        assert!(pair.tx.arm_kicks(), "a packet came while kicks were suspended");
        let head = pair.tx.take().unwrap().unwrap().head;
        assert!(!pair.tx.arm_kicks());
        pair.sender.ring().needs_kick();
        assert!(pair.send(header(0), &[]));
        assert!(pair.sender.ring().needs_kick(), "the device sleeps");
        assert!(!pair.sender.ring().needs_kick(), "each answer is given once");

        pair.sender.ring().suspend_interrupts();
        pair.sender.ring().arm_interrupts();
        assert!(!pair.tx.needs_interrupt(), "nothing is published");
        pair.tx.give_back(head);
        assert!(!pair.tx.needs_interrupt(), "nothing is published");
        pair.tx.publish();
        assert!(pair.tx.needs_interrupt(), "the driver sleeps");
        assert!(!pair.tx.needs_interrupt(), "each answer is given once");
        assert!(pair.sender.ring().arm_interrupts(), "a packet came back");

        while pair.rx.room().unwrap().is_some() {
            pair.rx.deliver(header(1), []).unwrap();
        }
        pair.rx.publish();
        assert!(!pair.rx.arm_kicks(), "no buffer came");
        pair.receiver.ring().needs_kick();
        assert!(pair.receive().is_some());
        assert!(pair.receiver.ring().needs_kick(), "the device sleeps");
        assert!(pair.rx.arm_kicks(), "a buffer came");
        pair.receiver.ring().arm_interrupts();
        pair.rx.needs_interrupt();
        pair.rx.deliver(header(1), []).unwrap();
        pair.rx.publish();
        assert_eq!(pair.rx.needs_interrupt(), features == VERSION_1, "others wait already");
    }
}

#[test]
fn a_receive_queue_continues_where_the_last_one_stopped() {
    let mut ram = Ram::new(1 << 20).unwrap();
    let layout = QueueLayout::allocate(&mut ram, 4).unwrap();
    let driver = SocketRxDriver::new(&mut ram, layout, RING_FEATURES, Shape::Whole, 100);
    let mut driver = driver.unwrap().unwrap();
    driver.ring().publish();
    let mut expected = Vec::new();
    for round in 0..10 {
        let start = if round % 2 == 0 { Start::Recover } else { Start::At(round) };
        let mut rx = SocketRx::new(ram.memory(), &layout.config(RING_FEATURES, start)).unwrap();
        assert_eq!((rx.position(), rx.room()), (round, Ok(Some(100))));
        rx.deliver(header(round.into()), [Piece::Bytes(&[round as u8])]).unwrap();
        rx.publish();
        // Never published.
        rx.deliver(header(77), []).unwrap();
        expected.push(u32::from(round));
        if round % 3 == 2 {
            for expected in expected.drain(..) {
                assert_eq!(driver.receive(|header, _| header.src_port), Ok(Some(expected)));
            }
            assert_eq!(driver.receive(|header, _| header.src_port), Ok(None));
            driver.ring().publish();
        }
    }
}
