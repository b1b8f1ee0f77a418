//! Bounds for each address that connects: connections, requests, and wrong tokens.
//!
//! The number of entries is bounded, too. An address that has no connection and full buckets is
//! forgotten. If there is no room nevertheless, further addresses share one entry.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::bucket::{Bucket, Limit};

/// Maximum number of connections of all addresses.
pub(super) const MOST: usize = 256;
/// Maximum number of connections of an address.
pub(super) const MOST_OF_ADDRESS: usize = 32;
/// Connections that an address may open.
const OPENED: Limit = Limit { burst: 64.0, per_second: 16.0 };
/// Requests of an address, whatever token they show.
const REQUESTS: Limit = Limit { burst: 200.0, per_second: 100.0 };
/// Requests with a wrong token that are answered at once. Requests without a token are bounded by
/// [`REQUESTS`] alone.
const FAILURES: Limit = Limit { burst: 10.0, per_second: 0.2 };
/// Maximum number of addresses that have an entry.
const MOST_ADDRESSES: usize = 4096;
/// Time between two searches for entries to forget, while there is no room.
const SWEEP: Duration = Duration::from_secs(1);

/// Key of an entry: an IPv4 address, or a /64 of IPv6, which a site usually has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// This address, or the addresses of this network.
    Own(IpAddr),
    /// All addresses for which there was no room.
    Others,
}

/// All addresses that have connected lately.
#[derive(Debug)]
pub(super) struct Addresses {
    entries: HashMap<Key, Entry>,
    connections: usize,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    connections: usize,
    opened: Bucket,
    requests: Bucket,
    failures: Bucket,
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            connections: 0,
            opened: Bucket::full(OPENED, now),
            requests: Bucket::full(REQUESTS, now),
            failures: Bucket::full(FAILURES, now),
        }
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        self.connections == 0
            && self.opened.is_full(OPENED, now)
            && self.requests.is_full(REQUESTS, now)
            && self.failures.is_full(FAILURES, now)
    }
}

impl Addresses {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new(), connections: 0, swept: None }
    }

    /// Counts a new connection, unless there are too many, or its address opens them too fast.
    /// Returns the key of all further questions about it.
    pub(super) fn open(&mut self, address: IpAddr, now: Instant) -> Option<Key> {
        let key = self.key(address, now);
        let is_full = self.connections >= MOST;
        let entry = self.entries.entry(key).or_insert_with(|| Entry::new(now));
        if entry.opened.take(OPENED, now).is_err() || is_full || entry.connections >= MOST_OF_ADDRESS {
            return None;
        }
        entry.connections += 1;
        self.connections += 1;
        Some(key)
    }

    /// Takes note of a connection's end.
    pub(super) fn close(&mut self, key: Key) {
        // An entry with a connection is never forgotten.
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.connections -= 1;
            self.connections -= 1;
        }
    }

    /// Counts a request. If the address asks too often, returns the time to wait.
    pub(super) fn request(&mut self, key: Key, now: Instant) -> Result<(), Duration> {
        self.entry(key, now).requests.take(REQUESTS, now)
    }

    /// Counts a request with a wrong token. If there were many, returns the time to wait.
    pub(super) fn failure(&mut self, key: Key, now: Instant) -> Result<(), Duration> {
        self.entry(key, now).failures.take(FAILURES, now)
    }

    fn entry(&mut self, key: Key, now: Instant) -> &mut Entry {
        self.entries.entry(key).or_insert_with(|| Entry::new(now))
    }

    /// Returns the key of an address, and makes room for its entry if that is possible.
    fn key(&mut self, address: IpAddr, now: Instant) -> Key {
        let key = Key::Own(network(address));
        if self.entries.len() < MOST_ADDRESSES || self.entries.contains_key(&key) {
            return key;
        }
        if self.swept.is_none_or(|swept| now >= swept + SWEEP) {
            self.swept = Some(now);
            self.entries.retain(|_, entry| !entry.is_idle(now));
        }
        if self.entries.len() < MOST_ADDRESSES { key } else { Key::Others }
    }
}

/// Returns an IPv4 address, also one that is mapped into IPv6, or the first address of a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_address_with_many_connections_leaves_room_for_others() {
        let (mut addresses, now) = (Addresses::new(), Instant::now());
        let keys: Vec<_> = (0..1000).filter_map(|_| addresses.open(v4(1), now)).collect();
        assert_eq!(keys.len(), MOST_OF_ADDRESS);
        let other = addresses.open(v4(2), now).unwrap();
        for key in keys {
            addresses.close(key);
        }
        assert_eq!(addresses.open(v4(1), now), None, "it opened them too fast");
        assert!(addresses.open(v4(1), now + Duration::from_secs(1)).is_some());
        addresses.close(other);
        let many = (0..1000).filter(|n| addresses.open(v4(100 + n), now).is_some()).count();
        assert_eq!(many, MOST - 1, "all of them together are bounded");
    }

    #[test]
    fn requests_and_wrong_tokens_are_counted_apart_and_by_address() {
        let (mut addresses, now) = (Addresses::new(), Instant::now());
        let (one, other) = (addresses.open(v4(1), now).unwrap(), addresses.open(v4(2), now).unwrap());
        assert_eq!((0..10_000).filter(|_| addresses.request(one, now).is_ok()).count(), 200);
        assert_eq!((0..100).filter(|_| addresses.failure(one, now).is_ok()).count(), 10);
        assert_eq!(addresses.failure(one, now), Err(Duration::from_secs(5)));
        assert!(addresses.request(other, now).is_ok() && addresses.failure(other, now).is_ok());
        assert!(addresses.request(one, now + Duration::from_millis(10)).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    #[test]
    fn memory_is_bounded_and_idle_addresses_are_forgotten() {
        let (mut addresses, start) = (Addresses::new(), Instant::now());
        for number in 0..20_000 {
            if let Some(key) = addresses.open(v4(number), start) {
                addresses.close(key);
            }
        }
        assert_eq!(addresses.entries.len(), MOST_ADDRESSES + 1, "one for all others");
        let kept = addresses.open(v4(1), start).unwrap();
        let later = start + Duration::from_secs(60);
        assert_eq!(addresses.open(v4(30_000), later), Some(Key::Own(v4(30_000))));
        assert_eq!(addresses.entries.len(), 2, "one has a connection, one is new");
        addresses.close(kept);
        assert_eq!(addresses.connections, 1);
    }
}
