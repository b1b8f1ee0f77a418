//! A connection driven by packets alone.

use std::time::Instant;

use proptest::prelude::*;
use taut_api::vmci::Cid;
use taut_virtq::socket_header::*;

use super::*;

const BUF_ALLOC: u32 = 1000;

/// A connection, and a model of what its ends have been told.
struct World {
    connection: Connection,
    /// Slots of the packets of each side.
    slots: BySide<PacketSlots>,
    /// Number of the next packet of each side.
    next_packet: BySide<u16>,
    /// Operations that each side has received.
    received: BySide<Vec<u16>>,
    /// Payload bytes that each side has received.
    bytes: BySide<u32>,
    /// What was promised for each side as a receiver.
    pledged: BySide<Pledged>,
}

impl World {
    /// A request that the responder has not been sent.
    fn requested() -> Self {
        let end = |cid, guest| End {
            address: Address { cid: Cid(cid), port: 80 },
            party: Party::Guest(GuestIdx(guest)),
        };
        let ends = BySide([end(3, 0), end(4, 1)]);
        let mut connection = Connection::new(ends, SocketType::Stream, Instant::now());
        let mut pledged = BySide::<Pledged>::default();
        let credit = Credit { buf_alloc: BUF_ALLOC, fwd_cnt: 0 };
        connection.grant_credit(Side::Requester, credit, Some(&mut pledged[Side::Requester]));
        connection.flows[Side::Requester].pending.request = true;
        let slots = || {
            let mut slots = PacketSlots::default();
            slots.provide(256);
            slots
        };
        Self {
            connection,
            slots: BySide([slots(), slots()]),
            next_packet: BySide::default(),
            received: BySide::default(),
            bytes: BySide::default(),
            pledged,
        }
    }

    /// A connection that both sides know to be open.
    fn open() -> Self {
        let mut world = Self::requested();
        assert_eq!(world.deliver(Side::Requester), [REQUEST]);
        let (verdict, actions) = world.send(Side::Responder, RESPONSE, 0);
        assert_eq!(verdict, Verdict::Done);
        assert!(actions.rare.answered);
        assert_eq!(ready(actions), [Side::Responder]);
        assert_eq!(world.deliver(Side::Responder), [RESPONSE]);
        world.received = BySide::default();
        world
    }

    /// A packet from a side, with this much payload, whose program has read everything.
    fn send(&mut self, from: Side, op: u16, len: u32) -> (Verdict, Actions) {
        let credit = Credit { buf_alloc: BUF_ALLOC, fwd_cnt: self.bytes[from] };
        self.send_with(from, op, len, 0, credit)
    }

    fn send_with(&mut self, from: Side, op: u16, len: u32, flags: u32, credit: Credit) -> (Verdict, Actions) {
        let Credit { buf_alloc, fwd_cnt } = credit;
        let header = SocketHeader { op, len, flags, buf_alloc, fwd_cnt, ..self.connection.header(from) };
        let packet = self.next_packet[from];
        let (slots, pledged) = (&mut self.slots[from], &mut self.pledged[from]);
        let kind = SocketType::Stream;
        let (verdict, actions) = self.connection.on_packet(from, &header, kind, packet, slots, pledged);
        if verdict == Verdict::Queued {
            self.next_packet[from] += 1;
        }
        for side in actions.rare.discard {
            let _ = self.connection.flows[side].take_packets();
        }
        (verdict, actions)
    }

    /// Hands over everything that the flow has for its receiver. Returns the operations.
    fn deliver(&mut self, from: Side) -> Vec<u16> {
        let mut ops = Vec::new();
        loop {
            let mut next = self.connection.next(from);
            if let Next::Payload(header) = next {
                let flow = &mut self.connection.flows[from];
                let first = flow.first_len(&self.slots[from]);
                let len = (first - flow.offset).min(flow.window.room());
                // A packet without bytes needs no credit.
                if len > 0 || first == 0 {
                    self.bytes[from.other()] += len;
                    let pledged = &mut self.pledged[from.other()];
                    flow.on_payload_delivered(len, 0, SocketType::Stream, pledged);
                    flow.on_header_delivered(&header);
                    flow.offset += len;
                    if flow.offset == first {
                        flow.offset = 0;
                        flow.packets.pop(&self.slots[from]);
                    }
                    ops.push(RW);
                    continue;
                }
                next = if flow.pending.reset {
                    let _ = flow.take_packets();
                    self.connection.next_after_payload(from)
                } else {
                    self.connection.next_without_credit(from)
                };
            }
            let Next::Control(header) = next else { break };
            self.connection.flows[from].on_control_delivered(&header);
            ops.push(header.op);
        }
        self.received[from.other()].extend(&ops);
        ops
    }

    /// Tells whether the first packet with payload of a side can be handed over: it has no bytes,
    /// or the receiver has room for some.
    fn can_pass(&self, from: Side) -> bool {
        let flow = &self.connection.flows[from];
        flow.window.room() > 0 || flow.first_len(&self.slots[from]) == 0
    }
}

