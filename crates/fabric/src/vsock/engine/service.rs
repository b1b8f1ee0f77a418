//! The service that attaches ends of connections to channels: control connections, on which guests'
//! programs talk to the fabric itself.

use taut_api::vmci::Cid;
use taut_queue_pair::message::REQUEST_LEN;
use taut_queue_pair::{AttachAnswer, AttachRequest, Status};

use super::VsockSwitch;
use crate::vsock::proto::{Actions, Address, ConnId, FlowId, GuestIdx, Party, Side, SocketType, State};
use crate::vsock::queue_pair::{AttachedEnd, CONTROL_CREDIT, Control, EndId, PairFault, Taken};

impl VsockSwitch {
    /// Accepts the control connection that a guest has requested.
    pub(super) fn accept_control(&mut self, id: ConnId) {
        self.grant_credit(id, Side::Responder, CONTROL_CREDIT);
        self.pairs.add_control(id, Control::default());
        self.accept_for_host(id);
    }

    /// Takes up what a guest's program has sent on a control connection: its request, bells, and
    /// the end of the connection.
    pub(super) fn serve_control(&mut self, flow: FlowId, guest: GuestIdx) {
        let FlowId { connection: id, from } = flow;
        let Taken { request, bell, gives_up } = self.take_from_control(flow, guest);
        if let Some(request) = request {
            self.answer(id, guest, &request);
        }
        let channel = self.pairs.control(id).and_then(|control| control.channel);
        if let Some(channel) = channel.filter(|_| bell) {
            self.on_bell(guest, channel);
        }
        if gives_up {
            self.give_up(id, guest);
        }
        let Some(connection) = self.table.get_mut(id) else { return };
        let flow = &mut connection.flows[from];
        if flow.over || flow.has_payload() {
            return;
        }
        let mut actions = Actions::default();
        if flow.pending.reset {
            connection.host_is_told(from, &mut actions);
        } else if std::mem::take(&mut flow.pending.shutdown) != 0 {
            // A program that rings no more, or listens no more, is done.
            connection.reset(Some(from.other()), &mut actions);
        }
        self.sched.queue_all(id, connection, actions.ready);
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
    }

    /// Has the program leave its channel at the end of a control connection. Bytes that came before
    /// are taken up: the program may have given up.
    pub(super) fn leave_by_control(&mut self, flow: FlowId, guest: GuestIdx) {
        if self.take_from_control(flow, guest).gives_up {
            self.give_up(flow.connection, guest);
        }
        self.end_control(flow.connection);
    }

    /// Resets the connection of a program that cannot believe the words of its channel.
    fn give_up(&mut self, control: ConnId, guest: GuestIdx) {
        let channel = self.pairs.control(control).and_then(|control| control.channel);
        let of = channel.and_then(|channel| self.pairs.region(guest)?.end(channel)?.of);
        if let Some(of) = of {
            self.fail_end(guest, of, PairFault::GivenUp);
        }
    }

    /// Takes the waiting packets of a control connection, and queues news of credit if those are
    /// due.
    fn take_from_control(&mut self, FlowId { connection: id, from }: FlowId, guest: GuestIdx) -> Taken {
        let Self { table, guests, pairs, sched, .. } = self;
        let mut all = Taken::default();
        let (Some(connection), Some(control)) = (table.get_mut(id), pairs.control(id)) else { return all };
        let (flow, sender) = (&mut connection.flows[from], &mut guests.senders[guest]);
        while let Some(packet) = flow.packets.first()
            && let Some(ring) = &sender.ring
        {
            let len = sender.slots.get(packet).len;
            let mut bytes = [0; REQUEST_LEN];
            let wanted = control.wanted().min(len as usize);
            let got = ring.queue.read(packet, 0, &mut bytes[..wanted]);
            let Taken { request, bell, gives_up } = control.take(&bytes[..got], len as usize);
            all = Taken {
                request: all.request.or(request),
                bell: all.bell || bell,
                gives_up: all.gives_up || gives_up,
            };
            flow.offset = 0;
            flow.window.on_delivered(len);
            flow.window.credit.fwd_cnt = flow.window.sent;
            flow.packets.pop(&sender.slots);
            sender.give_back(packet);
            sched.unpublished.add_sender(guest, sender);
        }
        if connection.credit_news(from, &mut control.advertised, CONTROL_CREDIT.buf_alloc) {
            sched.turns.queue(FlowId { connection: id, from: from.other() }, connection);
        }
        all
    }

