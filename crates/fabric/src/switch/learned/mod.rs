//! Addresses that ports were seen to send from: MAC learning, and the current address of a port
//! that may change its own.
//!
//! Workers read and write the table concurrently, without a lock. An entry is two words: the
//! address, and its [`Value`]. The value carries a check of the address, so that an entry read in
//! the middle of a change looks unknown. With a probability of 1 in 65536 such a read yields a
//! wrong port; the frame still stays in its VLAN, because the receiver's VLAN is checked at
//! delivery. Each address has a window of eight places; if all of them are taken, the address is
//! not learned.
//!
//! The limits of its ports bound the table, and an entry that was silent for its port's ageing time
//! counts as free. When the ports change, a new table takes over the entries of ports that stay.

mod rules;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::config::PortConfig;

use super::mac_table::Key;
use rules::{Identity, Rules};
use value::Value;

/// Number of places that an address can be in.
const WINDOW: usize = 8;
/// Places per address that may be learned. With this many, a window is hardly ever full.
const ROOM: usize = 4;
/// Places that one frame sweeps when its port has reached its limit.
const SWEPT_AT_ONCE: u32 = 16;
/// Largest number of places in one table (4 MiB).
const MAX_PLACES: usize = 1 << 18;

/// The learned addresses of one segment.
#[derive(Debug)]
pub struct Learned {
    places: Box<[Place]>,
    shift: u32,
    /// The learning ports, by port number.
    ports: Box<[Learner]>,
    /// The learning ports that the table was built for, with their rules.
    made_for: Vec<(PortId, Rules)>,
    start: Instant,
    /// The place at which [`Self::sweep`] continues.
    swept: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(align(16))]
struct Place {
    key: AtomicU64,
    value: AtomicU64,
}

/// The state of a learning port.
#[derive(Debug, Default)]
struct Learner {
    /// Number of addresses learned.
    count: AtomicU32,
    /// Largest number of addresses.
    limit: u32,
    /// Seconds after which a silent address counts as free.
    ageing: u32,
}

impl Learned {
    /// Builds the table for these ports; `None` if none of them learns.
    ///
    /// Valid entries of the table `before` are taken over. If it has the same ports and rules, it
    /// is kept as it is.
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

    /// Copies the entries of ports that have not changed.
    fn take_over(&self, before: &Self) {
        let identities = |table: &Self| -> BTreeMap<PortId, Identity> {
            table.made_for.iter().map(|(port, rules)| (*port, rules.identity.clone())).collect()
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

    /// Seconds since the first table was built: the time base of ages.
    #[inline]
    pub fn second(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.start).as_secs() as u32
    }

    /// The places that an address can be in.
    #[inline]
    fn window(&self, key: Key) -> &[Place] {
        let at = (key.hash() >> self.shift) as usize;
        &self.places[at..at + WINDOW]
    }

    /// The state of a learning port.
    fn learner(&self, port: PortId) -> Option<&Learner> {
        self.ports.get(usize::from(port.0)).filter(|learner| learner.limit > 0)
    }

    /// The port of a value, if the value is valid at this second.
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

    /// Records that a port sends from this address. Returns `false` if there is no room.
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

    /// Updates the time or the port of a known address.
    fn renew(&self, place: &Place, value: Value, wanted: Value, port: PortId) -> bool {
        let moved = value.port() != Some(port);
        if moved && !self.take_room(port) {
            return false;
        }
        let renewed = place.value.compare_exchange(value.0, wanted.0, AcqRel, Relaxed).is_ok();
        if moved {
            self.give_room(if renewed { value.port() } else { Some(port) });
        }
        // If another thread was faster, its value is just as new.
        true
    }

    /// Adds an unknown address.
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

    /// Removes an address of a port.
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

    /// Counts one more address of a port. Returns `false` at its limit.
    fn take_room(&self, port: PortId) -> bool {
        let Some(learner) = self.learner(port) else { return false };
        let room = learner.count.fetch_add(1, Relaxed) < learner.limit;
        if !room {
            learner.count.fetch_sub(1, Relaxed);
        }
        room
    }

    /// Frees aged entries, a few at a time: they count against their ports' limits.
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

    /// Counts one address of a port less.
    fn give_room(&self, port: Option<PortId>) {
        if let Some(learner) = port.and_then(|port| self.learner(port)) {
            learner.count.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