fn ready(actions: Actions) -> Vec<Side> {
    actions.ready.into_iter().collect()
}

use Side::{Requester, Responder};

#[test]
fn payload_is_queued_and_delivered_up_to_the_receivers_credit() {
    let mut world = World::open();
    let (verdict, actions) = world.send(Requester, RW, BUF_ALLOC + 10);
    assert_eq!((verdict, ready(actions)), (Verdict::Queued, vec![Requester]));
    assert_eq!(world.deliver(Requester), [RW]);
    assert_eq!(world.bytes[Responder], BUF_ALLOC);
    // New credit makes the flow ready again.
    let (verdict, actions) = world.send(Responder, CREDIT_UPDATE, 0);
    assert_eq!(verdict, Verdict::Done);
    assert!(ready(actions).contains(&Requester));
    assert_eq!(world.deliver(Requester), [RW]);
    assert_eq!(world.bytes[Responder], BUF_ALLOC + 10);
}

#[test]
fn packets_without_bytes_keep_their_place_and_need_no_credit() {
    let mut world = World::open();
    for len in [0, BUF_ALLOC, 0, 1, 0] {
        let (verdict, actions) = world.send(Requester, RW, len);
        assert_eq!((verdict, ready(actions)), (Verdict::Queued, vec![Requester]));
    }
    // The receiver has room for the first three only.
    assert_eq!(world.deliver(Requester), [RW; 3]);
    assert_eq!(world.connection.flows[Requester].packets.count, 2);
    assert_eq!(world.bytes[Responder], BUF_ALLOC);
    let _ = world.send(Responder, CREDIT_UPDATE, 0);
    assert_eq!(world.deliver(Requester), [RW; 2]);
    assert!(world.connection.flows[Requester].packets.is_empty());
    assert_eq!(world.bytes[Responder], BUF_ALLOC + 1);
}

#[test]
fn a_credit_update_that_the_sender_does_not_need_is_deferred_once() {
    let mut world = World::open();
    let _ = world.send(Requester, RW, 10);
    world.deliver(Requester);
    let (_, actions) = world.send(Responder, CREDIT_UPDATE, 0);
    assert_eq!((ready(actions), actions.update_later), (vec![], Some(Responder)));
    let (_, actions) = world.send(Responder, CREDIT_UPDATE, 0);
    assert_eq!((ready(actions), actions.update_later), (vec![], None));
    assert!(world.deliver(Responder).is_empty());
    // Half of the buffer is used up, as far as the sender knows: the update is due now.
    let (_, actions) = world.send(Requester, RW, BUF_ALLOC / 2);
    assert_eq!(ready(actions), [Requester, Responder]);
    assert_eq!(world.deliver(Responder), [CREDIT_UPDATE]);
}

#[test]
fn a_credit_update_that_was_asked_for_is_passed_on_at_once() {
    let mut world = World::open();
    let (_, actions) = world.send(Requester, CREDIT_REQUEST, 0);
    assert_eq!(ready(actions), [Requester]);
    assert_eq!(world.deliver(Requester), [CREDIT_REQUEST]);
    let (_, actions) = world.send(Responder, CREDIT_UPDATE, 0);
    assert_eq!((ready(actions), actions.update_later), (vec![Responder], None));
}

#[test]
fn a_shutdown_and_a_reset_follow_the_payload_before_them() {
    let mut world = World::open();
    let _ = world.send(Requester, RW, 10);
    let credit = Credit { buf_alloc: BUF_ALLOC, fwd_cnt: 0 };
    let _ = world.send_with(Requester, SHUTDOWN, 0, SHUTDOWN_SEND, credit);
    assert_eq!(world.deliver(Requester), [RW, SHUTDOWN]);
    assert_eq!(world.send(Requester, RW, 10).0, Verdict::Violation, "payload behind its announced end");

    let mut world = World::open();
    let _ = world.send(Requester, RW, 10);
    let (verdict, actions) = world.send(Requester, RST, 0);
    assert_eq!((verdict, ready(actions), actions.rare.closed), (Verdict::Done, vec![Requester], false));
    assert_eq!(world.deliver(Requester), [RW, RST]);
    assert!(world.connection.is_closed());
}

#[test]
fn a_responder_that_was_never_sent_the_request_is_not_sent_a_reset() {
    let mut world = World::requested();
    let (_, actions) = world.send(Requester, RST, 0);
    assert!(actions.rare.answered && actions.rare.closed);
    assert!(world.deliver(Requester).is_empty());
}

#[test]
fn a_violation_resets_both_sides_and_gives_all_packets_back() {
    let mut world = World::open();
    let _ = world.send(Responder, RW, 10);
    let (verdict, actions) = world.send(Requester, RESPONSE, 0);
    assert_eq!((verdict, ready(actions)), (Verdict::Violation, vec![Requester, Responder]));
    assert_eq!(actions.rare.discard.into_iter().count(), 2);
    assert_eq!((world.deliver(Requester), world.deliver(Responder)), (vec![RST], vec![RST]));
    assert!(world.connection.is_closed());
}

