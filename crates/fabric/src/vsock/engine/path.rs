//! The path of a byte from one guest to another, top to bottom.
//!
//! 1. [`VsockSwitch::take_from`]: a packet is taken from the sender's transmit ring. It stays there
//!    until its receiver has its payload, and the switch remembers its number. Packets that crowd
//!    the ring are copied out of it: `spill.rs`.
//! 2. [`VsockSwitch::receive`]: its source, type and connection are checked, and the protocol
//!    decides what becomes of it. Its flow is queued at the receiver. `on_unconnected` and
//!    `carry_out_rare`, for the beginning and the end of connections, are in `connections.rs`.
//! 3. [`VsockSwitch::deliver_to`]: the receiver's flows take turns, one packet each. A flow to a
//!    program on the host leaves this path: `Turns::queue` puts it into the host's queue, and
//!    `to_host.rs` serves that.
//! 4. [`Turn::serve`]: a flow hands over a control packet, or payload. Small packets of one flow
//!    are merged into one. [`Turn::copy`] copies from ring to ring, or what was copied out of the
//!    sender's ring before. Bytes of a program on the host join here: `Turn::deliver_host_bytes` is
//!    in `from_host.rs`. So do bytes of a sender that is attached to a ring:
//!    `Turn::deliver_ring_bytes` is in `from_ring.rs`. Payload for a receiver that is attached to a
//!    ring does not come here: `into_ring.rs`.
//! 5. [`VsockSwitch::publish`]: both guests are shown what has changed in their rings, and are
//!    interrupted if they want to be.

use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::device::socket::{Packet, Piece};
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::{RW, SHUTDOWN, SocketHeader};

use super::VsockSwitch;
use super::spill::{most_copied, spill};
use crate::net::queue::QueueIdx;
use crate::vsock::guest::{Guests, Starvation};
use crate::vsock::host::HostSockets;
use crate::vsock::proto::{
    Actions, Address, ConnId, Connection, FlowId, Front, GuestIdx, MAX_REPLIES, MAX_WAITING_PACKETS, Next,
    PacketSlots, Party, Side, SocketType, Source, Verdict,
};
use crate::vsock::queue_pair::QueuePairs;
use crate::vsock::sched::{Ahead, Allowance, Batch, MAX_TURN_BYTES, Place, Schedule, Served};

/// Most packets taken from one guest in a row; then other guests have their turn.
const MAX_BURST: usize = 64;
/// Most turns that a receiver serves in a row; then other receivers have theirs.
const MAX_TURNS: usize = 64;

/// Steps 1 and 2: from the sender's ring to the receiver's queue of flows.
impl VsockSwitch {
    /// Takes the packets that a guest has sent. Returns `true` if there were any.
    pub(super) fn take_from(&mut self, guest: GuestIdx, now: Instant) -> bool {
        let mut taken = 0;
        while taken < MAX_BURST {
            let replies = self.guests.receivers[guest].replies.len();
            let sender = &mut self.guests.senders[guest];
            let listens = sender.taken < MAX_WAITING_PACKETS && replies < MAX_REPLIES;
            let Some(ring) = sender.ring.as_mut().filter(|_| listens) else { break };
            match ring.queue.take() {
                Ok(Some(packet)) => {
                    taken += 1;
                    sender.taken += 1;
                    if self.receive(guest, &packet, now) != Verdict::Queued {
                        let sender = &mut self.guests.senders[guest];
                        sender.give_back(packet.head);
                        self.sched.unpublished.add_sender(guest, sender);
                    }
                }
                Ok(None) => break,
                Err(fault) => {
                    self.ring_broken(guest, QueueIdx::FIRST_TRANSMIT, fault.into());
                    return true;
                }
            }
        }
        if taken > 0 {
            self.sched.polling.on_packets(guest, now);
            let sender = &mut self.guests.senders[guest];
            if sender.is_crowded() {
                self.sched.deferred.relief(guest, sender, now);
            }
        }
        taken > 0
    }

