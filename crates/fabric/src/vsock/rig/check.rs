//! What must hold of a hub between any two steps, whatever guests have done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use taut_api::fabric::counters::{SocketWord, port_base};

use crate::vsock::connection::{Party, State, Turn};
use crate::vsock::guest::{MOST_REPLIES, MOST_TAKEN};
use crate::vsock::hub::Hub;

/// What the connections add up to for one guest.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Sum {
    connections: u32,
    half_open: u32,
    /// Heads of its packets that wait.
    waiting: BTreeSet<u16>,
}

impl Hub {
    /// Panics if it does not hold.
    pub(super) fn check(&mut self) {
        let turns = self.turns();
        let mut sums = vec![Sum::default(); self.guests.len()];
        let mut requested = 0;
        let mut queued = 0;
        for number in self.table.numbers() {
            let connection = self.table.get(number).expect("a connection that is there");
            let half_open = connection.state == State::Requested;
            requested += usize::from(half_open);
            for (side, end) in connection.ends.into_iter().enumerate() {
                let Party::Guest(guest) = end.party else { continue };
                let sum = &mut sums[guest];
                sum.connections += 1;
                sum.half_open += u32::from(half_open && side == 0);
                if let Some(guest) = &self.guests[guest] {
                    assert_eq!(guest.config.cid, end.cid, "another's connection");
                }
            }
            for (from, flow) in connection.flows.iter().enumerate() {
                let turn = Turn { connection: number, from };
                let to = connection.ends[1 - from].party;
                let listed = turns.get(&(number, from));
                assert!(
                    listed.is_none_or(|listed| listed.iter().all(|at| at.is_none_or(|at| at == to))),
                    "{turn:?} of {to:?} is {listed:?}"
                );
                let listed = listed.map_or(0, Vec::len);
                queued += listed;
                // Whoever has started anew has no turns, and is told nothing.
                assert!(listed == usize::from(flow.queued) || listed == 0 && flow.over, "{turn:?}: {flow:?}");
                assert!(!flow.over || connection.state == State::Over, "{connection:?}");
                let Party::Guest(guest) = connection.ends[from].party else {
                    assert!(flow.packets.is_empty());
                    continue;
                };
                let places = &self.senders[guest].places;
                let packets: Vec<_> = flow.packets.iter(places).collect();
                assert_eq!(packets.len(), usize::from(flow.packets.count));
                assert_eq!(
                    packets.iter().map(|(_, packet)| u64::from(packet.len)).sum::<u64>(),
                    flow.packets.bytes
                );
                if self.senders[guest].ring.is_some() {
                    assert!(flow.offset <= flow.first_len(places), "{flow:?}");
                }
                for (head, _) in packets {
                    assert!(sums[guest].waiting.insert(head), "packet {head} waits twice");
                }
            }
        }
        assert_eq!(queued, turns.values().map(Vec::len).sum::<usize>(), "turns of nothing: {turns:?}");
        assert_eq!(requested, self.requested);
        for (place, sum) in sums.iter().enumerate() {
            self.check_guest(place, sum);
        }
        self.check_hosts();
    }

    /// All turns, with whose list they are in (none: they wait for a time).
    fn turns(&self) -> BTreeMap<(u32, usize), Vec<Option<Party>>> {
        let mut turns: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut add = |turn: &Turn, at| turns.entry((turn.connection, turn.from)).or_default().push(at);
        for (place, receiver) in self.receivers.iter().enumerate() {
            receiver.turns.iter().for_each(|turn| add(turn, Some(Party::Guest(place))));
        }
        self.hosts.turns.iter().for_each(|turn| add(turn, Some(Party::Host)));
        self.held.iter().for_each(|(_, turn)| add(turn, None));
        turns
    }

    fn check_guest(&self, place: usize, sum: &Sum) {
        let (sender, receiver) = (&self.senders[place], &self.receivers[place]);
        assert_eq!(sender.taken, sum.waiting.len());
        assert!(sender.taken <= MOST_TAKEN && receiver.replies.len() <= MOST_REPLIES);
        if let Some(ring) = &sender.ring {
            let taken: BTreeSet<u16> = ring.queue.taken().collect();
            assert_eq!(taken, sum.waiting, "packets are lost");
        }
        let Some(guest) = &self.guests[place] else { return };
        assert_eq!((guest.connections, guest.half_open), (sum.connections, sum.half_open));
        let at = port_base(guest.config.id) + SocketWord::Connections as usize;
        assert_eq!(self.words.words()[at].load(Relaxed), u64::from(sum.connections));
        let works = !receiver.turns.is_empty() || !receiver.replies.is_empty();
        assert!(
            !works || receiver.ring.is_none() || receiver.listed || receiver.full,
            "{receiver:?} was forgotten"
        );
        assert_eq!(self.busy.iter().filter(|&&other| other == place).count(), usize::from(receiver.listed));
        assert_eq!(self.awake.iter().filter(|&&other| other == place).count(), usize::from(sender.awake));
    }

    /// Every socket, and every question that `tautd` has not answered, belongs to a connection with the host.
    fn check_hosts(&mut self) {
        for number in self.hosts.numbers() {
            let connection = self.table.get(number).expect("a connection with the host");
            assert!(connection.host_side().is_some(), "{connection:?}");
        }
    }

    /// Panics unless there is no connection, and nothing of any.
    pub(super) fn check_nothing_left(&mut self) {
        self.check();
        let left: Vec<_> = self.table.numbers().collect();
        let first = left.first().and_then(|&first| self.table.get(first));
        assert!(first.is_none(), "connections {left:?} are left: {first:?}");
        assert_eq!(self.hosts.numbers(), Vec::<u32>::new());
        assert!(self.hosts.clients().is_empty(), "clients that have gone");
        assert!(self.turns().is_empty());
        for guest in self.guests.iter().flatten() {
            assert_eq!((guest.connections, guest.half_open), (0, 0));
        }
    }
}
