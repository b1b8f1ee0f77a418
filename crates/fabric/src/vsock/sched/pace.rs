//! Pace of rings: which flows have payload to move into a ring now, and when each flow with a ring
//! is looked at again.
//!
//! After a move, a flow is looked at every [`INTERVAL`], so that both guests write and read without
//! any signal while the stream goes on. After [`MAX_EMPTY_LOOKS`] looks in vain, the fabric
//! announces in the channel that it waits, and looks no more until the guest sends a bell.
//!
//! Programs that exchange requests and answers write nothing more until they are answered, and a
//! look every 100 µs would delay each answer. For their flows the fabric waits for a bell at once.
//!
//! Moves take turns by receiver: receiving guests take turns, and so do the flows to each guest. So
//! a guest with many streams does not delay the moves of others. Looks are served in the order in
//! which they are due, whoever's they are.
//!
//! Each flow is at most once in the queue and once in the list of looks. As in [`super::turns`], a
//! place outlives its connection, and is left out when its turn comes.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::turns::Place;
use crate::vsock::proto::{Connection, FlowId, GuestIdx, Party};

/// Time from one look at a flow to the next.
pub(crate) const INTERVAL: Duration = Duration::from_micros(100);
/// Looks in vain after which the fabric waits for a bell.
pub(crate) const MAX_EMPTY_LOOKS: u8 = 8;

/// Flows to rings, and looks at rings.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Flows with payload for a ring of each guest, in the order of their turns; never empty.
    moves: HashMap<GuestIdx, VecDeque<Place>>,
    /// The guests with such flows, in the order of their turns.
    order: VecDeque<GuestIdx>,
    /// Number of queued flows.
    queued: usize,
    /// Scheduled looks, the earliest first.
    looks: VecDeque<(Instant, Place)>,
    /// Looks that are due at once, with the time at which they were scheduled. In a list of their
    /// own: they take turns with the others, however many there are.
    soon: VecDeque<(Instant, Place)>,
    /// The next look is taken from `soon`, if there is one.
    takes_soon: bool,
}

impl Pace {
    /// Queues a flow whose payload goes into a ring, unless it is queued already.
    pub(crate) fn queue(&mut self, flow: FlowId, connection: &mut Connection) {
        let Party::Guest(receiver) = connection.ends[flow.from.other()].party else { return };
        if std::mem::replace(&mut connection.flows[flow.from].moves, true) {
            return;
        }
        self.queued += 1;
        let moves = self.moves.entry(receiver).or_insert_with(|| {
            self.order.push_back(receiver);
            VecDeque::new()
        });
        moves.push_back(Place::of(flow, connection));
    }

    /// Number of queued flows.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Takes the flow whose turn it is.
    pub(crate) fn next(&mut self) -> Option<Place> {
        let receiver = self.order.pop_front()?;
        let moves = self.moves.get_mut(&receiver)?;
        let place = moves.pop_front()?;
        self.queued -= 1;
        if moves.is_empty() {
            self.moves.remove(&receiver);
        } else {
            self.order.push_back(receiver);
        }
        Some(place)
    }

    /// Schedules the next look at a flow, unless one is scheduled already.
    pub(crate) fn look_later(&mut self, flow: FlowId, connection: &mut Connection, now: Instant) {
        if !std::mem::replace(&mut connection.flows[flow.from].look_is_due, true) {
            self.looks.push_back((now + INTERVAL, Place::of(flow, connection)));
        }
    }

    /// Schedules a look at a flow in the next round, which follows at once, unless one is scheduled
    /// already.
    pub(crate) fn look_now(&mut self, flow: FlowId, connection: &mut Connection, now: Instant) {
        if !std::mem::replace(&mut connection.flows[flow.from].look_is_due, true) {
            self.soon.push_back((now, Place::of(flow, connection)));
        }
    }

    /// Takes a flow that is to be looked at now. Also tells whether the look was due at once.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(Place, bool)> {
        self.takes_soon = !self.takes_soon;
        let is_due = |looks: &VecDeque<(Instant, Place)>| looks.front().is_some_and(|(at, _)| *at <= now);
        let at_once = is_due(&self.soon) && (self.takes_soon || !is_due(&self.looks));
        let looks = if at_once { &mut self.soon } else { &mut self.looks };
        if !is_due(looks) {
            return None;
        }
        looks.pop_front().map(|(_, place)| (place, at_once))
    }

    /// Time of the next look.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        [&self.soon, &self.looks].into_iter().filter_map(|looks| looks.front()).map(|(at, _)| *at).min()
    }
}

#[cfg(any(test, feature = "rig"))]
impl Pace {
    /// All places: of queued flows, and of scheduled looks.
    pub(crate) fn all(&self) -> [Vec<Place>; 2] {
        [
            self.moves.values().flatten().copied().collect(),
            self.looks.iter().chain(&self.soon).map(|&(_, place)| place).collect(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use taut_api::vmci::Cid;

    use super::*;
    use crate::vsock::proto::{Address, BySide, ConnId, End, Side, SocketType};

    #[test]
    fn a_guest_with_one_stream_has_as_many_turns_as_one_with_many() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let mut queue = |number: u32, receiver: u32| {
            let end = |guest: u32| End {
                address: Address { cid: Cid(3 + guest), port: number },
                party: Party::Guest(GuestIdx(guest)),
            };
            let mut connection = Connection::new(BySide([end(0), end(receiver)]), SocketType::Stream, now);
            let flow = FlowId { connection: ConnId(number), from: Side::Requester };
            pace.queue(flow, &mut connection);
            pace.queue(flow, &mut connection);
        };
        (0..50).for_each(|number| queue(number, 1));
        queue(50, 2);
        queue(51, 2);
        let order: Vec<_> = std::iter::from_fn(|| pace.next().map(|place| place.flow.connection.0)).collect();
        assert_eq!(order[..6], [0, 50, 1, 51, 2, 3]);
        assert_eq!((order.len(), pace.queued()), (52, 0));
    }

    #[test]
    fn looks_that_are_due_at_once_and_those_that_were_scheduled_take_turns() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let end = |guest: u32| End {
            address: Address { cid: Cid(3 + guest), port: 1 },
            party: Party::Guest(GuestIdx(guest)),
        };
        let flow = |number| FlowId { connection: ConnId(number), from: Side::Requester };
        let connection = || Connection::new(BySide([end(0), end(1)]), SocketType::Stream, now);
        (0..3).for_each(|number| pace.look_later(flow(number), &mut connection(), now));
        assert!(pace.due(now).is_none());
        let later = now + INTERVAL;
        (10..20).for_each(|number| pace.look_now(flow(number), &mut connection(), later));
        assert_eq!(pace.next_look(), Some(later));
        let order: Vec<_> =
            std::iter::from_fn(|| pace.due(later).map(|(place, _)| place.flow.connection.0)).collect();
        assert_eq!(order.len(), 13);
        assert!(order[..6].iter().filter(|number| **number < 10).count() == 3, "{order:?}");
    }
}