    /// Checks a packet, has the protocol decide about it, and queues its flow at the receiver.
    fn receive(&mut self, guest: GuestIdx, packet: &Packet, now: Instant) -> Verdict {
        let Some(device) = &self.guests.devices[guest] else { return Verdict::Done };
        device.counters.add(SocketWord::TxPackets, 1);
        let (own, header) = (device.config.cid, &packet.header);
        if header.src_cid != u64::from(own.0) {
            return self.drop_forged(guest, own, header, now);
        }
        let payload = if header.op == RW { header.len } else { 0 };
        if packet.payload < payload {
            device.counters.add(SocketWord::Malformed, 1);
            return Verdict::Done;
        }
        let Some(socket_type) = SocketType::from_wire(header.kind) else {
            return self.refuse_type(guest, header);
        };
        let Ok(peer) = u32::try_from(header.dst_cid) else {
            // Context IDs of more than 32 bits are nobody's.
            return self.refuse(guest, header);
        };
        let from = Address { cid: own, port: header.src_port };
        let to = Address { cid: Cid(peer), port: header.dst_port };
        let Some((id, side, connection)) = self.table.find(from, to) else {
            return self.on_unconnected(guest, header, socket_type, to, now);
        };
        let sender = &mut self.guests.senders[guest];
        let pledged = &mut self.guests.receivers[guest].pledged;
        let (verdict, actions) =
            connection.on_packet(side, header, socket_type, packet.head, &mut sender.slots, pledged);
        if verdict == Verdict::Queued
            && connection.flows[side].spill.is_some()
            && let Some(most) = most_copied(connection, side, sender, &self.guests.receivers)
            && spill(connection, side, sender, most)
        {
            // What the flow sent before is still to be taken: this must wait behind it.
            self.sched.unpublished.add_sender(guest, sender);
        }
        let ends_ring = connection.flows[side].ended && connection.is_from_ring(side);
        let shuts_ring = header.op == SHUTDOWN && connection.is_from_ring(side);
        // Packets behind this one must find the end without its channel.
        let leaves = connection.fabric_side().is_some() && connection.flows[side].pending.shutdown != 0;
        self.sched.carry_out(id, connection, actions, now);
        match verdict {
            Verdict::Queued => {
                device.counters.add(SocketWord::TxBytes, header.len.into());
                let flow = &mut connection.flows[side];
                let credit = flow.promise.limit(&flow.window);
                let ahead = Ahead { credit, ring: sender.slots.len() };
                self.sched.stream_pace.on_payload(&mut flow.one_way, header.len, ahead, now);
            }
            Verdict::Violation => {
                device.counters.add(SocketWord::Malformed, 1);
                device.counters.add(SocketWord::Resets, 1);
            }
            Verdict::Refused => return self.refuse(guest, header),
            Verdict::Done => {}
        }
        if ends_ring {
            self.note_end(id, side);
        }
        if shuts_ring {
            self.on_shutdown_of_attached(id, side);
        }
        if leaves {
            self.leave_by_control(FlowId { connection: id, from: side }, guest);
        }
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
        verdict
    }
}

/// Steps 3 and 4: the turns of a receiver's flows.
impl VsockSwitch {
    /// Hands over what waits for a guest, as far as the guest has buffers. Returns `true` if
    /// anything was handed over.
    pub(super) fn deliver_to(&mut self, guest: GuestIdx, now: Instant) -> bool {
        let mut worked = false;
        for _ in 0..MAX_TURNS {
            let receiver = &mut self.guests.receivers[guest];
            if receiver.ring.is_none() {
                // The flows keep their places until the ring is back, or the guest is gone.
                return worked;
            }
            let served = if let Some(&reply) = receiver.replies.front() {
                self.deliver_reply(guest, reply)
            } else if let Some(place) = self.sched.turns.first(guest) {
                self.take_turn(place, guest, now)
            } else {
                return worked;
            };
            match served {
                Ok(Served::Full) => {}
                Ok(served) => {
                    worked |= served == Served::More;
                    continue;
                }
                Err(fault) => {
                    self.ring_broken(guest, QueueIdx::FIRST_RECEIVE, fault.into());
                    return true;
                }
            }
            // Its buffers are shown to the guest at the end of the round, so that it makes room.
            // Its kick then goes on from here.
            let receiver = &mut self.guests.receivers[guest];
            let Some(ring) = &mut receiver.ring else { return worked };
            if !ring.queue.arm_kicks() {
                if let Some(since) = receiver.note_full(now) {
                    self.sched.starving.watch(guest, receiver, since);
                }
                return worked;
            }
        }
        self.sched.turns.mark_busy(guest);
        worked
    }

    /// Delivers the first reset for a packet of no connection.
    fn deliver_reply(&mut self, guest: GuestIdx, reply: SocketHeader) -> Result<Served, RingFault> {
        if !self.guests.receivers[guest].deliver_header(reply)? {
            return Ok(Served::Full);
        }
        self.guests.receivers[guest].replies.pop_front();
        count_packet_to(guest, 0, &mut self.guests, &mut self.sched);
        Ok(Served::More)
    }

