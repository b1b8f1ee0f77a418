//! Devices come and go, and who may talk to whom.

use std::collections::HashSet;

use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker};
use taut_api::fabric::counters::SocketWord;

use super::connection::Party;
use super::guest::{Counters, Guest, Receiver, Sender};
use super::hub::Hub;
use super::packets::Packets;
use super::{News, policy};
use crate::port::Failure;

impl Hub {
    /// Makes the devices what they are wanted to be; tells which could not be, and why.
    pub(super) fn configure(
        &mut self,
        devices: &[SocketConfig],
        worker: &SocketWorker,
    ) -> Vec<(PortId, String)> {
        self.worker = worker.clone();
        let unwanted: Vec<_> = self
            .by_id
            .iter()
            .filter(|(id, guest)| {
                let cid = self.guests[**guest].as_ref().map(|guest| guest.config.cid);
                !devices.iter().any(|device| device.id == **id && Some(device.cid) == cid)
            })
            .map(|(&id, _)| id)
            .collect();
        for id in unwanted {
            self.remove(id);
        }
        let mut refused = Vec::new();
        for device in devices {
            if let Some(&guest) = self.by_id.get(&device.id) {
                if let Some(known) = &mut self.guests[guest]
                    && known.config != *device
                {
                    known.config = device.clone();
                    self.introduce(guest);
                }
            } else if !device.cid.is_a_vms() || self.by_cid.contains_key(&device.cid) {
                let why = format!("the context ID {} is another's, or no VM's", device.cid);
                refused.push((device.id, why));
            } else {
                self.insert(device);
            }
        }
        // Who may no longer talk is told at once.
        for number in self.table.numbers() {
            if !self.is_allowed(number) {
                self.reset(number, None);
            }
        }
        refused
    }

    fn insert(&mut self, device: &SocketConfig) {
        let guest = Guest::new(device.clone(), Counters::new(&self.words, device.id));
        // Peers may not have been told yet of the end of connections that another device had in its place.
        let in_use: HashSet<usize> = self.table.numbers().flat_map(|number| self.guests_of(number)).collect();
        let free =
            (0..self.guests.len()).find(|place| self.guests[*place].is_none() && !in_use.contains(place));
        let place = free.unwrap_or_else(|| {
            self.guests.push(None);
            self.senders.push(Sender::default());
            self.receivers.push(Receiver::default());
            self.guests.len() - 1
        });
        self.guests[place] = Some(guest);
        self.by_cid.insert(device.cid, place);
        self.by_id.insert(device.id, place);
        self.introduce(place);
    }

    /// A guest, and everybody who may talk to it, know each other; nobody else does.
    fn introduce(&mut self, place: usize) {
        let Some(mut guest) = self.guests[place].take() else { return };
        guest.peers.clear();
        for (other_place, other) in self.guests.iter_mut().enumerate() {
            let Some(other) = other else { continue };
            if policy::may_talk(&guest.config, &other.config) {
                guest.peers.insert(other.config.cid, other_place);
                other.peers.insert(guest.config.cid, place);
            } else {
                other.peers.remove(&guest.config.cid);
            }
        }
        self.guests[place] = Some(guest);
    }

    fn remove(&mut self, id: PortId) {
        let Some(place) = self.by_id.remove(&id) else { return };
        self.senders[place] = Sender::default();
        self.receivers[place] = Receiver::default();
        self.forget_connections(place);
        self.hosts.forget(place);
        for list in [&mut self.awake, &mut self.busy, &mut self.touched_senders, &mut self.touched_receivers]
        {
            list.retain(|&other| other != place);
        }
        if let Some(guest) = self.guests[place].take() {
            guest.counters.set(SocketWord::Connections, 0);
            self.by_cid.remove(&guest.config.cid);
            for other in self.guests.iter_mut().flatten() {
                other.peers.remove(&guest.config.cid);
            }
        }
    }

    /// May the ends of a connection talk, as they are configured now?
    pub(super) fn is_allowed(&mut self, number: u32) -> bool {
        let Some(connection) = self.table.get(number) else { return true };
        match connection.ends.map(|end| end.party) {
            [Party::Guest(a), Party::Guest(b)] => match (&self.guests[a], &self.guests[b]) {
                (Some(a), Some(b)) => policy::may_talk(&a.config, &b.config),
                _ => false,
            },
            _ => true,
        }
    }

    /// The guest has gone, or has started anew: its connections are over, and what it had sent is lost.
    pub(super) fn forget_connections(&mut self, guest: usize) {
        for number in self.table.numbers() {
            let Some(connection) = self.table.get(number) else { continue };
            if !connection.guests().any(|other| other == guest) {
                continue;
            }
            let side = connection.side_of(guest);
            let flow = &mut connection.flows[side];
            (flow.packets, flow.offset) = (Packets::default(), 0);
            self.reset(number, Some(side));
        }
        self.senders[guest].taken = 0;
        self.receivers[guest].replies.clear();
        self.receivers[guest].turns.clear();
    }

    /// A device by its port.
    pub(super) fn guest(&self, id: PortId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// Something of a guest's is counted.
    pub(super) fn count(&self, guest: usize, word: SocketWord, by: u64) {
        if let Some(guest) = &self.guests[guest] {
            guest.counters.add(word, by);
        }
    }

    /// A guest broke a ring: both stop, until its driver sets them up anew.
    pub(super) fn broken(&mut self, guest: usize, queue: usize, failure: Failure) {
        if let Some(known) = &mut self.guests[guest] {
            known.stop(None);
            self.news.push(News::Broken { port: known.config.id, queue, failure });
        }
        self.senders[guest].ring = None;
        self.receivers[guest].ring = None;
        self.forget_connections(guest);
    }
}
