//! Turns: each flow that has something for a receiver hands over one packet, then the next flow
//! does.
//!
//! A flow without credit is queued as well. Its turn ends without payload ([`Served::Idle`]) and it
//! leaves the queue until its receiver gives credit, so a slow reader delays only its own
//! connection. A bulk stream waits after each packet until all other flows to the same receiver
//! have had their turn. Flows that had nothing to send before go first, as new flows do in
//! RFC 8290: a small message does not wait for a turn of each bulk stream. And where many flows
//! wait, each turn is shorter.
//!
//! A place in a queue outlives its connection: places of closed connections are left out when their
//! turn comes. They are removed earlier if they are many, so they take no memory without bound.

use std::collections::VecDeque;
use std::time::Instant;

use super::pace::Pace;
use crate::vsock::proto::{Connection, ConnectionTable, FlowId, GuestIdx, Next, Party, PerGuest, Side};

/// Most payload that a flow hands over in one turn, whatever the receiver's buffers are.
pub(crate) const MAX_TURN_BYTES: u32 = 64 << 10;
/// The same while more than [`FEW_FLOWS`] wait for the receiver.
const SHORT_TURN_BYTES: u32 = 16 << 10;
const FEW_FLOWS: usize = 4;
/// Places of closed connections that a queue may have, unless most of its places are of others.
const MAX_STALE: usize = 64;

/// A flow's place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) flow: FlowId,
    /// Serial number of the connection.
    serial: u32,
}

impl Place {
    /// The place of a connection's flow.
    #[inline]
    pub(super) fn of(flow: FlowId, connection: &Connection) -> Self {
        Self { flow, serial: connection.serial }
    }

    /// Tells whether the place is of this connection, not of a closed one with the same number.
    #[inline]
    pub(crate) fn is_of(self, connection: &Connection) -> bool {
        self.serial == connection.serial
    }
}

/// Result of a flow's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// Something was handed over; there may be more.
    More,
    /// The flow has nothing left that can be handed over now.
    Idle,
    /// Small packets wait for more of them until this time.
    Held(Instant),
    /// The receiver has no buffer.
    Full,
}

/// The flows with something for one guest.
#[derive(Debug, Default)]
struct GuestTurns {
    /// Flows that were queued and have had no turn since. They go first.
    fresh: VecDeque<Place>,
    /// Flows that have had a turn.
    flows: VecDeque<Place>,
    /// Number of places that are of closed connections.
    stale: usize,
    /// The guest is in [`Turns::busy`].
    listed: bool,
}

impl GuestTurns {
    fn len(&self) -> usize {
        self.fresh.len() + self.flows.len()
    }

    fn first(&self) -> Option<Place> {
        self.fresh.front().or_else(|| self.flows.front()).copied()
    }

    fn pop(&mut self) -> Option<Place> {
        self.fresh.pop_front().or_else(|| self.flows.pop_front())
    }
}

/// All queues of flows.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    guests: PerGuest<GuestTurns>,
    /// Guests for which there may be something to do, in the order in which they were marked.
    busy: VecDeque<GuestIdx>,
    /// Flows with payload for a ring of a guest's, apart from the packets that they have for it.
    pub(crate) pace: Pace,
    /// Flows with something for a program on the host, or for the fabric itself.
    host: VecDeque<Place>,
    /// Number of places among them that are of closed connections.
    stale_host: usize,
    /// Flows of small packets that wait for more of them, and until when; the earliest first.
    held: VecDeque<(Instant, Place)>,
}

impl Turns {
    /// Provides an empty queue for a guest whose index is new.
    pub(crate) fn provide_guest(&mut self, guest: GuestIdx) {
        if !self.guests.contains(guest) {
            self.guests.push(GuestTurns::default());
        }
    }

    /// Queues a flow at its receiver, unless it is queued already. A flow to a ring is queued for
    /// its packets and for its payload.
    #[inline]
    pub(crate) fn queue(&mut self, flow: FlowId, connection: &mut Connection) {
        if connection.is_to_ring(flow.from) {
            self.pace.queue(flow, connection);
        }
        self.queue_packets(flow, connection);
    }

    /// Queues a flow at its receiver for its packets, unless it is queued already.
    #[inline]
    pub(crate) fn queue_packets(&mut self, flow: FlowId, connection: &mut Connection) {
        if std::mem::replace(&mut connection.flows[flow.from].queued, true) {
            return;
        }
        let place = Place::of(flow, connection);
        match connection.ends[flow.from.other()].party {
            Party::Guest(guest) => {
                self.guests[guest].fresh.push_back(place);
                self.mark_busy(guest);
            }
            Party::Host | Party::Fabric => self.host.push_back(place),
        }
    }

    /// Marks a guest to be served in the next round.
    #[inline]
    pub(crate) fn mark_busy(&mut self, guest: GuestIdx) {
        if !std::mem::replace(&mut self.guests[guest].listed, true) {
            self.busy.push_back(guest);
        }
    }

    /// Number of busy guests: those for which there may be something to do.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Takes the guest out of the list of busy ones that was marked before all others.
    #[inline]
    pub(crate) fn next_busy(&mut self) -> Option<GuestIdx> {
        let guest = self.busy.pop_front()?;
        self.guests[guest].listed = false;
        Some(guest)
    }

    /// The flow whose turn at a guest it is.
    #[inline]
    pub(crate) fn first(&self, guest: GuestIdx) -> Option<Place> {
        self.guests[guest].first()
    }

