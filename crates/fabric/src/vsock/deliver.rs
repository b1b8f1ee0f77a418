//! Receivers' turns: each flow that has something for a guest hands over one packet, then the next one does.

use std::time::{Duration, Instant};

use taut_api::fabric::counters::SocketWord;
use taut_virtq::device::socket::Piece;
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::{
    CREDIT_REQUEST, CREDIT_UPDATE, REQUEST, RESPONSE, RST, SEQ_EOM, SEQ_EOR, SHUTDOWN, STREAM, SocketHeader,
};

use super::connection::{Flow, Party, Turn};
use super::guest::{Receiver, Sender};
use super::hub::Hub;

/// Turns that a receiver serves in a row; then others have theirs.
const TURNS: usize = 64;
/// Payload that a flow may hand over in one turn, whatever the receiver's buffers are.
const TURN: u32 = 64 << 10;
/// Most packets of a flow that become one.
const MERGED: usize = 64;

/// A receiver that has been given so many packets without reading them is no longer given small ones one by one: Linux
/// counts the packets that a socket holds, and ends a connection that has some hundreds of them (since 6.12.92).
const MANY: u32 = 128;
/// Payload of which its buffer is full before that many packets are.
const LARGE: u64 = 1024;
/// Payload that Linux adds to the packet before, if that has room: it does not count.
const TINY: u32 = 128;
/// For how long small packets wait for more, and how often a receiver is asked what it has read.
const HOLD: Duration = Duration::from_millis(1);
/// So many do not wait: their sender has only one ring for all its connections.
const WAITING: u16 = 32;

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// Something was handed over; there may be more.
    More,
    /// Nothing is left that could be handed over now.
    Idle,
    /// It waits for more, until then.
    Held(Instant),
    /// The receiver has no buffer.
    Full,
}

impl Hub {
    /// Hands over what waits for a guest, as far as it has buffers; `true` if anything was.
    pub(super) fn deliver_to(&mut self, guest: usize, now: Instant) -> bool {
        let mut worked = false;
        for _ in 0..TURNS {
            let receiver = &mut self.receivers[guest];
            if receiver.ring.is_none() {
                // Its flows keep their places until it is back, or has gone.
                return worked;
            }
            if let Some(reply) = receiver.replies.front() {
                let stored = match store(receiver, *reply, std::iter::empty()) {
                    Ok(stored) => stored,
                    Err(fault) => {
                        self.broken(guest, 0, fault.into());
                        return true;
                    }
                };
                if stored {
                    receiver.replies.pop_front();
                    self.delivered(guest, 0);
                    worked = true;
                    continue;
                }
            } else {
                let Some(&turn) = receiver.turns.front() else { return worked };
                match self.serve(turn, guest, now) {
                    Ok(Served::Full) => {}
                    Ok(served) => {
                        worked |= served == Served::More;
                        self.end_turn(guest, turn, served);
                        if self.unshown >= TURN {
                            // Its guest takes it while what is behind it is copied.
                            self.publish(now);
                        }
                        continue;
                    }
                    Err(fault) => {
                        self.broken(guest, 0, fault.into());
                        return true;
                    }
                }
            }
            // Full: what is there already is shown, so that the guest makes room; its kick goes on from here.
            let receiver = &mut self.receivers[guest];
            let Some(ring) = &mut receiver.ring else { return worked };
            if !ring.queue.arm_kicks() {
                receiver.full = true;
                return worked;
            }
        }
        self.list(guest);
        worked
    }

    fn end_turn(&mut self, guest: usize, turn: Turn, served: Served) {
        let turns = &mut self.receivers[guest].turns;
        if turns.front() == Some(&turn) {
            turns.pop_front();
        }
        let Some(connection) = self.table.get(turn.connection) else { return };
        match served {
            Served::More => self.receivers[guest].turns.push_back(turn),
            Served::Held(until) => self.held.push((until, turn)),
            Served::Idle | Served::Full => connection.flows[turn.from].queued = false,
        }
    }

