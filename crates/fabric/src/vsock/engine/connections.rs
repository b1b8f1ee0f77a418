//! Connections in the table: packets that belong to none, opening, ending and forgetting.

use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::socket_header::{REQUEST, RST, SocketHeader};

use super::{VsockEvent, VsockSwitch};
use crate::vsock::guest::Starvation;
use crate::vsock::proto::{
    Address, BySide, ConnId, Connection, Credit, End, FlowId, GuestIdx, Party, Rare, Side, SocketType, State,
    Verdict,
};
use crate::vsock::queue_pair::is_service;

/// Packets that belong to no connection.
impl VsockSwitch {
    /// Drops a packet whose source is not the guest that sent it.
    #[cold]
    pub(super) fn drop_forged(
        &mut self,
        guest: GuestIdx,
        own: Cid,
        header: &SocketHeader,
        now: Instant,
    ) -> Verdict {
        self.guests.count(guest, SocketWord::Forged, 1);
        if let Some(device) = &mut self.guests.devices[guest]
            && device.may_report(now)
        {
            let what = format!("a packet of context ID {} came from {own}'s device", header.src_cid);
            self.events.push(VsockEvent::Violation { port: device.config.id, what });
        }
        Verdict::Done
    }

    /// Answers a packet of an unknown socket type (virtio 1.2, 5.10.6.1).
    #[cold]
    pub(super) fn refuse_type(&mut self, guest: GuestIdx, header: &SocketHeader) -> Verdict {
        self.guests.count(guest, SocketWord::Malformed, 1);
        self.reply_by_reset(guest, header)
    }

    /// Answers a packet to a peer that is not there.
    pub(super) fn refuse(&mut self, guest: GuestIdx, header: &SocketHeader) -> Verdict {
        if header.op == REQUEST {
            self.guests.count(guest, SocketWord::Refused, 1);
        }
        self.reply_by_reset(guest, header)
    }

    /// Handles a packet between addresses that have no connection.
    pub(super) fn on_unconnected(
        &mut self,
        guest: GuestIdx,
        header: &SocketHeader,
        socket_type: SocketType,
        to: Address,
        now: Instant,
    ) -> Verdict {
        if header.op == REQUEST {
            self.request(guest, header, socket_type, to, now)
        } else {
            self.reply_by_reset(guest, header)
        }
    }

    /// Tells a guest that the connection of its packet does not exist. A reset is not answered.
    fn reply_by_reset(&mut self, guest: GuestIdx, header: &SocketHeader) -> Verdict {
        if header.op != RST {
            self.guests.receivers[guest].reply_by_reset(header);
            self.sched.turns.mark_busy(guest);
        }
        Verdict::Done
    }

    /// Opens the connection that a guest requests. A peer that the guest may not reach is refused
    /// in the same way as an absent one.
    fn request(
        &mut self,
        guest: GuestIdx,
        header: &SocketHeader,
        socket_type: SocketType,
        to: Address,
        now: Instant,
    ) -> Verdict {
        let Some(device) = &self.guests.devices[guest] else { return Verdict::Done };
        let from = Address { cid: device.config.cid, port: header.src_port };
        let party = if is_service(to) {
            let is_served = socket_type == SocketType::Stream && self.pairs.region(guest).is_some();
            is_served.then_some(Party::Fabric)
        } else if to.cid == Cid::HOST {
            // The host's sockets are byte streams.
            (socket_type == SocketType::Stream).then_some(Party::Host)
        } else {
            let peer = device.peers.get(&to.cid).copied();
            peer.filter(|&peer| self.guests.receivers[peer].ring.is_some()).map(Party::Guest)
        };
        let Some(party) = party else { return self.refuse(guest, header) };
        let ends = BySide([End { address: from, party: Party::Guest(guest) }, End { address: to, party }]);
        let credit = Credit { buf_alloc: header.buf_alloc, fwd_cnt: header.fwd_cnt };
        let Some(id) = self.open(ends, socket_type, credit, now) else {
            self.guests.count(guest, SocketWord::Limited, 1);
            return self.reply_by_reset(guest, header);
        };
        match party {
            Party::Host => self.ask_tautd(guest, id, to.port),
            Party::Fabric => self.accept_control(id),
            Party::Guest(_) => self.send_request(id),
        }
        Verdict::Done
    }
}

impl VsockSwitch {
    /// Opens a connection whose requester gives this credit. Returns `None` if the guest to which
    /// the connection counts has as many as it may have.
    pub(super) fn open(
        &mut self,
        ends: BySide<End>,
        socket_type: SocketType,
        credit: Credit,
        now: Instant,
    ) -> Option<ConnId> {
        let connection = Connection::new(ends, socket_type, now);
        if !self.guests.may_request(&ends[Side::Requester]) || !self.guests.may_own(&connection) {
            return None;
        }
        let guests = connection.guests();
        let id = self.add(connection, None)?;
        self.grant_credit(id, Side::Requester, credit);
        for guest in guests {
            self.guests.count(guest, SocketWord::Opened, 1);
        }
        Some(id)
    }

