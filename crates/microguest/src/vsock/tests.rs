//! Two stacks with a wire between them that has little room and cuts packets to the receiver's
//! buffers.

use std::collections::VecDeque;

use proptest::prelude::*;
use taut_virtq::socket_header::{self as packet, SocketHeader};

use super::stack::Stack;
use super::wire::{Payload, Wire};
use super::*;

const PORT: u32 = 2000;

/// One end of a wire: received packets, and packets to send.
#[derive(Default)]
struct End {
    inbox: VecDeque<(SocketHeader, Vec<u8>)>,
    outbox: VecDeque<(SocketHeader, Vec<u8>)>,
    /// Number of packets that fit in the outbox.
    room: usize,
}

impl End {
    fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    fn ops(&self) -> Vec<u16> {
        self.outbox.iter().map(|(header, _)| header.op).collect()
    }

    fn give(&mut self, header: SocketHeader, payload: &[u8]) {
        self.inbox.push_back((SocketHeader { len: payload.len() as u32, ..header }, payload.to_vec()));
    }
}

impl Wire for End {
    fn send(&mut self, header: &SocketHeader, payload: &[u8]) -> bool {
        assert_eq!(header.len as usize, payload.len());
        let fits = self.outbox.len() < self.room;
        if fits {
            self.outbox.push_back((*header, payload.to_vec()));
        }
        fits
    }

    fn send_anything(&mut self, header: &SocketHeader) -> bool {
        self.send(header, &vec![0; header.len as usize])
    }

    fn receive(&mut self, take: &mut dyn FnMut(&SocketHeader, &mut Payload<'_>)) -> bool {
        let Some((header, payload)) = self.inbox.pop_front() else { return false };
        let mut rest = &payload[..];
        take(&header, &mut |piece| {
            let (now, later) = rest.split_at(piece.len());
            piece.copy_from_slice(now);
            rest = later;
        });
        true
    }
}

/// Two machines.
struct Pair {
    a: Stack,
    b: Stack,
    ends: [End; 2],
    now: Instant,
}

impl Pair {
    fn new(room: usize, packet: usize) -> Self {
        let ends = [End::with_room(room), End::with_room(room)];
        Self { a: Stack::new(3, packet), b: Stack::new(4, packet), ends, now: Instant::now() }
    }

    /// Carries packets in both directions, in pieces of at most `buffer` bytes, and polls both
    /// stacks.
    fn carry(&mut self, buffer: usize) {
        let [a, b] = &mut self.ends;
        deliver(a, b, buffer);
        deliver(b, a, buffer);
        self.a.poll(&mut self.ends[0], self.now);
        self.b.poll(&mut self.ends[1], self.now);
    }

    fn settle(&mut self) {
        loop {
            self.carry(4052);
            if self.ends.iter().all(|end| end.outbox.is_empty() && end.inbox.is_empty()) {
                return;
            }
        }
    }

    /// Returns an established connection from A to B, as each end has it.
    fn connected(&mut self, buffers: [usize; 2]) -> [ConnectionId; 2] {
        assert!(self.b.listen(PORT, buffers[1]));
        let at_a = self.a.connect(4, PORT, buffers[0]);
        self.a.poll(&mut self.ends[0], self.now);
        self.settle();
        assert!(self.a.connection(at_a).may_send());
        [at_a, self.b.accept(PORT).unwrap()]
    }

    fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        self.a.connection(id).send(bytes, &mut self.ends[0])
    }

    fn receive(&mut self, id: ConnectionId, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.b.connection(id).receive(len, |piece| bytes.extend_from_slice(piece));
        self.b.used(id);
        bytes
    }
}

fn deliver(from: &mut End, to: &mut End, buffer: usize) {
    for (header, payload) in from.outbox.drain(..) {
        if payload.is_empty() {
            to.give(header, &[]);
        }
        payload.chunks(buffer).for_each(|piece| to.give(header, piece));
    }
}

