//! Frames that tell physical switches, and hosts outside, where an address is now (ESX: *Notify
//! switches*), and their pace.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use super::frame::{ARP, RARP, arp};
use super::neighbour::advertisement;

/// Ports announced in one burst (ESX: `Net.NetMaxRarpsPerInterval`). More at once would be lost
/// in the queue of a card.
pub const BURST: usize = 128;
/// Time between two bursts in ns: a thousand addresses are announced within 100 ms.
const PAUSE_NS: u64 = 10_000_000;

/// Addresses of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// IP addresses, as far as they are known.
    pub ips: Vec<IpAddr>,
    /// The port's VM is an IPv6 router or not, if that is known. Hosts drop a router that
    /// advertises itself as something else, so without it IPv6 addresses are not announced.
    pub is_router: Option<bool>,
}

/// Ports that wait for their announcement.
#[derive(Debug)]
pub struct Announcements<P> {
    /// Ports in the order of their turns, each once.
    queue: VecDeque<P>,
    waiting: BTreeSet<P>,
    /// When the next burst may begin.
    next: u64,
}

impl<P> Default for Announcements<P> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), waiting: BTreeSet::new(), next: 0 }
    }
}

impl<P: Ord + Copy> Announcements<P> {
    /// Adds a port that begins to receive, or whose uplink has changed.
    pub fn add(&mut self, port: P) {
        if self.waiting.insert(port) {
            self.queue.push_back(port);
        }
    }

    /// Removes a port that is gone.
    pub fn remove(&mut self, port: P) {
        if self.waiting.remove(&port) {
            self.queue.retain(|other| *other != port);
        }
    }

    /// Returns the ports to be announced now, [`BURST`] at most.
    pub fn take(&mut self, now: u64) -> Vec<P> {
        if now < self.next || self.queue.is_empty() {
            return Vec::new();
        }
        self.next = now.saturating_add(PAUSE_NS);
        let burst: Vec<P> = self.queue.drain(..self.queue.len().min(BURST)).collect();
        for port in &burst {
            self.waiting.remove(port);
        }
        burst
    }

    /// Returns when the next burst may begin, if ports wait.
    pub fn next(&self) -> Option<u64> {
        (!self.queue.is_empty()).then_some(self.next)
    }
}

/// Returns the frames that announce an address, without VLAN tags: RARP, which tells switches the
/// place of the Ethernet address, and for each IP address a gratuitous ARP (RFC 5227) or a
/// neighbour advertisement (RFC 4861), which tell hosts.
pub fn announcements_of(address: &Address) -> Vec<Vec<u8>> {
    let Address { mac, ips, is_router } = address;
    let reverse = arp(RARP, 3, (*mac, Ipv4Addr::UNSPECIFIED), (*mac, Ipv4Addr::UNSPECIFIED));
    let of_ips = ips.iter().filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(arp(ARP, 1, (*mac, *ip), ([0; 6], *ip))),
        IpAddr::V6(ip) => is_router.map(|is_router| advertisement(*mac, *ip, is_router)),
    });
    [reverse].into_iter().chain(of_ips).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0, 0x50, 0x56, 1, 2, 3];

    #[test]
    fn a_thousand_ports_are_announced_within_100_ms_in_bursts() {
        let mut announcements = Announcements::default();
        for port in 0..1000 {
            announcements.add(port);
            announcements.add(port);
        }
        let mut now = 77;
        let mut told = Vec::new();
        while let Some(next) = announcements.next() {
            now = now.max(next);
            let burst = announcements.take(now);
            assert!(!burst.is_empty() && burst.len() <= BURST);
            assert!(announcements.take(now + PAUSE_NS - 1).is_empty());
            told.extend(burst);
        }
        assert!(now < 100_000_000, "{now}");
        assert_eq!(told, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_port_that_is_gone_is_not_announced() {
        let mut announcements = Announcements::default();
        announcements.add(1);
        announcements.add(2);
        announcements.remove(1);
        announcements.remove(3);
        assert_eq!(announcements.take(0), [2]);
        announcements.add(2);
        assert_eq!(announcements.next(), Some(PAUSE_NS));
    }

    #[test]
    fn switches_are_told_by_rarp() {
        let frames = announcements_of(&Address { mac: MAC, ips: Vec::new(), is_router: None });
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[..14], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x50, 0x56, 1, 2, 3, 0x80, 0x35]);
        assert_eq!(frame[14..22], [0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!((&frame[22..28], &frame[32..38]), (&MAC[..], &MAC[..]));
    }

    #[test]
    fn hosts_are_told_of_ip_addresses() {
        let ips = vec!["10.1.2.3".parse().unwrap(), "fe80::250:56ff:fe01:203".parse().unwrap()];
        let address = Address { mac: MAC, ips, is_router: Some(true) };
        let frames = announcements_of(&address);
        let [_, v4, v6] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(
            (v4[20..22].to_vec(), &v4[28..32], &v4[38..42]),
            (vec![0, 1], &[10, 1, 2, 3][..], &[10, 1, 2, 3][..])
        );
        assert_eq!((v6.len(), v6[20], v6[21], v6[54], v6[58]), (86, 58, 255, 136, 0xa0));
        let unknown = announcements_of(&Address { is_router: None, ..address });
        assert_eq!(unknown, frames[..2], "an advertisement might take a router away");
    }
}