    /// Tells whether a connection has something to hand over to a guest. A queue may also have
    /// places of connections that have nothing left. A program on the host whose socket may be
    /// readable counts as if it had sent something.
    pub(crate) fn has_something_for(&self, guest: GuestIdx, table: &ConnectionTable) -> bool {
        let turns = &self.guests[guest];
        turns.fresh.iter().chain(&turns.flows).any(|place| {
            let connection = table.get(place.flow.connection).filter(|it| place.is_of(it));
            connection.is_some_and(|it| !matches!(it.next(place.flow.from), Next::Nothing))
        })
    }

    /// Most payload bytes that a turn at a guest hands over.
    #[inline]
    pub(crate) fn most_bytes(&self, guest: GuestIdx) -> u32 {
        if self.guests[guest].len() > FEW_FLOWS { SHORT_TURN_BYTES } else { MAX_TURN_BYTES }
    }

    /// Ends the turn of the first flow at a guest. A flow for which the guest has no buffer keeps
    /// its turn.
    #[inline]
    pub(crate) fn end_turn(&mut self, guest: GuestIdx, served: Served, connection: &mut Connection) {
        if served == Served::Full {
            return;
        }
        let turns = &mut self.guests[guest];
        let Some(place) = turns.pop() else { return };
        match served {
            Served::More => turns.flows.push_back(place),
            Served::Held(until) => self.held.push_back((until, place)),
            Served::Idle | Served::Full => connection.flows[place.flow.from].queued = false,
        }
    }

    /// Removes the first flow at a guest, whose connection is gone.
    pub(crate) fn drop_first(&mut self, guest: GuestIdx) {
        let turns = &mut self.guests[guest];
        turns.pop();
        turns.stale = turns.stale.saturating_sub(1);
    }

    /// Number of flows with something for the host.
    pub(crate) fn host_flows(&self) -> usize {
        self.host.len()
    }

    /// Takes the flow whose turn at the host it is.
    pub(crate) fn next_host_flow(&mut self) -> Option<Place> {
        self.host.pop_front()
    }

    /// Queues the held flows whose wait is over. Returns `true` if there were any.
    pub(crate) fn release_held(&mut self, table: &mut ConnectionTable, now: Instant) -> bool {
        let mut any = false;
        while let Some(&(_, place)) = self.held.front().filter(|(until, _)| *until <= now) {
            self.held.pop_front();
            any = true;
            let flow = place.flow;
            if let Some(connection) = table.get_mut(flow.connection).filter(|it| place.is_of(it)) {
                connection.flows[flow.from].queued = false;
                self.queue(flow, connection);
            }
        }
        any
    }

    /// End of the earliest wait of a held flow.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.held.front().map(|(until, _)| *until)
    }

    /// Tells whether nothing has to be done before an event or [`Self::next_release`].
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.host.is_empty() && self.pace.queued() == 0
    }

    /// Notes that a connection was removed from the table. Its places in queues count no longer.
    pub(crate) fn forget(&mut self, connection: &Connection, table: &ConnectionTable) {
        let is_live = |place: &Place| table.get(place.flow.connection).is_some_and(|it| place.is_of(it));
        for from in Side::BOTH.into_iter().filter(|&from| connection.flows[from].queued) {
            match connection.ends[from.other()].party {
                Party::Guest(guest) => {
                    let turns = &mut self.guests[guest];
                    turns.stale += 1;
                    if turns.stale > MAX_STALE.max(turns.len() / 2) {
                        turns.fresh.retain(is_live);
                        turns.flows.retain(is_live);
                        turns.stale = 0;
                    }
                }
                Party::Host | Party::Fabric => {
                    self.stale_host += 1;
                    if self.stale_host > MAX_STALE.max(self.host.len() / 2) {
                        self.host.retain(is_live);
                        self.stale_host = 0;
                    }
                }
            }
        }
    }

    /// Empties the queue of a guest that is gone or has started anew.
    pub(crate) fn clear(&mut self, guest: GuestIdx) {
        let turns = &mut self.guests[guest];
        turns.fresh.clear();
        turns.flows.clear();
        turns.stale = 0;
    }

    /// Empties the queue of a removed guest, and looks at it no more.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.guests[guest] = GuestTurns::default();
        self.busy.retain(|&other| other != guest);
    }
}

#[cfg(any(test, feature = "rig"))]
impl Turns {
    /// All places, with the receiver in whose queue they are (`None`: they are held).
    pub(crate) fn all(&self) -> Vec<(Place, Option<Party>)> {
        let guests = self.guests.iter().flat_map(|(guest, turns)| {
            let places = turns.fresh.iter().chain(&turns.flows);
            places.map(move |&place| (place, Some(Party::Guest(guest))))
        });
        let host = self.host.iter().map(|&place| (place, Some(Party::Host)));
        let held = self.held.iter().map(|&(_, place)| (place, None));
        guests.chain(host).chain(held).collect()
    }

    /// Tells whether a guest has flows in its queue, and whether it is marked as busy.
    pub(crate) fn state(&self, guest: GuestIdx) -> (bool, bool) {
        let listed = self.busy.iter().filter(|&&other| other == guest).count();
        assert_eq!(listed, usize::from(self.guests[guest].listed));
        (self.guests[guest].len() > 0, self.guests[guest].listed)
    }
}