    /// Answers the request on a control connection. A request that attaches nothing is the last.
    fn answer(&mut self, id: ConnId, guest: GuestIdx, request: &[u8; REQUEST_LEN]) {
        let answer = self.attach(id, guest, request).unwrap_or_else(AttachAnswer::refusal);
        let (Some(connection), Some(control)) = (self.table.get_mut(id), self.pairs.control(id)) else {
            return;
        };
        let Some(own) = connection.fabric_side() else { return };
        control.answer(answer);
        connection.flows[own].unframed = control.waiting();
        let mut actions = Actions::default();
        if answer.status != Status::Attached {
            connection.reset(Some(own), &mut actions);
        }
        actions.ready.add(own);
        self.sched.queue_all(id, connection, actions.ready);
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
    }

    /// Attaches the end of a guest's connection that a request names to a free channel. A guest can
    /// name its own connections only: its context ID is that of its device.
    fn attach(
        &mut self,
        control: ConnId,
        guest: GuestIdx,
        request: &[u8; REQUEST_LEN],
    ) -> Result<AttachAnswer, Status> {
        let AttachRequest { own_port, peer_cid, peer_port } =
            AttachRequest::from_bytes(request).map_err(|_| Status::UnknownVersion)?;
        let own = self.guests.devices[guest].as_ref().ok_or(Status::NoConnection)?.config.cid;
        let (from, to) =
            (Address { cid: own, port: own_port }, Address { cid: Cid(peer_cid), port: peer_port });
        let (id, side, connection) = self.table.find(from, to).ok_or(Status::NoConnection)?;
        if connection.state != State::Open
            || connection.socket_type != SocketType::Stream
            || connection.ends[side].party != Party::Guest(guest)
            || connection.ends[side.other()].party == Party::Fabric
        {
            return Err(Status::NoConnection);
        }
        if connection.channels[side].is_some() {
            return Err(Status::AttachedAlready);
        }
        let region = self.pairs.region_mut(guest).ok_or(Status::NoRegion)?;
        let of = EndId::of(connection, side);
        let channel = region.attach(|channel, number| AttachedEnd::new(channel, number, of, control));
        let channel = channel.ok_or(Status::Full)?;
        connection.channels[side] = Some(channel);
        // A guest gets packets in order: it has those before it has the answer. The protocol counts
        // bytes modulo 2^32.
        let by_packets = connection.flows[side.other()].window.sent.into();
        if let Some(control) = self.pairs.control(control) {
            control.channel = Some(channel);
        }
        self.note_rings(id);
        self.begin_rings(id, side);
        self.sched.patrols.begin(self.now);
        Ok(AttachAnswer { status: Status::Attached, channel: channel.0, by_packets })
    }

    /// Begins with the rings of an end that was attached: looks at OUT for a while, and moves what
    /// waits into IN.
    pub(super) fn begin_rings(&mut self, id: ConnId, side: Side) {
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.flows[side].empty_looks = 0;
        connection.flows[side].signals.forget_looks();
        if connection.has_left[side] {
            self.pairs.note_left(connection);
        } else if connection.flows[side].ended {
            self.note_end(id, side);
        } else {
            let flow = FlowId { connection: id, from: side };
            self.sched.turns.pace.look_later(flow, connection, self.now);
        }
        self.queue(id, side.other());
    }
}
