//! Addresses that ports were seen to send from: MAC learning, and the one address of a port that may change it.
//!
//! Workers read and write the table at once, without a lock. An entry is two words, the address and what is known of it;
//! the second carries a check of the first, so that an entry caught in the middle of a change looks unknown. Whoever is
//! unlucky enough to read one for the other (one in 65536 of such cases) still delivers inside the VLAN: that is checked
//! again at the receiver. Every address has a window of [`WINDOW`] places; when all are taken it is not learnt.
//!
//! The table is bounded by the limits of its ports, and an entry that was silent for its port's ageing time is as good as
//! free. A table whose ports change is replaced by one that has the entries of those that stay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::config::PortConfig;
use taut_api::{MacAddr, Vlan};

use super::mac_table::Key;

/// Places that an address can be in.
const WINDOW: usize = 8;
/// Places per address that may be learnt: with so few taken, a window is hardly ever full.
const ROOM: usize = 4;
/// Places that one frame sweeps, when its port has reached its limit.
const SWEPT_AT_ONCE: u32 = 16;
/// Most places of one table (4 MiB).
const MAX_PLACES: usize = 1 << 18;

/// Learnt addresses of one segment.
#[derive(Debug)]
pub struct Learned {
    places: Box<[Place]>,
    shift: u32,
    /// By number of the port.
    ports: Box<[Learner]>,
    /// The configuration that the table was made for: ports that learn, and nothing else of them than what decides how.
    made_for: Vec<(PortId, Rules)>,
    start: Instant,
    /// Where [`Self::sweep`] goes on.
    swept: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(align(16))]
struct Place {
    key: AtomicU64,
    value: AtomicU64,
}

/// A port that learns.
#[derive(Debug, Default)]
struct Learner {
    /// Addresses that it has.
    count: AtomicU32,
    limit: u32,
    /// Seconds.
    ageing: u32,
}

/// How addresses are learnt at a port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rules {
    limit: u32,
    ageing: u32,
    of: Identity,
}

/// What learnt addresses depend on: when it changes, they are forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    owner: String,
    mac: MacAddr,
    vlan: Vlan,
    learns: bool,
}

/// What is known of an address: port (16 bits, one too high), check of the address (16), second of its last frame (32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value(u64);

impl Value {
    const FREE: Self = Self(0);
    /// Somebody is writing.
    const BUSY: Self = Self(u64::MAX);

    fn new(port: PortId, key: Key, second: u32) -> Self {
        Self((u64::from(port.0) + 1) << 48 | Self::check(key) << 32 | u64::from(second))
    }

    /// Other bits of the hash than those that the place is found by.
    fn check(key: Key) -> u64 {
        key.hash() >> 16 & 0xffff
    }

    fn is_of(self, key: Key) -> bool {
        self != Self::FREE && self != Self::BUSY && self.0 >> 32 & 0xffff == Self::check(key)
    }

    /// `None` if free or busy.
    fn port(self) -> Option<PortId> {
        if self == Self::BUSY { None } else { ((self.0 >> 48) as u16).checked_sub(1).map(PortId) }
    }

    const fn second(self) -> u32 {
        self.0 as u32
    }
}

impl Rules {
    /// Those of a port, unless all its addresses are configured.
    fn of(config: &PortConfig) -> Option<Self> {
        let (limit, ageing) = match config.mac_learning {
            Some(learning) if config.security.forged_transmits => {
                (u32::from(learning.limit), learning.ageing_s)
            }
            // One to come and one to go; it stays for as long as no other comes.
            _ if config.security.mac_changes => (2, u32::MAX),
            _ => return None,
        };
        let of = Identity {
            owner: config.owner.clone(),
            mac: config.mac,
            vlan: config.vlan.clone(),
            learns: config.mac_learning.is_some(),
        };
        Some(Self { limit, ageing, of })
    }
}