    /// A guest has been handed a packet.
    fn delivered(&mut self, guest: usize, bytes: u32) {
        self.touch_receiver(guest);
        self.count(guest, SocketWord::RxPackets, 1);
        self.unshown += bytes;
        if bytes > 0 {
            self.count(guest, SocketWord::RxBytes, bytes.into());
        }
    }

    /// One turn of a flow towards a guest.
    fn serve(&mut self, turn: Turn, guest: usize, now: Instant) -> Result<Served, RingFault> {
        let Turn { connection: number, from } = turn;
        let Some(connection) = self.table.get(number) else { return Ok(Served::Idle) };
        let sender = connection.ends[from].party;
        let mut header = connection.header(from);
        let kind = connection.kind;
        let flow = &mut connection.flows[from];
        if flow.over {
            return Ok(Served::Idle);
        }
        if let Some(op) = first_word(flow) {
            header.op = op;
            if !store(&mut self.receivers[guest], header, std::iter::empty())? {
                return Ok(Served::Full);
            }
            said(flow, &header);
            self.delivered(guest, 0);
            return Ok(Served::More);
        }
        if !flow.packets.is_empty()
            && let Party::Guest(place) = sender
        {
            if self.senders[place].ring.is_none() {
                // It has another turn when its ring is back.
                return Ok(Served::Idle);
            }
            let (receivers, senders) = (&mut self.receivers, &mut self.senders);
            let (receiver, sender) = (&mut receivers[guest], &mut senders[place]);
            match hand_over(flow, kind, header, sender, receiver, now)? {
                Handed::Over(bytes) => {
                    self.delivered(guest, bytes);
                    self.touch_sender(place);
                    return Ok(Served::More);
                }
                Handed::Full => return Ok(Served::Full),
                Handed::Held(until) => {
                    // It tells what it has read when it is asked.
                    let ask = SocketHeader { op: CREDIT_REQUEST, ..header };
                    if store(receiver, ask, std::iter::empty())? {
                        self.delivered(guest, 0);
                    }
                    return Ok(Served::Held(until));
                }
                Handed::NoCredit => {
                    // Whoever is over sends beyond its credit in vain.
                    if flow.owed.reset {
                        self.discard(number, from);
                    } else if let Some(op) = second_word(flow) {
                        return self.say(turn, guest, SocketHeader { op, ..header });
                    } else {
                        return Ok(Served::Idle);
                    }
                }
            }
        } else if sender == Party::Host && flow.owed.is_nothing() {
            return self.read_from_host(number, guest, header);
        }
        let Some(connection) = self.table.get(number) else { return Ok(Served::Idle) };
        let flow = &mut connection.flows[from];
        if let Some(op) = second_word(flow) {
            return self.say(turn, guest, SocketHeader { op, ..header });
        }
        if flow.owed.shutdown != 0 {
            header.flags = flow.owed.shutdown;
            return self.say(turn, guest, SocketHeader { op: SHUTDOWN, ..header });
        }
        if flow.owed.reset {
            return self.say(turn, guest, SocketHeader { op: RST, ..header });
        }
        Ok(Served::Idle)
    }

    /// Hands over a packet without payload.
    fn say(&mut self, turn: Turn, guest: usize, header: SocketHeader) -> Result<Served, RingFault> {
        if !store(&mut self.receivers[guest], header, std::iter::empty())? {
            return Ok(Served::Full);
        }
        self.delivered(guest, 0);
        let Some(connection) = self.table.get(turn.connection) else { return Ok(Served::Idle) };
        let flow = &mut connection.flows[turn.from];
        said(flow, &header);
        if header.op == RST {
            flow.over = true;
            self.free_if_over(turn.connection);
        }
        Ok(Served::More)
    }

    /// Hands bytes of the host's to a guest, as one packet; the guest has a buffer for them.
    pub(super) fn store_bytes(
        &mut self,
        guest: usize,
        header: SocketHeader,
        bytes: &[u8],
    ) -> Result<bool, RingFault> {
        let stored = store(&mut self.receivers[guest], header, std::iter::once(Piece::Bytes(bytes)))?;
        if stored {
            self.delivered(guest, bytes.len() as u32);
        }
        Ok(stored)
    }
}

