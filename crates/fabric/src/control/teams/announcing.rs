//! Announcements of one vSwitch: the places of ports, of which physical switches are told, and
//! their IP addresses, of which hosts are told.
//!
//! A port comes first, then its addresses behind all ports that wait already: the place of each
//! port is told as soon as possible. A burst is limited so that a card's queue takes its frames:
//! one for each announcement, and up to 16 for a port on a trunk.

use std::net::IpAddr;
use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_uplink::team::{Announcements, IpPlace};

use crate::switch::heard::Heard;

/// An announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control) struct Announcement {
    pub(in crate::control) port: PortId,
    /// Uplink of the port.
    pub(in crate::control) uplink: PortId,
    pub(in crate::control) subject: Subject,
}

/// Subject of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control) enum Subject {
    /// The port with its Ethernet address.
    Port,
    /// An IP address of the port.
    Ip {
        /// 0 for no VLAN.
        vlan: u16,
        ip: IpAddr,
        /// Ethernet address from which the port has stated it; `None` if it is from a document.
        stated_from: Option<[u8; 6]>,
        /// The port's guest is an IPv6 router or not, if it has said so.
        is_router: Option<bool>,
    },
}

/// Ports and addresses that wait for their announcement, and the addresses that are known.
#[derive(Debug, Default)]
pub(super) struct Announcing {
    /// Ports (`None`), and addresses of ports.
    waiting: Announcements<(PortId, Option<IpPlace>)>,
    heard: Arc<Heard>,
}

impl Announcing {
    /// Adds a port that begins to receive, or whose uplink has changed.
    pub(super) fn add(&mut self, port: PortId) {
        self.waiting.add((port, None));
    }

    /// Removes a port that receives no more, and forgets its addresses.
    pub(super) fn forget(&mut self, port: PortId) {
        self.waiting.retain(|(other, _)| *other != port);
        self.forget_ips(port);
    }

    /// Forgets the addresses of a port.
    pub(super) fn forget_ips(&self, port: PortId) {
        self.heard.known().forget(port);
    }

    /// Returns what is announced now. `way` returns the uplink of a port and the address from its
    /// document; `None` if the port is not announced.
    pub(super) fn take(
        &mut self,
        now: u64,
        way: impl Fn(PortId) -> Option<(PortId, Option<IpPlace>)>,
    ) -> Vec<Announcement> {
        let mut taken = Vec::new();
        for (port, place) in self.waiting.take(now) {
            let Some((uplink, configured)) = way(port) else { continue };
            let known = self.heard.known();
            let subject = if let Some(place @ (vlan, ip)) = place {
                let stated_from = known.mac(port, place);
                if stated_from.is_none() && configured != Some(place) {
                    // Another station has it now.
                    continue;
                }
                Subject::Ip { vlan, ip, stated_from, is_router: known.is_router(port) }
            } else {
                known.places(port).chain(configured).for_each(|ip| self.waiting.add((port, Some(ip))));
                Subject::Port
            };
            taken.push(Announcement { port, uplink, subject });
        }
        taken
    }

    /// Returns when [`Self::take`] has more.
    pub(super) fn next(&self) -> Option<u64> {
        self.waiting.next()
    }

    /// Returns the addresses that are known.
    pub(super) fn heard(&self) -> &Arc<Heard> {
        &self.heard
    }
}
