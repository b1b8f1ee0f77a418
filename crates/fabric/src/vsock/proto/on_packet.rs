//! Effect of a packet on its connection (virtio 1.2, 5.10.6).
//!
//! A new operation needs a change at each of these places:
//! - its number in `socket_header.rs` of `taut_virtq`;
//! - [`Connection::on_packet`]: what it does to the connection;
//! - [`PendingControl`](super::PendingControl): when it is passed on, and
//!   [`Flow::on_control_delivered`](super::Flow::on_control_delivered): that it was;
//! - `flow_bits` and `flow_from_bits` in `handover/record.rs`: what the next fabric must know of
//!   it;
//! - `HostTurn` in `engine/to_host.rs`, if the operation is passed on: what the fabric does in
//!   place of a program on the host;
//! - `vsock/connection.rs` of `taut_microguest`, which resets a connection at an unknown operation;
//! - the tests in `proto/tests.rs` and the model in `vsock/tests/model.rs`.

use taut_virtq::socket_header::{
    CREDIT_REQUEST, CREDIT_UPDATE, REQUEST, RESPONSE, RST, RW, SHUTDOWN, SHUTDOWN_RCV, SHUTDOWN_SEND,
    SocketHeader,
};

use super::actions::Actions;
use super::connection::{Connection, Party, State};
use super::credit::Credit;
use super::ids::{FlowId, Side};
use super::one_way::OneWay;
use super::packet_queue::PacketSlots;
use super::promise::Pledged;
use super::socket_type::SocketType;

/// Decision about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet waits in its sender's ring until its receiver has all of its payload.
    Queued,
    /// The packet has been dealt with.
    Done,
    /// A request for an address pair that is in use: its sender is answered by a reset.
    Refused,
    /// The connection's state does not allow the packet. The connection is over for both sides.
    Violation,
}

impl Connection {
    /// Takes up a packet that `side` sent on this connection. `packet` is the number by which the
    /// sender's ring knows the packet, `slots` those of the sender, and `pledged` what was promised
    /// for the sender as a receiver.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        side: Side,
        header: &SocketHeader,
        socket_type: SocketType,
        packet: u16,
        slots: &mut PacketSlots,
        pledged: &mut Pledged,
    ) -> (Verdict, Actions) {
        if self.state == State::Over || self.socket_type != socket_type {
            return self.on_stray_packet(side, header);
        }
        let mut actions = Actions::default();
        self.take_up_credit(side, header, pledged, &mut actions);
        let flow_id = FlowId { connection: self.id, from: side };
        let flow = &mut self.flows[side];
        match (header.op, self.state) {
            (RW, State::Open) if !flow.ended => {
                flow.packets.push(slots, flow_id, packet, header.len, header.flags);
                flow.one_way.add();
                self.flows[side.other()].one_way = OneWay::default();
                actions.ready.add(side);
                self.on_credit_spent(side, &mut actions);
                return (Verdict::Queued, actions);
            }
            (CREDIT_UPDATE, State::Open) => {
                self.pass_credit_on(side, &mut actions);
                return (Verdict::Done, actions);
            }
            (CREDIT_REQUEST, State::Open) => {
                flow.pending.credit_request = true;
                flow.awaits_credit = true;
            }
            (SHUTDOWN, State::Open) => {
                flow.pending.shutdown |= header.flags & (SHUTDOWN_RCV | SHUTDOWN_SEND);
                flow.ended |= header.flags & SHUTDOWN_SEND != 0;
                flow.receive_shut |= header.flags & SHUTDOWN_RCV != 0;
            }
            (RESPONSE, State::Requested) if side == Side::Responder => {
                flow.pending.response = true;
                actions.rare.answered = self.accept();
            }
            (RST, _) => {
                self.reset(Some(side), &mut actions);
                return (Verdict::Done, actions);
            }
            _ => {
                self.reset(None, &mut actions);
                return (Verdict::Violation, actions);
            }
        }
        actions.ready.add(side);
        (Verdict::Done, actions)
    }

    /// Handles a packet of a connection that is over, or of another socket type.
    #[cold]
    fn on_stray_packet(&mut self, side: Side, header: &SocketHeader) -> (Verdict, Actions) {
        let mut actions = Actions::default();
        match header.op {
            // The address pair is in use until the other side has been told of the end.
            REQUEST => return (Verdict::Refused, actions),
            RST if self.state == State::Over => self.on_late_reset(side, &mut actions),
            _ => {}
        }
        (Verdict::Done, actions)
    }

    /// Takes up the credit that its sender gives: every packet carries it.
    #[inline]
    fn take_up_credit(
        &mut self,
        by: Side,
        header: &SocketHeader,
        pledged: &mut Pledged,
        actions: &mut Actions,
    ) {
        let credit = Credit { buf_alloc: header.buf_alloc, fwd_cnt: header.fwd_cnt };
        let sender = by.other();
        let from_guest = matches!(self.ends[sender].party, Party::Guest(_));
        let flow = &mut self.flows[sender];
        if flow.window.credit != credit {
            if from_guest {
                flow.on_credit(credit, self.socket_type, pledged);
            } else {
                flow.window.on_credit(credit);
            }
            if flow.has_payload() || !from_guest {
                actions.ready.add(sender);
            }
        }
    }

    /// Passes a credit update on: at once if the other side needs it, otherwise later.
    ///
    /// A receiver tells its credit whenever its buffer is empty (Linux does), so about once a
    /// packet. The sender need not know while it may send half a buffer more.
    #[inline]
    fn pass_credit_on(&mut self, of: Side, actions: &mut Actions) {
        let asked = std::mem::take(&mut self.flows[of.other()].awaits_credit);
        let to_guest = matches!(self.ends[of.other()].party, Party::Guest(_));
        if asked || !to_guest || self.must_advertise(of) {
            self.flows[of].pending.credit_update = true;
            actions.ready.add(of);
        } else if !std::mem::replace(&mut self.flows[of].advertised.update_deferred, true) {
            actions.update_later = Some(of);
        }
    }

    /// Queues a credit update if the side that payload was handed to can now be sent much more than
    /// its peer knows.
    #[inline]
    pub(crate) fn on_promise_raised(&mut self, of: Side, actions: &mut Actions) {
        if self.must_advertise(of) {
            self.flows[of].pending.credit_update = true;
            actions.ready.add(of);
        }
    }

    /// Queues a deferred credit update if the side that has spent credit needs it now.
    #[inline]
    fn on_credit_spent(&mut self, by: Side, actions: &mut Actions) {
        let of = by.other();
        if self.flows[of].advertised.update_deferred && self.must_advertise(of) {
            self.flows[of].pending.credit_update = true;
            actions.ready.add(of);
        }
    }
}