/// Returns a packet of a peer with this credit.
fn says(op: u16, buf_alloc: u32) -> SocketHeader {
    SocketHeader {
        src_cid: 9,
        dst_cid: 4,
        src_port: 77,
        dst_port: PORT,
        kind: packet::STREAM,
        op,
        buf_alloc,
        ..SocketHeader::default()
    }
}

#[test]
fn a_connection_opens_ends_one_way_and_closes() {
    let mut pair = Pair::new(16, 65_536);
    let [at_a, at_b] = pair.connected([1000, 1000]);
    assert_eq!(pair.send(at_a, b"request"), 7);
    pair.a.connection(at_a).end();
    pair.a.used(at_a);
    pair.settle();
    assert!(!pair.a.connection(at_a).may_send());
    assert!(pair.b.connection(at_b).may_receive(), "seven bytes are left to read");
    assert_eq!(pair.receive(at_b, 100), b"request");
    assert!(!pair.b.connection(at_b).may_receive() && pair.b.connection(at_b).may_send());

    assert_eq!(pair.b.connection(at_b).send(b"answer", &mut pair.ends[1]), 6);
    pair.b.close(at_b);
    pair.settle();
    let a = pair.a.connection(at_a);
    assert!(a.may_receive() && !a.may_send());
    assert_eq!(a.receive(100, |piece| assert_eq!(piece, b"answer")), 6);
    assert!(!a.may_receive(), "B has closed");
    pair.a.used(at_a);
    pair.settle();
    assert!(!pair.a.connection(at_a).is_open());
    pair.a.close(at_a);
    pair.settle();
    assert_eq!((pair.a.connection_count(), pair.b.connection_count()), (0, 0));
}

#[test]
fn a_port_without_listener_and_a_full_one_refuse() {
    let mut pair = Pair::new(1000, 65_536);
    let at_a = pair.a.connect(4, PORT, 1000);
    pair.a.poll(&mut pair.ends[0], pair.now);
    pair.settle();
    assert!(!pair.a.connection(at_a).is_open());
    assert!(pair.b.listen(PORT, 100) && !pair.b.listen(PORT, 100));
    let many: Vec<_> = (0..300).map(|_| pair.a.connect(4, PORT, 100)).collect();
    pair.a.poll(&mut pair.ends[0], pair.now);
    pair.settle();
    let open = many.into_iter().filter(|id| pair.a.connection(*id).is_open()).count();
    assert_eq!(open, 256);
    pair.b.ignore(PORT);
    pair.settle();
    assert_eq!(pair.b.connection_count(), 0);
}

#[test]
fn unknown_packets_are_answered_by_a_reset_and_resets_are_not_answered() {
    let mut stack = Stack::new(4, 65_536);
    let mut end = End::with_room(100);
    assert!(stack.listen(PORT, 100));
    for op in [packet::RW, packet::RESPONSE, packet::SHUTDOWN, packet::CREDIT_UPDATE, packet::RST, 99] {
        end.give(says(op, 100), &[]);
    }
    end.give(SocketHeader { kind: 7, ..says(packet::REQUEST, 100) }, &[]);
    end.give(SocketHeader { dst_port: 1, ..says(packet::REQUEST, 100) }, &[]);
    end.give(SocketHeader { dst_cid: 5, ..says(packet::REQUEST, 100) }, &[]);
    stack.poll(&mut end, Instant::now());
    assert_eq!(end.ops(), [packet::RST; 7]);
    let (reset, _) = end.outbox[0];
    assert_eq!((reset.src_cid, reset.dst_cid, reset.src_port, reset.dst_port), (4, 9, PORT, 77));
    assert_eq!(stack.connection_count(), 0);
}

