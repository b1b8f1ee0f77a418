//! Payload into a ring of its receiver: from packets of another guest, from a ring of another
//! guest, and from a program on the host.

use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::{Direction, Hostile};

use super::VsockSwitch;
use super::attached::end_of;
use super::looks::after_taking;
use crate::vsock::guest::{Guests, Sender};
use crate::vsock::host::{HostRead, HostSockets, MAX_MOVED};
use crate::vsock::proto::{Actions, Connection, Flow, FlowId, Front, GuestIdx, OneWay, Party, Source, State};
use crate::vsock::queue_pair::{AttachedEnd, PairFault, QueuePairs};
use crate::vsock::sched::{Place, Schedule};

/// Most bytes that a flow moves in one turn.
const MAX_BYTES: usize = 256 << 10;
/// Bytes after which other work has its turn.
const MAX_BYTES_IN_A_ROW: usize = 1 << 20;
/// Most turns in a row; then other work has its turn.
const MAX_TURNS: usize = 256;

impl VsockSwitch {
    /// Serves each flow to a ring one turn, as far as there is time. Returns `true` if anything was
    /// moved.
    pub(super) fn move_into_rings(&mut self, now: Instant) -> bool {
        let mut bytes = 0;
        for _ in 0..self.sched.turns.pace.queued().min(MAX_TURNS) {
            if bytes >= MAX_BYTES_IN_A_ROW {
                break;
            }
            let Some(place) = self.sched.turns.pace.next() else { break };
            bytes += self.take_ring_turn(place, now);
        }
        bytes > 0
    }

    /// Serves one turn of a flow to a ring. Returns the number of bytes that were moved.
    fn take_ring_turn(&mut self, place: Place, now: Instant) -> usize {
        let flow = place.flow;
        let FlowId { connection: id, from } = flow;
        let Self { table, guests, host, sched, pairs, .. } = self;
        let Some(connection) = table.get_mut(id).filter(|connection| place.is_of(connection)) else {
            return 0;
        };
        connection.flows[from].moves = false;
        let Party::Guest(receiver) = connection.ends[from.other()].party else { return 0 };
        if !connection.is_to_ring(from) || connection.flows[from].over {
            return 0;
        }
        let actions = Actions::default();
        let mut turn =
            RingTurn { flow, receiver, now, connection, guests, host, sched, pairs, moved: 0, actions };
        let served = turn.serve();
        let RingTurn { connection, sched, moved, actions, .. } = turn;
        sched.carry_out(id, connection, actions, now);
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
        if let Err(fault) = served {
            self.fail_flow(flow, fault);
        }
        moved
    }
}

/// One turn of a flow to a ring.
struct RingTurn<'a> {
    flow: FlowId,
    receiver: GuestIdx,
    now: Instant,
    connection: &'a mut Connection,
    guests: &'a mut Guests,
    host: &'a mut HostSockets,
    sched: &'a mut Schedule,
    pairs: &'a mut QueuePairs,
    /// Bytes moved in this turn.
    moved: usize,
    /// Actions to carry out after the turn.
    actions: Actions,
}

