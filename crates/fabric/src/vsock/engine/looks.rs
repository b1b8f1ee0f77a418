//! Looks at rings: for bytes that a guest's program has written, and for room that it has made. And
//! what follows from a move that concerns other connections: signals, faults, empty channels.

use std::time::Instant;

use taut_queue_pair::End;
use taut_virtq::socket_header::SHUTDOWN_SEND;

use super::VsockSwitch;
use crate::vsock::proto::{ChannelIdx, ConnId, Connection, Flow, FlowId, GuestIdx, Party, Side, State};
use crate::vsock::queue_pair::{AttachedEnd, EndId, News, PairFault, QueuePairs};
use crate::vsock::sched::{MAX_EMPTY_LOOKS, Pace, Turns};

/// Most looks in a row; then other work has its turn.
const MAX_LOOKS: usize = 256;

/// The thing that a flow lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The sender has nothing for the receiver.
    Bytes,
    /// The receiver's ring is full, or must be empty before the receiver is told of the end.
    Room,
}

/// Result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    /// The flow has something for its receiver, which has room for it.
    is_ready: bool,
    /// The thing that the flow cannot go on without, and that is looked for again later; `None` if
    /// the flow goes on, or if what it lacks makes itself heard.
    lack: Option<Lack>,
}

impl VsockSwitch {
    /// Looks at the flows whose look is due.
    pub(super) fn look_at_rings(&mut self, now: Instant) {
        for _ in 0..MAX_LOOKS {
            let Some((place, at_once)) = self.sched.turns.pace.due(now) else { break };
            let id = place.flow.connection;
            let Some(connection) = self.table.get_mut(id).filter(|it| place.is_of(it)) else { continue };
            connection.flows[place.flow.from].look_is_due = false;
            self.look(place.flow);
            let Some(connection) = self.table.get_mut(id) else { continue };
            let flow = &mut connection.flows[place.flow.from];
            let has_found = flow.unframed > 0;
            flow.signals.on_look(has_found);
            // A stream, although the sides have taken turns so far: streams of both ways do.
            if at_once && has_found {
                connection.exchanges.on_more();
            }
        }
    }

    /// Looks at a flow for bytes in its sender's ring and room in its receiver's, and has it move
    /// bytes if there are both.
    fn look(&mut self, flow: FlowId) {
        let Self { table, pairs, sched, host, now, .. } = self;
        let FlowId { connection: id, from } = flow;
        let Some(connection) = table.get_mut(id) else { return };
        let has_ring = connection.is_from_ring(from) || connection.is_to_ring(from);
        if connection.flows[from].over || connection.flows[from].cut || !has_ring {
            return;
        }
        let host_has_bytes = connection.ends[from].party == Party::Host
            && connection.state == State::Open
            && !connection.flows[from].ended
            && host.streams.get_mut(id).is_some_and(|stream| stream.readable);
        let found = match look_at_both(pairs, connection, from, host_has_bytes) {
            Ok(found) => found,
            Err(fault) => return self.fail_flow(flow, fault),
        };
        go_on(pairs, &mut sched.turns, flow, connection, found);
        // No move follows that would release the signal.
        if !found.is_ready && connection.flows[from].signals.release() {
            release_signal(pairs, connection, from.other());
        }
        let Some(lack) = found.lack else {
            connection.flows[from].empty_looks = 0;
            return;
        };
        let looks = &mut connection.flows[from].empty_looks;
        *looks = looks.saturating_add(1);
        let most = if connection.exchanges.take_turns() { 1 } else { MAX_EMPTY_LOOKS };
        if *looks < most {
            return sched.turns.pace.look_later(flow, connection, *now);
        }
        // The guest rings a bell from now on, unless it has written, or made room, just before.
        match lack {
            Lack::Bytes => pairs.end(connection, from).map(|end| end.out.wait()),
            Lack::Room => pairs.end(connection, from.other()).map(|end| end.into.wait()),
        };
        match look_at_both(pairs, connection, from, host_has_bytes) {
            Ok(found) if found.lack == Some(lack) => {}
            Ok(found) => {
                connection.flows[from].empty_looks = 0;
                go_on(pairs, &mut sched.turns, flow, connection, found);
                if found.lack.is_some() {
                    sched.turns.pace.look_later(flow, connection, *now);
                }
            }
            Err(fault) => self.fail_flow(flow, fault),
        }
    }

    /// Handles bells of a program: it has written bytes, or made room.
    pub(super) fn on_bell(&mut self, guest: GuestIdx, channel: ChannelIdx) {
        let end = self.pairs.region(guest).and_then(|region| region.end(channel));
        let Some(EndId { connection: id, serial, side }) = end.and_then(|end| end.of) else { return };
        let Some(connection) = self.table.get_mut(id).filter(|it| it.serial == serial) else { return };
        let Some(end) = self.pairs.end(connection, side) else { return };
        end.out.stop_waiting();
        let waited_for_room = end.into.is_waiting();
        end.into.stop_waiting();
        connection.flows[side].empty_looks = 0;
        connection.flows[side].signals.forget_looks();
        if waited_for_room {
            connection.flows[side.other()].empty_looks = 0;
        }
        self.look(FlowId { connection: id, from: side });
        if waited_for_room {
            self.look(FlowId { connection: id, from: side.other() });
        }
    }

