//! Invariants of queue pairs that hold between any two steps, whatever guests have done.

use std::collections::BTreeMap;

use crate::vsock::engine::VsockSwitch;
use crate::vsock::proto::{ConnId, Connection, Party, Side, State};
use crate::vsock::queue_pair::QueuePairs;

/// How often each flow is in a list.
type Counts = BTreeMap<(ConnId, Side), usize>;

impl VsockSwitch {
    /// Panics if an invariant of queue pairs does not hold.
    pub(super) fn check_pairs(&mut self) {
        self.check_channels();
        self.check_controls();
        let [moves, looks] = self.sched.turns.pace.all().map(|places| {
            let mut counts = Counts::new();
            for place in places {
                let id = place.flow.connection;
                if self.table.get(id).is_some_and(|connection| place.is_of(connection)) {
                    *counts.entry((id, place.flow.from)).or_default() += 1;
                }
            }
            counts
        });
        for id in self.table.ids() {
            for from in Side::BOTH {
                self.check_ring_flow(id, from, &moves, &looks);
            }
        }
    }

    /// The words that the fabric writes have its values, unless a guest overwrites them.
    #[cfg(test)]
    pub(crate) fn check_own_words(&self) {
        for (guest, channel, end) in self.pairs.ends() {
            let words = end.out.check_own_words().and(end.into.check_own_words(end.announced));
            assert_eq!(words, Ok(()), "{guest:?} {channel:?}");
        }
    }

    /// Each channel in use belongs to a connection that names it, or to a control connection.
    fn check_channels(&self) {
        let mut attached = 0;
        for (guest, channel, end) in self.pairs.ends() {
            assert!(end.of.is_some() || end.control.is_some(), "{channel:?} is of nobody");
            if let Some(of) = end.of {
                let connection = self.table.get(of.connection).expect("a channel of a connection");
                assert_eq!(connection.serial, of.serial);
                assert_eq!(connection.channels[of.side], Some(channel));
                assert_eq!(connection.ends[of.side].party, Party::Guest(guest));
                attached += 1;
            }
            if let Some(control) = end.control {
                let connection = self.table.get(control).expect("a channel of a control connection");
                assert_eq!(connection.guests().collect::<Vec<_>>(), [guest]);
                let channels = self.pairs.controls().filter(|&(id, _)| id == control);
                assert_eq!(channels.map(|(_, control)| control.channel).collect::<Vec<_>>(), [Some(channel)]);
            }
            self.pairs.region(guest).expect("a region").check();
        }
        let named = self.table.iter().flat_map(|(_, connection)| connection.channels.0).flatten().count();
        assert_eq!(attached, named);
    }

    fn check_controls(&self) {
        for (id, _) in self.pairs.controls() {
            let connection = self.table.get(id).expect("a control connection");
            assert_eq!(connection.fabric_side(), Some(Side::Responder));
        }
    }

    /// A flow with rings is looked at, or waits for something that makes itself heard.
    fn check_ring_flow(&mut self, id: ConnId, from: Side, moves: &Counts, looks: &Counts) {
        let Self { table, pairs, guests, .. } = self;
        let Some(connection) = table.get(id) else { return };
        let flow = &connection.flows[from];
        let count = |counts: &Counts| counts.get(&(id, from)).copied().unwrap_or(0);
        assert_eq!([count(moves), count(looks)], [flow.moves, flow.look_is_due].map(usize::from));
        let is_attached = |connection: &Connection, side: Side| connection.channels[side].is_some();
        if connection.ends[from].party == Party::Fabric {
            // What the guest gave no credit for is lost with the end of the connection.
            let is_lost = flow.unframed == 0 && connection.state == State::Over;
            assert!(is_lost || Some(flow.unframed) == pairs.control(id).map(|control| control.waiting()));
        } else if !is_attached(connection, from) {
            assert_eq!((flow.unframed, flow.before_ring), (0, None), "{connection:?}");
        }
        Self::check_left(connection, from, pairs);
        // A signal that is held back needs a look or a move that releases it.
        let is_released = flow.look_is_due || flow.moves || !connection.is_to_ring(from);
        assert!(
            is_released || !flow.signals.is_held() || flow.cut || connection.state == State::Over,
            "a signal is lost: {connection:?}"
        );
        if connection.state != State::Open || flow.over {
            return;
        }
        if let Some(end) = pairs.end(connection, from) {
            assert!(flow.unframed <= end.out.size());
            let is_seen = flow.look_is_due || flow.unframed > 0 || end.out.is_waiting() || end.is_final;
            assert!(is_seen || flow.ended, "nobody looks at {from:?} of {connection:?}");
        }
        let sender_stands = match connection.ends[from].party {
            Party::Guest(sender) => guests.senders[sender].ring.is_none(),
            _ => false,
        };
        if let Some(end) = pairs.end(connection, from.other())
            && connection.is_to_ring(from)
        {
            let is_seen = flow.look_is_due || flow.moves || end.into.is_waiting() || sender_stands;
            let has_news = flow.has_payload() || connection.withholds_end(from);
            assert!(!has_news || is_seen, "nobody moves {from:?} of {connection:?}");
        }
    }

    /// A side that has left its channel has something left there.
    fn check_left(connection: &Connection, side: Side, pairs: &mut QueuePairs) {
        let (own, other) = (&connection.flows[side], &connection.flows[side.other()]);
        let has_news = pairs.has_news();
        let Some(end) = pairs.end(connection, side) else {
            assert_eq!((connection.has_left[side], other.returned), (false, 0), "{connection:?}");
            return;
        };
        assert_eq!(connection.has_left[side], end.control.is_none(), "{connection:?}");
        assert!(other.returned <= end.into.size());
        if connection.has_left[side] {
            assert!(end.is_final && own.before_ring.is_some(), "{connection:?}");
            let is_left = own.unframed > 0 && !own.over || other.returned > 0 && !other.over;
            assert!(is_left || has_news, "an empty channel is in use: {connection:?}");
        } else {
            assert_eq!((other.returned, own.before_ring), (0, None), "{connection:?}");
        }
    }
}