impl RingTurn<'_> {
    /// Moves what the flow has, as far as the ring has room, packets first.
    fn serve(&mut self) -> Result<(), PairFault> {
        match self.connection.ends[self.flow.from].party {
            Party::Guest(sender) => {
                self.put_packets(sender)?;
                let runs = self.guests.senders[sender].ring.is_some();
                if runs && self.connection.flows[self.flow.from].source() == Some(Source::Unframed) {
                    self.move_bytes(sender)?;
                }
            }
            Party::Host => self.put_host_bytes()?,
            Party::Fabric => {}
        }
        self.finish()
    }

    /// Copies payload of waiting packets into the ring, and gives back to the sender what has been
    /// used up.
    fn put_packets(&mut self, sender: GuestIdx) -> Result<(), PairFault> {
        let Self { flow: FlowId { from, .. }, connection, guests, host, sched, pairs, .. } = self;
        let Some(end) = pairs.end(connection, from.other()) else { return Ok(()) };
        let flow = &mut connection.flows[*from];
        if flow.source() != Some(Source::Packets) {
            return Ok(());
        }
        let most = flow.packet_bytes().min(MAX_BYTES as u64) as usize;
        let sending = &mut guests.senders[sender];
        let (waiting, socket_type) = (flow.packets.count, connection.socket_type);
        let mut put = put_spill(flow, end, most)?;
        if flow.spill.is_none() {
            put += put_from_sender(flow, sending, end, &mut host.buffer, most - put)?;
        }
        if flow.packets.count < waiting {
            sched.unpublished.add_sender(sender, sending);
        }
        flow.held_since = None;
        if put > 0 {
            flow.on_put_into_ring(put as u32, socket_type, &mut guests.receivers[self.receiver].pledged);
            connection.on_promise_raised(from.other(), &mut self.actions);
            self.count_moved(put, None);
        }
        Ok(())
    }

    /// Copies bytes from the sender's ring, by one copy.
    fn move_bytes(&mut self, sender: GuestIdx) -> Result<(), PairFault> {
        let Self { flow: FlowId { from, .. }, connection, pairs, .. } = self;
        let most = (connection.flows[*from].unframed as usize).min(MAX_BYTES - self.moved.min(MAX_BYTES));
        let Some((source, sink)) = pairs.both_ends(connection, *from) else { return Ok(()) };
        let room = sink.into.room()? as usize;
        let moved = sink.into.write_from(&mut source.out, most)?;
        let unframed = &mut connection.flows[*from].unframed;
        *unframed -= moved as u32;
        if moved < most.min(room) {
            check_positions(source, *unframed, sink, room - moved)?;
        }
        if moved > 0 {
            self.count_moved(moved, Some(sender));
        }
        after_taking(self.pairs, &mut self.sched.turns.pace, self.flow, self.connection, self.now);
        Ok(())
    }

    /// Reads what a program on the host has sent into the ring.
    fn put_host_bytes(&mut self) -> Result<(), PairFault> {
        let Self { flow: FlowId { connection: id, from }, connection, host, pairs, .. } = self;
        let HostSockets { streams, buffer, .. } = &mut **host;
        let Some(stream) = streams.get_mut(*id) else { return Ok(()) };
        buffer.resize(MAX_MOVED, 0);
        let mut put = 0;
        while connection.state == State::Open
            && !connection.flows[*from].ended
            && stream.readable
            && stream.is_attached()
            && put < MAX_BYTES
        {
            let Some(end) = pairs.end(connection, from.other()) else { break };
            let most = (end.into.room()? as usize).min(MAX_MOVED);
            if most == 0 {
                break;
            }
            match stream.read(&mut buffer[..most]) {
                HostRead::Bytes(got) => {
                    let written = end.into.write(&buffer[..got])?;
                    if written < got {
                        return Err(PairFault::WentBack(Direction::In));
                    }
                    put += got;
                }
                HostRead::End => connection.on_host_end(*from, &mut self.actions),
                HostRead::Broken => {
                    connection.flows[*from].cut = true;
                    connection.reset(Some(*from), &mut self.actions);
                }
                HostRead::Again => {}
                HostRead::Nothing => break,
            }
        }
        if put > 0 {
            self.count_moved(put, None);
        }
        Ok(())
    }

    /// Shows the receiver what was moved, tells it the end of the stream if that is reached, and
    /// queues what is left.
    fn finish(&mut self) -> Result<(), PairFault> {
        let Self { flow: flow_id, connection, guests, host, sched, pairs, .. } = self;
        let FlowId { connection: id, from } = *flow_id;
        let Some(end) = pairs.end(connection, from.other()) else { return Ok(()) };
        let flow = &mut connection.flows[from];
        if self.moved > 0 {
            (flow.empty_looks, flow.moved) = (0, Some(self.now));
        }
        let has_more = end.into.publish();
        let unread = end.into.used()?;
        let mut knows_end = false;
        if flow.ended && !flow.has_payload() {
            knows_end = end.tell_end(end_of(flow));
            flow.is_read |= unread == 0;
        }
        let full = unread == end.into.size();
        let pace = &mut sched.turns.pace;
        let host_has_bytes = connection.ends[from].party == Party::Host
            && !connection.flows[from].ended
            && host.streams.get_mut(id).is_some_and(|stream| stream.readable);
        let sender_runs = match connection.ends[from].party {
            Party::Guest(sender) => guests.senders[sender].ring.is_some(),
            Party::Host | Party::Fabric => false,
        };
        let flow = &connection.flows[from];
        let source = flow.source();
        let is_by_ring = source == Some(Source::Unframed) && sender_runs;
        if !flow.has_payload() && connection.withholds_end(from) {
            pace.look_later(*flow_id, connection, self.now);
        }
        let flow = &connection.flows[from];
        if flow.has_packets() && full && flow.pending.reset {
            // The connection is over. What was sent beyond the room is lost.
            self.actions.rare.discard.add(from);
        } else if full && (flow.has_payload() || host_has_bytes) || is_by_ring && self.moved == 0 {
            pace.look_later(*flow_id, connection, self.now);
        } else if is_by_ring || source == Some(Source::Packets) && sender_runs || host_has_bytes {
            pace.queue(*flow_id, connection);
        } else if !flow.has_payload() && !flow.pending.is_empty() {
            // Packets that wait until the payload is there.
            sched.turns.queue_packets(*flow_id, connection);
        }
        self.signal(has_more, knows_end, unread);
        Ok(())
    }

    /// Signals the receiver's program if it waits for bytes and its ring has more, or if it was
    /// told of the end. The signal of a stream may be held back until a later look.
    fn signal(&mut self, has_more: bool, knows_end: bool, unread: u32) {
        let Self { flow: FlowId { from, .. }, connection, pairs, .. } = self;
        let Some(end) = pairs.end(connection, from.other()) else { return };
        // Only a look or a move that follows can release the signal, and only rings are looked at.
        let is_stream = connection.is_by_rings(*from) && connection.exchanges.is_stream_of(*from);
        let flow = &mut connection.flows[*from];
        let goes_on = flow.look_is_due || flow.moves;
        let may_be_held = is_stream && goes_on && !flow.ended && unread < end.into.size() / 2;
        if may_be_held && has_more && flow.signals.hold() {
            return;
        }
        let is_due = (flow.signals.release() | has_more) && end.into.must_signal();
        if is_due || knows_end {
            let control = end.control;
            pairs.signal(control);
        }
    }

    /// Counts bytes that were moved: out of packets or a socket, or out of the ring of `sender`.
    fn count_moved(&mut self, bytes: usize, sender: Option<GuestIdx>) {
        self.moved += bytes;
        self.connection.exchanges.on_moved(self.flow.from);
        if sender.is_some() || self.connection.ends[self.flow.from].party == Party::Host {
            self.connection.flows[self.flow.from.other()].one_way = OneWay::default();
        }
        self.guests.count(self.receiver, SocketWord::RxBytes, bytes as u64);
        self.guests.count(self.receiver, SocketWord::RingRxBytes, bytes as u64);
        if let Some(sender) = sender {
            self.guests.count_from_ring(sender, bytes as u64);
        }
    }
}