    /// Resets a connection because of the words that a look or a move of one of its flows has read.
    pub(super) fn fail_flow(&mut self, FlowId { connection: id, from }: FlowId, fault: PairFault) {
        let Some(connection) = self.table.get(id) else { return };
        let side = fault.side(from);
        if let Party::Guest(guest) = connection.ends[side].party {
            self.fail_end(guest, EndId::of(connection, side), fault);
        }
    }

    /// Handles what moves have caused. Returns `true` if there was anything.
    pub(super) fn handle_news(&mut self) -> bool {
        let mut any = false;
        while self.pairs.has_news() {
            any = true;
            for news in self.pairs.take_news() {
                match news {
                    News::Signal(control) => self.signal(control),
                    News::MayBeEmpty(guest, channel) => self.free_if_empty(guest, channel),
                    News::Fault(guest, end, fault) => self.fail_end(guest, end, fault),
                }
            }
        }
        any
    }

    /// Signals the program at a control connection.
    fn signal(&mut self, id: ConnId) {
        let (Some(connection), Some(control)) = (self.table.get_mut(id), self.pairs.control(id)) else {
            return;
        };
        let Some(own) = connection.fabric_side().filter(|_| connection.state == State::Open) else { return };
        control.signal();
        connection.flows[own].unframed = control.waiting();
        self.sched.turns.queue(FlowId { connection: id, from: own }, connection);
    }
}

/// Takes up what the sender of a flow has written into its ring, and looks for room in the
/// receiver's.
fn look_at_both(
    pairs: &mut QueuePairs,
    connection: &mut Connection,
    from: Side,
    host_has_bytes: bool,
) -> Result<Found, PairFault> {
    if let Some(end) = pairs.end(connection, from) {
        take_up_bytes(end, &mut connection.flows[from])?;
    }
    let flow = &connection.flows[from];
    let has_something = flow.has_payload() || host_has_bytes;
    let into = if connection.is_to_ring(from) { pairs.end(connection, from.other()) } else { None };
    if let Some(into) = into {
        let unread = into.into.used()?;
        let is_full = unread == into.into.size();
        // The program itself is told of the end at once.
        let is_told = into.announced != End::Open;
        let must_be_read = !has_something && is_told && connection.withholds_end(from);
        if has_something && is_full || must_be_read && unread > 0 {
            return Ok(Found { is_ready: false, lack: Some(Lack::Room) });
        }
    }
    // Packets, and programs on the host, are heard of by themselves.
    let may_write = connection.is_from_ring(from) && !connection.has_left[from] && !flow.ended;
    let lacks_bytes = may_write && flow.unframed == 0;
    Ok(Found { is_ready: has_something || flow.ended, lack: lacks_bytes.then_some(Lack::Bytes) })
}

/// Takes up what the program of an attached end has written, unless that is known for good.
pub(super) fn take_up_bytes(end: &mut AttachedEnd, flow: &mut Flow) -> Result<(), PairFault> {
    if end.is_final || flow.ended {
        return Ok(());
    }
    let look = end.out.look()?;
    flow.unframed = look.bytes;
    if look.end != End::Open {
        end.is_final = true;
        flow.ended = true;
        flow.pending.shutdown |= SHUTDOWN_SEND;
    }
    Ok(())
}

/// Queues a flow if it has something for its receiver, and ends the waits for what was found.
fn go_on(pairs: &mut QueuePairs, turns: &mut Turns, flow: FlowId, connection: &mut Connection, found: Found) {
    if found.lack != Some(Lack::Bytes)
        && let Some(end) = pairs.end(connection, flow.from)
    {
        end.out.stop_waiting();
    }
    if found.lack != Some(Lack::Room)
        && let Some(end) = pairs.end(connection, flow.from.other())
    {
        end.into.stop_waiting();
    }
    if found.is_ready {
        turns.queue(flow, connection);
    }
}

/// Signals the program at a side that waits for bytes, after the signal was held back.
fn release_signal(pairs: &mut QueuePairs, connection: &Connection, side: Side) {
    let Some(end) = pairs.end(connection, side) else { return };
    if end.into.must_signal() {
        let control = end.control;
        pairs.signal(control);
    }
}

/// Goes on after bytes were taken out of the ring of a flow's sender: shows its guest the room, and
/// schedules the next look once all that was found has been moved.
pub(super) fn after_taking(
    pairs: &mut QueuePairs,
    pace: &mut Pace,
    flow: FlowId,
    connection: &mut Connection,
    now: Instant,
) {
    let from = flow.from;
    let Party::Guest(guest) = connection.ends[from].party else { return };
    let Some(end) = pairs.end(connection, from) else { return };
    let (published, control, waits) = (end.publish_taken(), end.control, end.out.is_waiting());
    match published {
        Ok(true) => pairs.signal(control),
        Ok(false) => {}
        Err(fault) => pairs.note(News::Fault(guest, EndId::of(connection, from), fault.into())),
    }
    if connection.flows[from].unframed > 0 {
        return;
    }
    if connection.has_left[from] {
        pairs.note_left(connection);
    } else if !waits && !connection.flows[from].ended {
        if connection.exchanges.take_turns() {
            pace.look_now(flow, connection, now);
        } else {
            pace.look_later(flow, connection, now);
        }
    }
}