    /// Sets the credit that a side gives at first.
    pub(super) fn grant_credit(&mut self, id: ConnId, by: Side, credit: Credit) {
        if let Some(connection) = self.table.get_mut(id) {
            let between_guests = connection.is_between_guests();
            let pledged = self.guests.pledged(connection.ends[by].party).filter(|_| between_guests);
            connection.grant_credit(by, credit, pledged);
        }
    }

    /// Adds a connection under `id`, or under any free number, and counts it.
    pub(super) fn add(&mut self, connection: Connection, id: Option<ConnId>) -> Option<ConnId> {
        let id = self.table.add(connection, id)?;
        let connection = self.table.get(id)?;
        self.record.add(id, connection);
        for from in Side::BOTH {
            if let Some(pledged) = self.guests.pledged(connection.ends[from.other()].party) {
                pledged.add(connection.outstanding(from), connection.socket_type);
            }
        }
        self.guests.count_connection(connection, 1);
        if connection.state == State::Requested {
            self.sched.half_open.add(connection);
            let requester = connection.ends[Side::Requester].party;
            self.count_half_open(requester, 1);
        }
        Some(id)
    }

    /// Queues a flow of a connection at its receiver.
    pub(super) fn queue(&mut self, id: ConnId, from: Side) {
        if let Some(connection) = self.table.get_mut(id) {
            self.sched.turns.queue(FlowId { connection: id, from }, connection);
        }
    }

    /// Queues the request of a connection at the responder.
    pub(super) fn send_request(&mut self, id: ConnId) {
        if let Some(connection) = self.table.get_mut(id) {
            connection.flows[Side::Requester].pending.request = true;
            self.sched.turns.queue(FlowId { connection: id, from: Side::Requester }, connection);
        }
    }

    /// Ends a connection at the wish of side `by`, or for both sides.
    pub(super) fn end(&mut self, id: ConnId, by: Option<Side>) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let actions = connection.end(by);
        self.sched.queue_all(id, connection, actions.ready);
        self.carry_out_rare(id, actions.rare);
    }

    /// Carries out the actions that only the beginning and the end of a connection need.
    pub(super) fn carry_out_rare(&mut self, id: ConnId, rare: Rare) {
        let Some(connection) = self.table.get(id) else { return };
        let is_over = connection.state == State::Over && connection.has_pairs();
        if rare.answered {
            self.sched.half_open.remove(connection);
            let requester = connection.ends[Side::Requester].party;
            self.count_half_open(requester, -1);
        }
        for from in rare.discard {
            self.discard(id, from);
        }
        if is_over {
            self.settle_over(id);
        }
        if rare.closed {
            self.forget(id);
        }
    }

    /// Counts an unanswered request that was added or removed.
    fn count_half_open(&mut self, requester: Party, change: i32) {
        if let Party::Guest(guest) = requester
            && let Some(device) = &mut self.guests.devices[guest]
        {
            device.count_half_open(change);
        }
    }

    /// Gives the waiting packets of a flow back to their sender, undelivered.
    pub(super) fn discard(&mut self, id: ConnId, from: Side) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let copied = connection.copied_for_host(from);
        let packets = connection.flows[from].take_packets();
        if let Party::Guest(guest) = connection.ends[from].party {
            let sender = &mut self.guests.senders[guest];
            sender.copied_for_host -= copied;
            sender.give_back_all(packets);
            self.sched.unpublished.add_sender(guest, sender);
        }
    }

    /// Forgets a connection of whose end both sides know.
    fn forget(&mut self, id: ConnId) {
        for from in Side::BOTH {
            self.discard(id, from);
        }
        self.end_control(id);
        let Some(connection) = self.table.remove(id) else { return };
        self.record.remove(id);
        self.sched.turns.forget(&connection, &self.table);
        for from in Side::BOTH {
            if let Some(pledged) = self.guests.pledged(connection.ends[from.other()].party) {
                pledged.remove(connection.outstanding(from), connection.socket_type);
            }
        }
        self.guests.count_connection(&connection, -1);
        self.leave_channels(&connection);
        self.pairs.remove_control(id);
        self.host.close(id);
    }

    /// Forgets a connection if both sides know of its end.
    pub(super) fn forget_if_closed(&mut self, id: ConnId) {
        if self.table.get(id).is_some_and(Connection::is_closed) {
            self.forget(id);
        }
    }

    /// Ends the connections of a guest that is gone or has started anew. Its waiting packets are
    /// lost, and what is in its rings.
    pub(super) fn end_all_of(&mut self, guest: GuestIdx) {
        // First of all, so that nothing is read from the rings that what starts anew writes there.
        self.leave_region(guest);
        for id in self.table.ids_of(guest) {
            let Some(connection) = self.table.get_mut(id) else { continue };
            let side = connection.side_of(guest);
            // These packets were in a ring that is gone or was replaced.
            let _ = connection.flows[side].take_packets();
            connection.flows[side].cut = true;
            self.end(id, Some(side));
        }
        let sender = &mut self.guests.senders[guest];
        (sender.taken, sender.copied_for_host) = (0, 0);
        let receiver = &mut self.guests.receivers[guest];
        receiver.replies.clear();
        receiver.starvation = Starvation::No;
        self.sched.turns.clear(guest);
    }
}