/// Finds the guest because of which a move was shorter than what was found before it: the sender's
/// ring has fewer bytes than then, or the receiver's has less room. If neither is so any more, the
/// connection goes on: a position went back and has returned, and it is not known whose.
fn check_positions(
    source: &AttachedEnd,
    bytes: u32,
    sink: &AttachedEnd,
    room: usize,
) -> Result<(), PairFault> {
    if source.out.available()? < bytes {
        return Err(PairFault::WentBack(source.out.direction()));
    }
    if (sink.into.room()? as usize) < room {
        return Err(PairFault::WentBack(sink.into.direction()));
    }
    Ok(())
}

/// Copies at most `most` bytes of payload that was copied out of the sender's ring before into the
/// receiver's. Returns the number of bytes.
fn put_spill(flow: &mut Flow, end: &mut AttachedEnd, most: usize) -> Result<usize, Hostile> {
    let mut put = 0;
    while put < most
        && let Some(spill) = &mut flow.spill
        && let Some(Front { bytes, .. }) = spill.front((most - put) as u32)
    {
        let first = end.into.write(bytes[0])?;
        let second = if first == bytes[0].len() { end.into.write(bytes[1])? } else { 0 };
        let (len, written) = (bytes[0].len() + bytes[1].len(), first + second);
        spill.remove(written as u32);
        if spill.is_empty() {
            flow.spill = None;
        }
        put += written;
        if written < len {
            break;
        }
    }
    Ok(put)
}

/// Copies at most `most` bytes of the packets in the sender's ring into the receiver's ring, and
/// gives packets back that are used up. Returns the number of bytes.
fn put_from_sender(
    flow: &mut Flow,
    sender: &mut Sender,
    end: &mut AttachedEnd,
    buffer: &mut Vec<u8>,
    most: usize,
) -> Result<usize, Hostile> {
    buffer.resize(MAX_MOVED, 0);
    let mut put = 0;
    while let Some(packet) = flow.packets.first()
        && let Some(ring) = &sender.ring
    {
        let len = sender.slots.get(packet).len;
        let wanted = (len.saturating_sub(flow.offset) as usize).min(MAX_MOVED).min(most - put);
        let wanted = wanted.min(end.into.room()? as usize);
        let got = ring.queue.read(packet, flow.offset, &mut buffer[..wanted]);
        let written = end.into.write(&buffer[..got])?;
        flow.offset += written as u32;
        put += written;
        if flow.offset < len && written < MAX_MOVED {
            break;
        }
        if flow.offset == len {
            flow.offset = 0;
            flow.packets.pop(&sender.slots);
            sender.give_back(packet);
        }
    }
    Ok(put)
}