    /// Has a flow take its turn at a guest, and carries out what follows from it.
    fn take_turn(&mut self, place: Place, guest: GuestIdx, now: Instant) -> Result<Served, RingFault> {
        let FlowId { connection: id, from } = place.flow;
        let Self { table, guests, host, sched, pairs, .. } = self;
        let Some(connection) = table.get_mut(id).filter(|connection| place.is_of(connection)) else {
            sched.turns.drop_first(guest);
            return Ok(Served::Idle);
        };
        let actions = Actions::default();
        let mut turn = Turn { id, from, guest, now, connection, guests, host, sched, pairs, actions };
        let served = turn.serve()?;
        let Turn { connection, sched, actions, .. } = turn;
        sched.turns.end_turn(guest, served, connection);
        sched.carry_out(id, connection, actions, now);
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
        if self.sched.unpublished.bytes >= MAX_TURN_BYTES {
            // The guest takes it while what is behind it is copied.
            self.publish(now);
        }
        Ok(served)
    }
}

/// One turn of a flow towards a guest.
pub(super) struct Turn<'a> {
    pub(super) id: ConnId,
    /// The side that sends.
    pub(super) from: Side,
    /// The receiver.
    pub(super) guest: GuestIdx,
    pub(super) now: Instant,
    pub(super) connection: &'a mut Connection,
    pub(super) guests: &'a mut Guests,
    pub(super) host: &'a mut HostSockets,
    pub(super) sched: &'a mut Schedule,
    pub(super) pairs: &'a mut QueuePairs,
    /// Actions to carry out after the turn.
    pub(super) actions: Actions,
}

impl Turn<'_> {
    /// Hands over the next thing that the flow has for its receiver.
    fn serve(&mut self) -> Result<Served, RingFault> {
        match self.connection.next(self.from) {
            Next::Control(header) => self.deliver_control(header),
            Next::Payload(header) => self.deliver_payload(header),
            Next::HostBytes(header) => self.deliver_host_bytes(header),
            Next::Nothing => Ok(Served::Idle),
        }
    }

    /// Hands over a packet without payload.
    fn deliver_control(&mut self, header: SocketHeader) -> Result<Served, RingFault> {
        if !self.guests.receivers[self.guest].deliver_header(header)? {
            return Ok(Served::Full);
        }
        self.count_delivered(0);
        self.connection.flows[self.from].on_control_delivered(&header);
        self.actions.rare.closed = self.connection.is_closed();
        Ok(Served::More)
    }

    /// Hands over payload, as much as the receiver's next buffer and its credit take: of packets,
    /// of a ring, or of the fabric itself.
    fn deliver_payload(&mut self, header: SocketHeader) -> Result<Served, RingFault> {
        let Some(source) = self.connection.flows[self.from].source() else { return Ok(Served::Idle) };
        let sender = match self.connection.ends[self.from].party {
            Party::Guest(sender) => Some(sender),
            Party::Host | Party::Fabric => None,
        };
        if let Some(sender) = sender
            && source != Source::Returned
            && self.guests.senders[sender].ring.is_none()
        {
            // The flow is queued again when the sender's ring is back. Until then, it is not known
            // which packets go before the bytes of the sender's other ring.
            return Ok(Served::Idle);
        }
        if source == Source::Unframed
            && let Some(sender) = sender
            && !self.look_at_ring(sender)
        {
            return Ok(Served::Idle);
        }
        let Some(ring) = &mut self.guests.receivers[self.guest].ring else { return Ok(Served::Full) };
        let Some(buffer) = ring.queue.room()? else { return Ok(Served::Full) };
        let (socket_type, flow) = (self.connection.socket_type, &mut self.connection.flows[self.from]);
        let no_slots = PacketSlots::default();
        let slots = sender.map_or(&no_slots, |sender| &self.guests.senders[sender].slots);
        let most = buffer.min(self.sched.turns.most_bytes(self.guest));
        let pledged = self.guests.receivers[self.guest].pledged;
        match Allowance::of(flow, socket_type, slots, pledged, most, self.now) {
            Allowance::Bytes(most) => match (source, sender) {
                (Source::Returned, _) => self.deliver_returned(header, most),
                (Source::Packets, Some(sender)) => self.copy(header, sender, most),
                (Source::Unframed, Some(sender)) => self.deliver_ring_bytes(header, sender, most),
                (_, None) => self.deliver_own_bytes(header, most),
            },
            Allowance::NoCredit => self.deliver_without_credit(sender),
            Allowance::Hold(until) => self.hold(header, until),
        }
    }

    /// Has small payload wait until a time. The receiver is asked for its credit: its answer tells
    /// what it has read.
    pub(super) fn hold(&mut self, header: SocketHeader, until: Instant) -> Result<Served, RingFault> {
        let request = Connection::credit_request(header);
        if self.guests.receivers[self.guest].deliver_header(request)? {
            self.count_delivered(0);
        }
        Ok(Served::Held(until))
    }

    /// Copies payload of waiting packets into the receiver's next buffer, as one packet, and gives
    /// back to the sender what has been used up.
    fn copy(&mut self, mut header: SocketHeader, sender: GuestIdx, most: u32) -> Result<Served, RingFault> {
        let receiver = &mut self.guests.receivers[self.guest];
        let Some(to) = &mut receiver.ring else { return Ok(Served::Full) };
        let from = &mut self.guests.senders[sender];
        let Some(ring) = &from.ring else { return Ok(Served::Idle) };
        let (socket_type, flow) = (self.connection.socket_type, &mut self.connection.flows[self.from]);
        flow.moved = Some(self.now);
        if let Some(spill) = &mut flow.spill {
            let Some(Front { bytes, flags }) = spill.front(most) else { return Ok(Served::Idle) };
            let len = (bytes[0].len() + bytes[1].len()) as u32;
            header.flags = flags;
            to.queue.deliver(header, bytes.into_iter().map(Piece::Bytes))?;
            spill.remove(len);
            if spill.is_empty() {
                flow.spill = None;
            }
            flow.on_payload_delivered(len, flags, socket_type, &mut receiver.pledged);
            flow.held_since = None;
            flow.on_header_delivered(&header);
            self.count_delivered(len);
            self.connection.on_promise_raised(self.from.other(), &mut self.actions);
            return Ok(Served::More);
        }
        let batch = Batch::collect(flow, socket_type, &from.slots, most);
        header.flags = batch.flags;
        let pieces = batch.parts().map(|part| Piece::Packet {
            from: &ring.queue,
            head: part.packet,
            offset: part.offset,
            len: part.len,
        });
        to.queue.deliver(header, pieces)?;
        flow.on_payload_delivered(batch.bytes, batch.flags, socket_type, &mut receiver.pledged);
        flow.held_since = None;
        flow.on_header_delivered(&header);
        flow.offset = batch.next_offset();
        for _ in 0..batch.whole {
            if let Some(packet) = flow.packets.pop(&from.slots) {
                from.give_back(packet);
            }
        }
        self.sched.unpublished.add_sender(sender, from);
        self.count_delivered(batch.bytes);
        self.connection.on_promise_raised(self.from.other(), &mut self.actions);
        Ok(Served::More)
    }

    /// Goes on with a flow whose payload the receiver has no credit for.
    fn deliver_without_credit(&mut self, sender: Option<GuestIdx>) -> Result<Served, RingFault> {
        let next = if self.connection.flows[self.from].pending.reset {
            // The connection is over. What was sent beyond the credit is lost.
            let packets = self.connection.flows[self.from].take_packets();
            self.pairs.note_left(self.connection);
            if let Some(sender) = sender {
                let sender_side = &mut self.guests.senders[sender];
                sender_side.give_back_all(packets);
                self.sched.unpublished.add_sender(sender, sender_side);
            }
            self.connection.next_after_payload(self.from)
        } else {
            self.connection.next_without_credit(self.from)
        };
        match next {
            Next::Control(header) => self.deliver_control(header),
            _ => Ok(Served::Idle),
        }
    }

    /// Counts a packet that was delivered to the receiver.
    #[inline]
    pub(super) fn count_delivered(&mut self, bytes: u32) {
        count_packet_to(self.guest, bytes, self.guests, self.sched);
    }
}