#[test]
fn answers_wait_for_room_and_are_bounded() {
    let mut stack = Stack::new(4, 65_536);
    let mut end = End::with_room(3);
    for _ in 0..1000 {
        end.give(says(packet::RW, 100), &[]);
    }
    stack.poll(&mut end, Instant::now());
    assert_eq!((end.outbox.len(), end.inbox.len()), (3, 1000 - 256), "the rest is left to the device");
    let mut answered = 0;
    while !end.outbox.is_empty() {
        answered += end.outbox.drain(..).count();
        stack.poll(&mut end, Instant::now());
    }
    assert_eq!(answered, 1000);
}

#[test]
fn a_peer_that_sends_more_than_it_may_is_reset() {
    let mut stack = Stack::new(4, 65_536);
    let mut end = End::with_room(100);
    assert!(stack.listen(PORT, 100));
    end.give(says(packet::REQUEST, 100), &[]);
    end.give(says(packet::RW, 100), &[1; 100]);
    stack.poll(&mut end, Instant::now());
    assert_eq!(end.ops(), [packet::RESPONSE]);
    let id = stack.accept(PORT).unwrap();
    end.give(says(packet::RW, 100), &[1]);
    stack.poll(&mut end, Instant::now());
    assert_eq!(end.ops(), [packet::RESPONSE, packet::RST]);
    assert_eq!(stack.connection(id).receive(1000, |_| ()), 100, "what had arrived can be read");
    assert!(!stack.connection(id).is_open());
}

#[test]
fn credit_is_sent_in_time_and_on_request() {
    let mut stack = Stack::new(4, 65_536);
    let mut end = End::with_room(100);
    assert!(stack.listen(PORT, 100));
    end.give(says(packet::REQUEST, 10), &[]);
    end.give(says(packet::RW, 10), &[1; 60]);
    stack.poll(&mut end, Instant::now());
    let id = stack.accept(PORT).unwrap();
    let read = |stack: &mut Stack, end: &mut End, len| {
        stack.connection(id).receive(len, |_| ());
        stack.used(id);
        end.outbox.clear();
        stack.poll(end, Instant::now());
        end.outbox.back().map(|(header, _)| (header.op, header.buf_alloc, header.fwd_cnt))
    };
    assert_eq!(read(&mut stack, &mut end, 24), None);
    assert_eq!(read(&mut stack, &mut end, 1), Some((packet::CREDIT_UPDATE, 100, 25)));
    assert_eq!(read(&mut stack, &mut end, 24), None);
    end.give(says(packet::CREDIT_REQUEST, 10), &[]);
    assert_eq!(read(&mut stack, &mut end, 0), Some((packet::CREDIT_UPDATE, 100, 49)));

    // The stack sends no more than the peer has room for, whatever the peer claims.
    assert_eq!(stack.connection(id).send(&[0; 50], &mut end), 10);
    assert_eq!(stack.connection(id).send(&[0; 50], &mut end), 0);
    end.give(SocketHeader { fwd_cnt: 4, ..says(packet::CREDIT_UPDATE, 10) }, &[]);
    end.give(SocketHeader { fwd_cnt: 4, ..says(packet::CREDIT_UPDATE, 5) }, &[]);
    stack.poll(&mut end, Instant::now());
    assert_eq!(
        stack.connection(id).send(&[0; 50], &mut end),
        0,
        "its buffer has shrunk below what is under way"
    );
    end.give(SocketHeader { fwd_cnt: 10, ..says(packet::CREDIT_UPDATE, 5) }, &[]);
    stack.poll(&mut end, Instant::now());
    assert_eq!(stack.connection(id).send(&[0; 50], &mut end), 5);
}