impl Learned {
    /// The table for these ports, or `None` if none of them learns. What is in `before` and still holds is taken over; a
    /// table for the same ports is kept as it is.
    pub fn new<'c>(
        ports: impl Iterator<Item = &'c PortConfig>,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let made_for: Vec<_> =
            ports.filter_map(|config| Rules::of(config).map(|rules| (config.id, rules))).collect();
        if made_for.is_empty() {
            return None;
        }
        if let Some(before) = before.filter(|before| before.made_for == made_for) {
            return Some(Arc::clone(before));
        }
        let highest = made_for.iter().map(|(port, _)| usize::from(port.0)).max().unwrap_or(0);
        let mut ports: Box<[Learner]> = (0..=highest).map(|_| Learner::default()).collect();
        for (port, rules) in &made_for {
            let count = AtomicU32::new(0);
            ports[usize::from(port.0)] = Learner { count, limit: rules.limit, ageing: rules.ageing };
        }
        let limits: usize = made_for.iter().map(|(_, rules)| rules.limit as usize).sum();
        let size = (limits * ROOM).next_power_of_two().clamp(64, MAX_PLACES);
        let table = Self {
            places: (0..size + WINDOW).map(|_| Place::default()).collect(),
            shift: 64 - size.trailing_zeros(),
            ports,
            made_for,
            start: before.map_or_else(Instant::now, |before| before.start),
            swept: AtomicU32::new(0),
        };
        if let Some(before) = before {
            table.take_over(before);
        }
        Some(Arc::new(table))
    }

    fn take_over(&self, before: &Self) {
        let identities = |table: &Self| -> BTreeMap<PortId, Identity> {
            table.made_for.iter().map(|(port, rules)| (*port, rules.of.clone())).collect()
        };
        let (was, is) = (identities(before), identities(self));
        let stays = |port: PortId| is.get(&port).is_some_and(|now| was.get(&port) == Some(now));
        for place in &before.places {
            let value = Value(place.value.load(Acquire));
            let key = Key::from_word(place.key.load(Acquire));
            if let Some(port) = value.port().filter(|&port| value.is_of(key) && stays(port)) {
                self.learn(port, key, value.second());
            }
        }
    }

    /// Seconds since the table was made, the measure of its ages.
    #[inline]
    pub fn second(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.start).as_secs() as u32
    }

    #[inline]
    fn window(&self, key: Key) -> &[Place] {
        let at = (key.hash() >> self.shift) as usize;
        &self.places[at..at + WINDOW]
    }

    fn learner(&self, port: PortId) -> Option<&Learner> {
        self.ports.get(usize::from(port.0)).filter(|learner| learner.limit > 0)
    }

    fn holds(&self, value: Value, second: u32) -> Option<PortId> {
        let port = value.port()?;
        let age = second.saturating_sub(value.second());
        self.learner(port).filter(|learner| age <= learner.ageing).map(|_| port)
    }

    /// The port that last sent from this address.
    #[inline]
    pub fn find(&self, key: Key, second: u32) -> Option<PortId> {
        self.window(key).iter().find_map(|place| {
            if place.key.load(Acquire) != key.word() {
                return None;
            }
            let value = Value(place.value.load(Acquire));
            if value.is_of(key) { self.holds(value, second) } else { None }
        })
    }

    /// Notes that a port sends from this address; `false` if there is no room for it.
    #[inline]
    pub fn learn(&self, port: PortId, key: Key, second: u32) -> bool {
        let wanted = Value::new(port, key, second);
        for place in self.window(key) {
            if place.key.load(Acquire) == key.word() {
                let value = Value(place.value.load(Acquire));
                if value == wanted {
                    return true;
                }
                if value.is_of(key) && self.holds(value, second).is_some() {
                    return self.renew(place, value, wanted, port);
                }
            }
        }
        self.insert(key, wanted, port, second)
    }

    /// The address is known; the time is new, or the port.
    fn renew(&self, place: &Place, value: Value, wanted: Value, port: PortId) -> bool {
        let moved = value.port() != Some(port);
        if moved && !self.take_room(port) {
            return false;
        }
        let renewed = place.value.compare_exchange(value.0, wanted.0, AcqRel, Relaxed).is_ok();
        if moved {
            self.give_room(if renewed { value.port() } else { Some(port) });
        }
        // Whoever was faster has said something just as new.
        true
    }

    fn insert(&self, key: Key, wanted: Value, port: PortId, second: u32) -> bool {
        let free = self.window(key).iter().find_map(|place| {
            let value = Value(place.value.load(Acquire));
            (value != Value::BUSY && self.holds(value, second).is_none()).then_some((place, value))
        });
        let Some((place, value)) = free else { return false };
        if !self.take_room(port) {
            self.sweep(second);
            return false;
        }
        if place.value.compare_exchange(value.0, Value::BUSY.0, AcqRel, Relaxed).is_err() {
            self.give_room(Some(port));
            return false;
        }
        self.give_room(value.port());
        place.key.store(key.word(), Release);
        place.value.store(wanted.0, Release);
        true
    }

    /// Forgets that the address is the port's.
    pub fn forget(&self, port: PortId, key: Key) {
        for place in self.window(key) {
            let value = Value(place.value.load(Acquire));
            if place.key.load(Acquire) == key.word()
                && value.port() == Some(port)
                && place.value.compare_exchange(value.0, Value::FREE.0, AcqRel, Relaxed).is_ok()
            {
                self.give_room(Some(port));
            }
        }
    }

    fn take_room(&self, port: PortId) -> bool {
        let Some(learner) = self.learner(port) else { return false };
        let room = learner.count.fetch_add(1, Relaxed) < learner.limit;
        if !room {
            learner.count.fetch_sub(1, Relaxed);
        }
        room
    }

    /// Frees entries that nobody asks for any more, a few at a time: they count against their port's limit.
    fn sweep(&self, second: u32) {
        let at = self.swept.fetch_add(SWEPT_AT_ONCE, Relaxed) as usize;
        let places = self.places.iter().cycle().skip(at % self.places.len());
        for place in places.take(SWEPT_AT_ONCE as usize) {
            let value = Value(place.value.load(Acquire));
            if value.port().is_some()
                && self.holds(value, second).is_none()
                && place.value.compare_exchange(value.0, Value::FREE.0, AcqRel, Relaxed).is_ok()
            {
                self.give_room(value.port());
            }
        }
    }

    fn give_room(&self, port: Option<PortId>) {
        if let Some(learner) = port.and_then(|port| self.learner(port)) {
            learner.count.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "learned_tests.rs"]
mod tests;