/// Counts a packet that was delivered to a guest, and has it published.
#[inline]
fn count_packet_to(guest: GuestIdx, bytes: u32, guests: &mut Guests, sched: &mut Schedule) {
    let receiver = &mut guests.receivers[guest];
    receiver.starvation = Starvation::No;
    sched.unpublished.add_receiver(guest, receiver);
    sched.unpublished.bytes += bytes;
    guests.count(guest, SocketWord::RxPackets, 1);
    if bytes > 0 {
        guests.count(guest, SocketWord::RxBytes, bytes.into());
    }
}

/// Step 5: guests are shown what has changed.
impl VsockSwitch {
    /// Shows the guests what has been delivered and given back, and interrupts those that want to
    /// be.
    pub(super) fn publish(&mut self, now: Instant) {
        let Self { guests, sched, .. } = self;
        sched.unpublished.bytes = 0;
        while let Some(guest) = sched.unpublished.next_receiver() {
            let receiver = &mut guests.receivers[guest];
            receiver.unpublished = false;
            let Some(ring) = &mut receiver.ring else { continue };
            sched.unpublished.last_shown = guest;
            ring.queue.publish();
            if ring.queue.needs_interrupt()
                && let Some(call) = &receiver.call
            {
                call.signal();
                guests.count(guest, SocketWord::Interrupts, 1);
            }
        }
        while let Some(guest) = sched.unpublished.next_sender() {
            let sender = &mut guests.senders[guest];
            sender.unpublished = false;
            let Some(ring) = &mut sender.ring else { continue };
            ring.queue.publish();
            if ring.queue.needs_interrupt() {
                sched.deferred.interrupt(guest, sender, now);
            }
            if sender.is_short_of_room() {
                guests.interrupt_sender(guest);
            }
        }
    }
}