#[test]
fn of_a_connection_that_is_over_only_requests_are_answered() {
    let mut world = World::open();
    let _ = world.send(Requester, RST, 0);
    assert_eq!(world.send(Requester, REQUEST, 0).0, Verdict::Refused);
    for op in [RW, RESPONSE, SHUTDOWN, CREDIT_UPDATE, CREDIT_REQUEST, 99] {
        assert_eq!(world.send(Responder, op, 0), (Verdict::Done, Actions::default()), "operation {op}");
    }
    let (_, actions) = world.send(Responder, RST, 0);
    assert!(actions.rare.closed, "the responder ends it by itself");
    assert!(world.deliver(Requester).is_empty());
}

#[test]
fn a_packet_of_another_socket_type_changes_nothing() {
    let mut world = World::open();
    let header = SocketHeader { op: RST, ..world.connection.header(Responder) };
    let (slots, pledged) = (&mut world.slots[Responder], &mut world.pledged[Responder]);
    let kind = SocketType::SeqPacket;
    let result = world.connection.on_packet(Responder, &header, kind, 0, slots, pledged);
    assert_eq!(result, (Verdict::Done, Actions::default()));
    assert_eq!(world.connection.state, State::Open);
}

#[test]
fn sides_are_listed_once_in_the_order_of_insertion() {
    let mut sides = Sides::default();
    assert!(sides.is_empty());
    for side in [Responder, Responder, Requester, Responder, Requester] {
        sides.add(side);
    }
    assert_eq!(sides.into_iter().collect::<Vec<_>>(), [Responder, Requester]);
}

/// A step of a random run.
#[derive(Debug, Clone)]
enum Step {
    Send { from: Side, op: u16, len: u32, flags: u32, buf_alloc: u32, unread: u32 },
    Deliver(Side),
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Requester), Just(Responder)]
}

fn step() -> impl Strategy<Value = Step> {
    let ops = prop_oneof![
        8 => Just(RW),
        3 => Just(CREDIT_UPDATE),
        2 => Just(CREDIT_REQUEST),
        1 => Just(RESPONSE),
        1 => Just(SHUTDOWN),
        1 => Just(RST),
        1 => 0..10_u16,
    ];
    let lens = prop_oneof![1 => Just(0), 6 => 0..2000_u32];
    let send = (side(), ops, lens, 0..4_u32, 0..3000_u32, 0..500_u32).prop_map(
        |(from, op, len, flags, buf_alloc, unread)| Step::Send { from, op, len, flags, buf_alloc, unread },
    );
    prop_oneof![3 => send, 2 => side().prop_map(Step::Deliver)]
}

proptest! {
    /// Whatever both ends send: a side gets no more payload than it gave credit for, nothing behind
    /// a reset, and one reset at most; progress never goes back; and a flow that has something for
    /// its receiver was announced as ready.
    #[test]
    fn the_protocol_keeps_its_promises_for_any_packets(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::requested();
        let mut announced = BySide([true, false]);
        let mut most = BySide([BUF_ALLOC, 0]);
        let mut progress = 0;
        for step in steps {
            match step {
                Step::Send { from, op, len, flags, buf_alloc, unread } => {
                    let len = if op == RW { len } else { 0 };
                    let fwd_cnt = world.bytes[from].saturating_sub(unread);
                    let alive = world.connection.state != State::Over;
                    let credit = Credit { buf_alloc, fwd_cnt };
                    let (verdict, actions) = world.send_with(from, op, len, flags, credit);
                    if alive {
                        most[from] = most[from].max(fwd_cnt + buf_alloc);
                    }
                    prop_assert!(!actions.rare.closed || world.connection.is_closed());
                    prop_assert!(verdict != Verdict::Queued || world.connection.state == State::Open);
                    for side in actions.ready {
                        announced[side] = true;
                    }
                }
                Step::Deliver(from) if announced[from] => {
                    world.deliver(from);
                    announced[from] = false;
                    let waits = world.connection.flows[from].has_payload();
                    prop_assert!(!waits || !world.can_pass(from), "a packet is forgotten");
                }
                Step::Deliver(from) => {
                    let next = world.connection.next(from);
                    let can_send = match next {
                        Next::Payload(_) => world.can_pass(from),
                        Next::Control(header) => header.op != CREDIT_UPDATE,
                        _ => false,
                    };
                    prop_assert!(!can_send, "{:?} was not announced", next);
                }
            }
            let now = match world.connection.state {
                State::Requested => 0,
                State::Open => 1,
                State::Over => 2,
            };
            prop_assert!(now >= progress);
            progress = now;
            for side in Side::BOTH {
                prop_assert!(world.bytes[side] <= most[side], "more payload than credit");
                let ops = &world.received[side];
                let resets = ops.iter().filter(|&&op| op == RST).count();
                prop_assert!(resets == 0 || resets == 1 && ops.last() == Some(&RST));
            }
        }
    }
}
