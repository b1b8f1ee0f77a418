//! Invariants of the switch that hold between any two steps, whatever guests have done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use taut_api::fabric::counters::SocketWord;

use crate::vsock::engine::VsockSwitch;
use crate::vsock::proto::{
    ConnId, Connection, FlowId, GuestIdx, MAX_REPLIES, MAX_WAITING_PACKETS, Party, Pledged, Side, State,
    Usage,
};

/// Sums over the connections of one guest.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Sum {
    connections: u32,
    own: u32,
    half_open: u32,
    /// Ends that use rings.
    attached: u64,
    /// Promises to those who send to the guest.
    pledged: Pledged,
    /// Bytes that were copied out of the guest's ring for programs on the host.
    copied_for_host: usize,
    /// Numbers of the guest's packets that wait.
    waiting: BTreeSet<u16>,
}

/// The places of a flow in queues: the receiver in whose queue it is, or `None` where it is held.
type Places = BTreeMap<(ConnId, Side), Vec<Option<Party>>>;

impl VsockSwitch {
    /// Panics if an invariant does not hold.
    pub(super) fn check(&mut self) {
        self.table.check_lists();
        let places = self.places();
        let mut sums: BTreeMap<GuestIdx, Sum> = BTreeMap::new();
        let mut requested = 0;
        let mut queued = 0;
        for (id, connection) in self.table.iter() {
            requested += usize::from(connection.state == State::Requested);
            for side in Side::BOTH {
                self.check_end(connection, side, &mut sums);
                queued += self.check_flow(id, connection, side, &places, &mut sums);
            }
        }
        assert_eq!(queued, places.values().map(Vec::len).sum::<usize>(), "turns of nothing: {places:?}");
        assert_eq!(requested, self.sched.half_open.count());
        for guest in self.guests.devices.indices() {
            self.check_guest(guest, &sums.remove(&guest).unwrap_or_default());
        }
        self.check_hosts();
        self.check_pairs();
    }

    fn check_end(&self, connection: &Connection, side: Side, sums: &mut BTreeMap<GuestIdx, Sum>) {
        let end = connection.ends[side];
        let Party::Guest(guest) = end.party else { return };
        let half_open = connection.state == State::Requested && side == Side::Requester;
        let sum = sums.entry(guest).or_default();
        sum.connections += 1;
        sum.attached += u64::from(connection.is_by_rings(side));
        sum.own += u32::from(connection.owner() == Some(guest));
        sum.pledged.add(connection.outstanding(side.other()), connection.socket_type);
        sum.half_open += u32::from(half_open);
        sum.copied_for_host += connection.copied_for_host(side);
        if let Some(device) = &self.guests.devices[guest] {
            assert_eq!(device.config.cid, end.address.cid, "another guest's connection");
        }
    }

    /// Checks a flow. Returns the number of its places in queues.
    fn check_flow(
        &self,
        id: ConnId,
        connection: &Connection,
        from: Side,
        places: &Places,
        sums: &mut BTreeMap<GuestIdx, Sum>,
    ) -> usize {
        let flow = &connection.flows[from];
        let flow_id = FlowId { connection: id, from };
        // The fabric itself is in the queue of the host.
        let to = match connection.ends[from.other()].party {
            Party::Fabric => Party::Host,
            to => to,
        };
        let found = places.get(&(id, from));
        assert!(
            found.is_none_or(|found| found.iter().all(|at| at.is_none_or(|at| at == to))),
            "{flow_id:?} to {to:?} is queued at {found:?}"
        );
        let count = found.map_or(0, Vec::len);
        // A guest that has started anew has no queue, and is told nothing.
        assert!(count == usize::from(flow.queued) || count == 0 && flow.over, "{flow_id:?}: {flow:?}");
        assert!(!flow.over || connection.state == State::Over, "{connection:?}");
        let Party::Guest(guest) = connection.ends[from].party else {
            assert!(flow.packets.is_empty());
            return count;
        };
        let sender = &self.guests.senders[guest];
        let packets: Vec<_> = flow.packets.iter(&sender.slots).collect();
        assert_eq!(packets.len(), usize::from(flow.packets.count));
        assert_eq!(packets.iter().map(|(_, packet)| u64::from(packet.len)).sum::<u64>(), flow.packets.bytes);
        assert!(flow.spill.as_ref().is_none_or(|spill| !spill.is_empty()));
        let ring_is_to_start =
            self.guests.devices[guest].as_ref().is_some_and(|device| device.stopped.is_some());
        assert!(!flow.packets_unknown || ring_is_to_start, "{flow:?}");
        if sender.ring.is_some() {
            assert!(!flow.packets_unknown, "{flow:?}");
            assert!(flow.offset <= flow.first_len(&sender.slots), "{flow:?}");
        }
        for (packet, _) in packets {
            assert!(sums.entry(guest).or_default().waiting.insert(packet), "packet {packet} waits twice");
        }
        count
    }

