//! Turns: each flow that has something for a receiver hands over one packet, then the next flow
//! does.
//!
//! A flow without credit is queued as well. Its turn ends without payload ([`Served::Idle`]) and it
//! leaves the queue until its receiver gives credit, so a slow reader delays only its own
//! connection. A bulk stream waits after each packet until all other flows to the same receiver
//! have had their turn.

use std::collections::VecDeque;
use std::time::Instant;

use crate::vsock::proto::{ConnId, Connection, ConnectionTable, FlowId, GuestIdx, Party, PerGuest, Side};

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
    flows: VecDeque<FlowId>,
    /// The guest is in [`Turns::busy`].
    listed: bool,
}

/// All queues of flows.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    guests: PerGuest<GuestTurns>,
    /// Guests for which there may be something to do.
    busy: Vec<GuestIdx>,
    /// Flows with something for a program on the host.
    host: VecDeque<FlowId>,
    /// Flows of small packets that wait for more of them, and until when.
    held: Vec<(Instant, FlowId)>,
}

impl Turns {
    /// Provides an empty queue for a guest whose index is new.
    pub(crate) fn provide_guest(&mut self, guest: GuestIdx) {
        if !self.guests.contains(guest) {
            self.guests.push(GuestTurns::default());
        }
    }

    /// Queues a flow at its receiver, unless it is queued already.
    #[inline]
    pub(crate) fn queue(&mut self, flow: FlowId, connection: &mut Connection) {
        if std::mem::replace(&mut connection.flows[flow.from].queued, true) {
            return;
        }
        match connection.ends[flow.from.other()].party {
            Party::Guest(guest) => {
                self.guests[guest].flows.push_back(flow);
                self.mark_busy(guest);
            }
            Party::Host => self.host.push_back(flow),
        }
    }

    /// Marks a guest to be served in the next round.
    #[inline]
    pub(crate) fn mark_busy(&mut self, guest: GuestIdx) {
        if !std::mem::replace(&mut self.guests[guest].listed, true) {
            self.busy.push(guest);
        }
    }

    /// Number of busy guests: those for which there may be something to do.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Takes a guest out of the list of busy ones.
    #[inline]
    pub(crate) fn next_busy(&mut self) -> GuestIdx {
        let guest = self.busy.swap_remove(0);
        self.guests[guest].listed = false;
        guest
    }

    /// The flow whose turn at a guest it is.
    #[inline]
    pub(crate) fn first(&self, guest: GuestIdx) -> Option<FlowId> {
        self.guests[guest].flows.front().copied()
    }

    /// Ends the turn of the first flow at a guest. A flow for which the guest has no buffer keeps
    /// its turn.
    #[inline]
    pub(crate) fn end_turn(&mut self, guest: GuestIdx, served: Served, connection: &mut Connection) {
        if served == Served::Full {
            return;
        }
        let flows = &mut self.guests[guest].flows;
        let Some(flow) = flows.pop_front() else { return };
        match served {
            Served::More => flows.push_back(flow),
            Served::Held(until) => self.held.push((until, flow)),
            Served::Idle | Served::Full => connection.flows[flow.from].queued = false,
        }
    }

    /// Removes the first flow at a guest, whose connection is gone.
    pub(crate) fn drop_first(&mut self, guest: GuestIdx) {
        self.guests[guest].flows.pop_front();
    }

    /// Number of flows with something for the host.
    pub(crate) fn host_flows(&self) -> usize {
        self.host.len()
    }

    /// Takes the flow whose turn at the host it is.
    pub(crate) fn next_host_flow(&mut self) -> Option<FlowId> {
        self.host.pop_front()
    }

    /// Queues the held flows whose wait is over. Returns `true` if there were any.
    pub(crate) fn release_held(&mut self, table: &mut ConnectionTable, now: Instant) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let mut any = false;
        for (until, flow) in std::mem::take(&mut self.held) {
            if now < until {
                self.held.push((until, flow));
                continue;
            }
            any = true;
            if let Some(connection) = table.get_mut(flow.connection) {
                connection.flows[flow.from].queued = false;
                self.queue(flow, connection);
            }
        }
        any
    }

    /// End of the earliest wait of a held flow.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.held.iter().map(|(until, _)| *until).min()
    }

    /// Tells whether nothing has to be done before an event or [`Self::next_release`].
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.host.is_empty()
    }

    /// Removes the flows of a closed connection: its number may soon be that of a connection with
    /// other ends.
    pub(crate) fn forget(&mut self, id: ConnId, connection: &Connection) {
        let others = |flow: &FlowId| flow.connection != id;
        for from in Side::BOTH.into_iter().filter(|&from| connection.flows[from].queued) {
            match connection.ends[from.other()].party {
                Party::Guest(guest) => self.guests[guest].flows.retain(others),
                Party::Host => self.host.retain(others),
            }
            self.held.retain(|(_, flow)| others(flow));
        }
    }

    /// Empties the queue of a guest that is gone or has started anew.
    pub(crate) fn clear(&mut self, guest: GuestIdx) {
        self.guests[guest].flows.clear();
    }

    /// Empties the queue of a removed guest, and looks at it no more.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.guests[guest] = GuestTurns::default();
        self.busy.retain(|&other| other != guest);
    }
}

#[cfg(any(test, feature = "rig"))]
impl Turns {
    /// All queued flows, with the receiver in whose queue they are (`None`: they are held).
    pub(crate) fn all(&self) -> Vec<(FlowId, Option<Party>)> {
        let guests = self.guests.iter().flat_map(|(guest, turns)| {
            turns.flows.iter().map(move |&flow| (flow, Some(Party::Guest(guest))))
        });
        let host = self.host.iter().map(|&flow| (flow, Some(Party::Host)));
        let held = self.held.iter().map(|&(_, flow)| (flow, None));
        guests.chain(host).chain(held).collect()
    }

    /// Tells whether a guest has flows in its queue, and whether it is marked as busy.
    pub(crate) fn state(&self, guest: GuestIdx) -> (bool, bool) {
        let listed = self.busy.iter().filter(|&&other| other == guest).count();
        assert_eq!(listed, usize::from(self.guests[guest].listed));
        (!self.guests[guest].flows.is_empty(), self.guests[guest].listed)
    }
}