#[test]
fn a_peer_that_does_not_close_is_reset_after_a_while() {
    let mut stack = Stack::new(4, 65_536);
    let mut end = End::with_room(100);
    assert!(stack.listen(PORT, 100));
    end.give(says(packet::REQUEST, 10), &[]);
    let now = Instant::now();
    stack.poll(&mut end, now);
    let id = stack.accept(PORT).unwrap();
    stack.close(id);
    stack.poll(&mut end, now);
    assert_eq!(end.ops(), [packet::RESPONSE, packet::SHUTDOWN]);
    assert_eq!(end.outbox[1].0.flags, 3);
    let until = stack.next_deadline().unwrap();
    end.give(SocketHeader { flags: packet::SHUTDOWN_SEND, ..says(packet::SHUTDOWN, 10) }, &[]);
    end.give(says(packet::RW, 10), &[1; 70]);
    stack.poll(&mut end, now);
    assert_eq!(stack.connection_count(), 1);
    stack.poll(&mut end, until);
    stack.poll(&mut end, until);
    assert_eq!(end.ops().last(), Some(&packet::RST));
    assert_eq!(stack.connection_count(), 0);
    assert_eq!(stack.next_deadline(), None);
}

#[test]
fn losing_the_device_ends_connections_but_not_listeners() {
    let mut pair = Pair::new(16, 65_536);
    let [at_a, at_b] = pair.connected([1000, 1000]);
    pair.b.restart(4);
    assert!(!pair.b.connection(at_b).is_open());
    // The other side learns the credit from the next packet.
    assert_eq!(pair.send(at_a, b"?"), 1);
    pair.settle();
    assert!(!pair.a.connection(at_a).is_open());
    let again = pair.a.connect(4, PORT, 1000);
    pair.a.poll(&mut pair.ends[0], pair.now);
    pair.settle();
    assert!(pair.a.connection(again).may_send());
}

#[test]
fn discarded_bytes_count_and_give_credit_like_others() {
    let mut pair = Pair::new(16, 600);
    let [at_a, at_b] = pair.connected([1000, 1000]);
    assert_eq!(pair.send(at_a, b"seen"), 4);
    pair.settle();
    pair.b.connection(at_b).discard();
    let sent = pair.a.connection(at_a).send_anything(5000, &mut pair.ends[0]);
    assert_eq!(sent, 996, "no more than there is credit for");
    pair.settle();
    assert_eq!(pair.b.connection(at_b).receive(100, |_| ()), 100);
    assert_eq!(pair.b.connection(at_b).receive(9999, |_| ()), 900);
    pair.b.used(at_b);
    pair.settle();
    assert_eq!(pair.a.connection(at_a).send_anything(5000, &mut pair.ends[0]), 1000);
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Receive(usize),
    Carry(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..3000_usize).prop_map(Step::Send),
        (1..3000_usize).prop_map(Step::Receive),
        (1..3000_usize).prop_map(Step::Carry),
    ]
}

proptest! {
    /// Checks that bytes arrive as they were sent, never more than the receiver has room for, and
    /// that nothing gets stuck.
    #[test]
    fn a_stream_is_what_was_sent(
        steps in prop::collection::vec(step(), 1..200),
        buffer in 1..2000_usize,
        packet in 1..2000_usize,
        room in 1..5_usize,
    ) {
        let mut pair = Pair::new(room, packet);
        let [at_a, at_b] = pair.connected([100, buffer]);
        let bytes: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
        let (mut sent, mut received) = (0, 0);
        for step in steps {
            match step {
                Step::Send(len) => sent += pair.send(at_a, &bytes[sent..sent + len]),
                Step::Carry(buffer) => pair.carry(buffer),
                Step::Receive(len) => {
                    let now = pair.receive(at_b, len);
                    prop_assert!(now == bytes[received..received + now.len()]);
                    received += now.len();
                    prop_assert!(received <= sent && sent - received <= buffer);
                }
            }
        }
        // The rest, and as much again as the buffer holds.
        let until = sent + buffer;
        for _ in 0..20 * (buffer + 100) {
            sent += pair.send(at_a, &bytes[sent..until]);
            pair.carry(1000);
            received += pair.receive(at_b, usize::MAX).len();
            if received == until { break }
        }
        prop_assert_eq!(received, until);
    }
}
