//! Guests' devices: configuration, rings, counters.

mod closing_queues;
mod counters;
mod device;
mod event_source;
mod receiver;
mod sender;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use taut_api::fabric::config::SocketConfig;
use taut_api::fabric::counters::SocketWord;
use taut_api::fabric::{ForeignFd, PortId};
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;

pub(crate) use self::counters::DeviceCounters;
pub(crate) use self::device::GuestDevice;
pub(crate) use self::event_source::EventSource;
pub(crate) use self::receiver::{Receiver, RxRing, Starvation};
pub(crate) use self::sender::{RingPlace, Sender, TxRing};
use super::proto::{Connection, End, GuestIdx, Party, PerGuest, Pledged, may_talk};
use crate::sys::epoll::Watched;

/// The descriptor by which a guest's driver kicks a ring.
pub(crate) type Kick = Watched<Arc<ForeignFd>>;

/// All devices.
#[derive(Debug)]
pub(crate) struct Guests {
    words: Arc<SharedWords>,
    /// `None` for an index whose device was removed.
    pub(crate) devices: PerGuest<Option<GuestDevice>>,
    /// The indices whose devices were removed.
    vacant: Vec<GuestIdx>,
    pub(crate) senders: PerGuest<Sender>,
    pub(crate) receivers: PerGuest<Receiver>,
    by_cid: HashMap<Cid, GuestIdx>,
    by_id: BTreeMap<PortId, GuestIdx>,
}

impl Guests {
    pub(crate) fn new(words: &Arc<SharedWords>) -> Self {
        Self {
            words: Arc::clone(words),
            devices: PerGuest::default(),
            vacant: Vec::new(),
            senders: PerGuest::default(),
            receivers: PerGuest::default(),
            by_cid: HashMap::new(),
            by_id: BTreeMap::new(),
        }
    }

    /// The device of a port.
    pub(crate) fn by_id(&self, id: PortId) -> Option<GuestIdx> {
        self.by_id.get(&id).copied()
    }

    /// The device with a context ID.
    pub(crate) fn by_cid(&self, cid: Cid) -> Option<GuestIdx> {
        self.by_cid.get(&cid).copied()
    }

    /// The party that has a context ID: a guest, or a program on the host.
    pub(crate) fn party(&self, cid: Cid) -> Option<Party> {
        if cid == Cid::HOST { Some(Party::Host) } else { self.by_cid(cid).map(Party::Guest) }
    }

    /// Devices that are not among the wanted ones, or have another context ID there.
    pub(crate) fn unwanted(&self, wanted: &[SocketConfig]) -> Vec<PortId> {
        let wanted: HashMap<_, _> = wanted.iter().map(|device| (device.id, device.cid)).collect();
        let is_wanted = |id, guest: GuestIdx| {
            let device = self.devices[guest].as_ref();
            device.is_some_and(|device| wanted.get(&id) == Some(&device.config.cid))
        };
        self.by_id.iter().filter(|&(&id, &guest)| !is_wanted(id, guest)).map(|(&id, _)| id).collect()
    }

    /// Changes a device's configuration; its context ID stays as it is. Returns `false` if nothing
    /// changes.
    pub(crate) fn reconfigure(&mut self, guest: GuestIdx, config: &SocketConfig) -> bool {
        let changes = self.devices[guest].as_mut().filter(|known| known.config != *config);
        let Some(known) = changes else { return false };
        known.config = config.clone();
        self.introduce(guest);
        true
    }

    /// Adds a device under an index that is not in use: that no connection names.
    pub(crate) fn insert(&mut self, config: &SocketConfig, in_use: impl Fn(GuestIdx) -> bool) -> GuestIdx {
        let device = GuestDevice::new(config.clone(), DeviceCounters::new(&self.words, config.id));
        let free = self.vacant.iter().position(|&guest| !in_use(guest));
        let guest = free.map_or_else(|| self.devices.next_index(), |at| self.vacant.swap_remove(at));
        if !self.devices.contains(guest) {
            self.devices.push(None);
            self.senders.push(Sender::default());
            self.receivers.push(Receiver::default());
        }
        self.devices[guest] = Some(device);
        self.by_cid.insert(config.cid, guest);
        self.by_id.insert(config.id, guest);
        self.introduce(guest);
        guest
    }