/// What goes before payload.
fn first_word(flow: &Flow) -> Option<u16> {
    match flow.owed {
        owed if owed.request => Some(REQUEST),
        owed if owed.response => Some(RESPONSE),
        _ => None,
    }
}

/// What goes when no payload does, which would carry it.
fn second_word(flow: &Flow) -> Option<u16> {
    match flow.owed {
        owed if owed.ask => Some(CREDIT_REQUEST),
        owed if owed.update => Some(CREDIT_UPDATE),
        _ => None,
    }
}

/// The receiver has been told so. Every packet carries the sender's credit.
fn said(flow: &mut Flow, header: &SocketHeader) {
    flow.has_told(header);
    let owed = &mut flow.owed;
    match header.op {
        REQUEST => owed.request = false,
        RESPONSE => owed.response = false,
        CREDIT_REQUEST => owed.ask = false,
        SHUTDOWN => owed.shutdown = 0,
        RST => owed.reset = false,
        _ => {}
    }
}

fn store<'a>(
    receiver: &mut Receiver,
    header: SocketHeader,
    parts: impl Iterator<Item = Piece<'a>>,
) -> Result<bool, RingFault> {
    let Some(ring) = &mut receiver.ring else { return Ok(false) };
    if ring.queue.room()?.is_none() {
        return Ok(false);
    }
    ring.queue.deliver(header, parts)?;
    Ok(true)
}

/// What became of a flow's packets.
enum Handed {
    Over(u32),
    Full,
    NoCredit,
    Held(Instant),
}

/// Hands over as much of a flow's packets as fits one buffer of the receiver's. Those of a byte stream become one; of others each
/// keeps its end.
fn hand_over(
    flow: &mut Flow,
    kind: u16,
    mut header: SocketHeader,
    sender: &mut Sender,
    receiver: &mut Receiver,
    now: Instant,
) -> Result<Handed, RingFault> {
    let (Some(from), Some(to)) = (&mut sender.ring, &mut receiver.ring) else { return Ok(Handed::Full) };
    let Some(buffer) = to.queue.room()? else { return Ok(Handed::Full) };
    let credit = flow.room();
    let empty_record = sender.places.get(flow.packets.first().unwrap_or_default()).len == 0;
    let mut most = buffer.min(credit).min(TURN);
    if most == 0 && !empty_record {
        return Ok(Handed::NoCredit);
    }
    if kind == STREAM && flow.unread >= MANY && flow.packets.bytes < LARGE.min(most.into()) {
        let since = *flow.held_since.get_or_insert(now);
        if now.duration_since(since) < HOLD && flow.packets.count < WAITING {
            return Ok(Handed::Held(now + HOLD));
        }
        most = most.min(TINY);
    }
    let mut pieces = [(0_u16, 0_u32, 0_u32); MERGED];
    let (mut count, mut bytes, mut whole) = (0, 0, 0);
    for (head, packet) in flow.packets.iter(&sender.places) {
        let offset = if count == 0 { flow.offset } else { 0 };
        let len = (packet.len - offset).min(most - bytes);
        pieces[count] = (head, offset, len);
        count += 1;
        bytes += len;
        if offset + len < packet.len {
            break;
        }
        whole += 1;
        if kind != STREAM {
            header.flags = packet.flags & (SEQ_EOM | SEQ_EOR);
        }
        if bytes == most || count == MERGED || kind != STREAM {
            break;
        }
    }
    let parts = pieces[..count].iter().filter(|(_, _, len)| *len > 0);
    let queue = &from.queue;
    to.queue.deliver(
        header,
        parts.map(|&(head, offset, len)| Piece::Packet { from: queue, head, offset, len }),
    )?;
    flow.handed_over(bytes);
    flow.held_since = None;
    flow.has_told(&header);
    flow.offset = match pieces[count - 1] {
        (_, offset, len) if whole < count => offset + len,
        _ => 0,
    };
    for _ in 0..whole {
        if let Some(head) = flow.packets.pop(&sender.places) {
            from.queue.give_back(head);
            sender.taken = sender.taken.saturating_sub(1);
        }
    }
    Ok(Handed::Over(bytes))
}