    fn places(&self) -> Places {
        let mut places = Places::new();
        for (place, at) in self.sched.turns.all() {
            let FlowId { connection: id, from } = place.flow;
            if self.table.get(id).is_some_and(|connection| place.is_of(connection)) {
                places.entry((id, from)).or_default().push(at);
            }
        }
        places
    }

    fn check_guest(&self, guest: GuestIdx, sum: &Sum) {
        let (sender, receiver) = (&self.guests.senders[guest], &self.guests.receivers[guest]);
        assert_eq!((sender.taken, sender.copied_for_host), (sum.waiting.len(), sum.copied_for_host));
        assert_eq!([receiver.unpublished, sender.unpublished], self.sched.unpublished.has(guest));
        assert!(sender.taken <= MAX_WAITING_PACKETS && receiver.replies.len() <= MAX_REPLIES);
        if let Some(ring) = &sender.ring {
            let taken: BTreeSet<u16> = ring.queue.taken().collect();
            assert_eq!(taken, sum.waiting, "packets are lost");
        }
        let Some(device) = &self.guests.devices[guest] else { return };
        let usage = device.usage;
        let Usage { connections, own, half_open } = usage;
        assert_eq!((connections, own, half_open), (sum.connections, sum.own, sum.half_open));
        assert_eq!(receiver.pledged, sum.pledged);
        let counted = device.counters.words_from(SocketWord::Connections)[0].load(Relaxed);
        assert_eq!(counted, u64::from(sum.connections));
        let counted = device.counters.words_from(SocketWord::Attached)[0].load(Relaxed);
        assert_eq!(counted, sum.attached, "ends that use rings");
        let (has_flows, is_busy) = self.sched.turns.state(guest);
        let works = has_flows || !receiver.replies.is_empty();
        assert!(!works || receiver.ring.is_none() || is_busy || receiver.full, "{receiver:?} was forgotten");
        self.sched.polling.check(guest);
    }

    /// Connections of the host's sockets, and of the questions that `tautd` has not answered.
    fn host_connections(&self) -> Vec<ConnId> {
        self.host.streams.connections().chain(self.host.questions.connections()).collect()
    }

    fn check_hosts(&self) {
        for id in self.host_connections() {
            let connection = self.table.get(id).expect("a connection with the host");
            assert!(connection.host_side().is_some(), "{connection:?}");
        }
    }

    /// Panics unless there is no connection, and nothing of any.
    pub(super) fn check_nothing_left(&mut self) {
        self.check();
        let left: Vec<_> = self.table.iter().collect();
        assert!(left.is_empty(), "connections are left: {left:?}");
        assert_eq!(self.host_connections(), []);
        assert!(self.host.clients.duplicates().is_empty(), "clients that have gone");
        assert!(self.places().is_empty());
        assert_eq!(self.pairs.ends().count() + self.pairs.controls().count(), 0, "channels are left");
        for (_, device) in self.guests.devices.iter() {
            if let Some(device) = device {
                assert_eq!(device.usage, Usage::default());
            }
        }
    }
}