    /// Forgets a device's port. Its connections can still be counted until [`Self::remove`].
    pub(crate) fn detach(&mut self, id: PortId) -> Option<GuestIdx> {
        self.by_id.remove(&id)
    }

    /// Removes a detached device with its rings.
    pub(crate) fn remove(&mut self, guest: GuestIdx) {
        // The end of its connections may have set `unpublished`. With that, the rings of the next
        // device at this index would never be published.
        self.senders[guest] = Sender::default();
        self.receivers[guest] = Receiver::default();
        let Some(device) = self.devices[guest].take() else { return };
        device.counters.set(SocketWord::Connections, 0);
        self.by_cid.remove(&device.config.cid);
        for &peer in device.peers.values() {
            if let Some(peer) = &mut self.devices[peer] {
                peer.peers.remove(&device.config.cid);
            }
        }
        self.vacant.push(guest);
    }

    /// Makes a guest, and every guest that may talk to it, know each other.
    fn introduce(&mut self, guest: GuestIdx) {
        let Some(mut device) = self.devices[guest].take() else { return };
        device.peers.clear();
        for (other_guest, other) in self.devices.iter_mut() {
            let Some(other) = other else { continue };
            if may_talk(&device.config, &other.config) {
                device.peers.insert(other.config.cid, other_guest);
                other.peers.insert(device.config.cid, guest);
            } else {
                other.peers.remove(&device.config.cid);
            }
        }
        self.devices[guest] = Some(device);
    }

    /// Tells whether the ends of a connection may talk, by the present configuration.
    pub(crate) fn may_have(&self, connection: &Connection) -> bool {
        match connection.ends.0.map(|end| end.party) {
            [Party::Guest(a), Party::Guest(b)] => match (&self.devices[a], &self.devices[b]) {
                (Some(a), Some(b)) => may_talk(&a.config, &b.config),
                _ => false,
            },
            _ => true,
        }
    }

    /// The bytes that were promised for a guest; `None` for the host and the fabric.
    pub(crate) fn pledged(&mut self, party: Party) -> Option<&mut Pledged> {
        match party {
            Party::Guest(guest) => Some(&mut self.receivers[guest].pledged),
            Party::Host | Party::Fabric => None,
        }
    }

    /// Tells whether the guest to whose limit a connection counts may have one more.
    pub(crate) fn may_own(&self, connection: &Connection) -> bool {
        let owner = connection.owner();
        owner.is_none_or(|guest| self.is(guest, |guest| guest.usage.may_own(&guest.config)))
    }

    /// Counts bytes out of a ring of a guest.
    pub(crate) fn count_from_ring(&self, guest: GuestIdx, bytes: u64) {
        self.count(guest, SocketWord::TxBytes, bytes);
        self.count(guest, SocketWord::RingTxBytes, bytes);
    }

    /// Counts an end at a guest that begins to use rings, or uses them no more.
    pub(crate) fn count_attached(&self, party: Party, begins: bool) {
        if let Party::Guest(guest) = party
            && let Some(device) = &self.devices[guest]
        {
            device.counters.step(SocketWord::Attached, begins);
        }
    }

    /// Counts a connection that was added (`change` is 1) or removed (-1).
    pub(crate) fn count_connection(&mut self, connection: &Connection, change: i32) {
        for guest in connection.guests() {
            if let Some(device) = &mut self.devices[guest] {
                device.count_connections(change, connection.owner() == Some(guest));
            }
        }
    }

    /// Tells whether an end may have one more unanswered request.
    pub(crate) fn may_request(&self, end: &End) -> bool {
        match end.party {
            Party::Guest(guest) => self.is(guest, |guest| guest.usage.may_request(&guest.config)),
            Party::Host | Party::Fabric => true,
        }
    }

    fn is(&self, guest: GuestIdx, condition: impl FnOnce(&GuestDevice) -> bool) -> bool {
        self.devices[guest].as_ref().is_some_and(condition)
    }

    /// Adds to a counter of a guest's.
    #[inline]
    pub(crate) fn count(&self, guest: GuestIdx, word: SocketWord, by: u64) {
        if let Some(guest) = &self.devices[guest] {
            guest.counters.add(word, by);
        }
    }

    /// Interrupts a guest for the packets that it has got back.
    pub(crate) fn interrupt_sender(&mut self, guest: GuestIdx) {
        if self.senders[guest].interrupt() {
            self.count(guest, SocketWord::Interrupts, 1);
        }
    }
}
