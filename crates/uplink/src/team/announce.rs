//! Frames that tell physical switches, and hosts outside, where an address is now (ESX: *Notify
//! switches*), and their pace.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use super::frame::{ARP, RARP, arp};
use super::neighbour::advertisement;

/// Announcements in one burst (ESX: `Net.NetMaxRarpsPerInterval`). More at once would be lost in
/// the queue of a card.
pub const BURST: usize = 128;
/// Time between two bursts in ns: a thousand ports are announced within 100 ms.
const PAUSE_NS: u64 = 10_000_000;

/// Places of ports, and IP addresses of guests, that wait for their announcement.
#[derive(Debug)]
pub struct Announcements<A> {
    /// All in the order of their turns, each once.
    queue: VecDeque<A>,
    waiting: BTreeSet<A>,
    /// When the next burst may begin.
    next: u64,
}

impl<A> Default for Announcements<A> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), waiting: BTreeSet::new(), next: 0 }
    }
}

impl<A: Ord + Copy> Announcements<A> {
    /// Adds an announcement, unless it waits already.
    pub fn add(&mut self, announced: A) {
        if self.waiting.insert(announced) {
            self.queue.push_back(announced);
        }
    }

    /// Removes announcements for which `stays` does not hold.
    pub fn retain(&mut self, stays: impl Fn(&A) -> bool) {
        self.queue.retain(&stays);
        self.waiting.retain(stays);
    }

    /// Returns what is announced now, [`BURST`] at most.
    pub fn take(&mut self, now: u64) -> Vec<A> {
        if now < self.next || self.queue.is_empty() {
            return Vec::new();
        }
        self.next = now.saturating_add(PAUSE_NS);
        let burst: Vec<A> = self.queue.drain(..self.queue.len().min(BURST)).collect();
        for announced in &burst {
            self.waiting.remove(announced);
        }
        burst
    }

    /// Returns when the next burst may begin, if anything waits.
    pub fn next(&self) -> Option<u64> {
        (!self.queue.is_empty()).then_some(self.next)
    }
}

/// Returns the frame, without a VLAN tag, that tells switches the place of an Ethernet address:
/// RARP.
pub fn announcement(mac: [u8; 6]) -> Vec<u8> {
    arp(RARP, 3, (mac, Ipv4Addr::UNSPECIFIED), (mac, Ipv4Addr::UNSPECIFIED))
}

/// Returns the frame, without a VLAN tag, that tells hosts the Ethernet address of an IP address: a
/// gratuitous ARP (RFC 5227), or an unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
///
/// `is_router` says whether the station is an IPv6 router, if that is known. Hosts drop a router
/// that advertises itself as something else, so without it there is no frame for an IPv6 address.
pub fn ip_announcement(mac: [u8; 6], ip: IpAddr, is_router: Option<bool>) -> Option<Vec<u8>> {
    match ip {
        IpAddr::V4(ip) => Some(arp(ARP, 1, (mac, ip), ([0; 6], ip))),
        IpAddr::V6(ip) => is_router.map(|is_router| advertisement(mac, ip, is_router)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

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
        announcements.retain(|port| *port != 1);
        assert_eq!(announcements.take(0), [2]);
        announcements.add(2);
        assert_eq!(announcements.next(), Some(PAUSE_NS));
    }

    #[test]
    fn switches_are_told_by_rarp() {
        let frame = announcement(MAC);
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[..14], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x50, 0x56, 1, 2, 3, 0x80, 0x35]);
        assert_eq!(frame[14..22], [0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!((&frame[22..28], &frame[32..38]), (&MAC[..], &MAC[..]));
    }

    #[test]
    fn hosts_are_told_of_ip_addresses() {
        let v4 = ip_announcement(MAC, "10.1.2.3".parse().unwrap(), None).unwrap();
        assert_eq!(
            (v4[20..22].to_vec(), &v4[28..32], &v4[38..42]),
            (vec![0, 1], &[10, 1, 2, 3][..], &[10, 1, 2, 3][..])
        );
        let ip: Ipv6Addr = "fe80::250:56ff:fe01:203".parse().unwrap();
        for (is_router, flags) in [(true, 0xa0), (false, 0x20)] {
            let v6 = ip_announcement(MAC, ip.into(), Some(is_router)).unwrap();
            assert_eq!(v6[..14], [0x33, 0x33, 0, 0, 0, 1, 0, 0x50, 0x56, 1, 2, 3, 0x86, 0xdd]);
            assert_eq!((v6.len(), v6[20], v6[21], v6[54], v6[58]), (86, 58, 255, 136, flags));
            assert_eq!((&v6[22..38], &v6[62..78]), (&ip.octets()[..], &ip.octets()[..]));
            assert_eq!((&v6[78..80], &v6[80..]), (&[2, 1][..], &MAC[..]));
        }
        assert_eq!(ip_announcement(MAC, ip.into(), None), None, "it might take a router away");
    }
}
