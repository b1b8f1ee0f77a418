//! IGMP and MLD snooping (RFC 4541): the ports of a vSwitch that take the frames of each group
//! (ESX: multicast filtering mode *snooping*).
//!
//! * `groups`: members, routers, and ports of which it is not known yet; a state machine in virtual
//!   time, fed with messages that workers read from frames;
//! * `port` and `member`: the state of one port, and of one membership;
//! * `questions`: when the fabric asks which port for its groups; in virtual time, too;
//! * [`Snooping`], here: the groups of one vSwitch, as workers and the control thread share them.
//!
//! Membership is followed by VLAN, group and port; sources are not. In doubt a port takes a frame:
//! while it is not known what its guest has joined, and if it joins more than is kept.

mod groups;
mod member;
mod port;
mod questions;

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use taut_api::fabric::PortId;

use crate::net::multicast::{Message, Record};
pub use groups::{Audience, Groups, Listing};
pub use member::Doubt;
pub use port::PortSetup;
pub use questions::Questions;

/// Most members that are looked at while workers wait.
const MOST_LOOKS: usize = 128;

/// The groups of one vSwitch.
#[derive(Debug)]
pub struct Snooping {
    groups: RwLock<Groups>,
    /// The point in time from which the state machine counts.
    epoch: Instant,
}

impl Snooping {
    /// Begins at `now`: all ports take all frames.
    pub fn new(now: Instant) -> Self {
        Self { groups: RwLock::default(), epoch: now }
    }

    /// Returns the milliseconds since the begin.
    pub fn at(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis().try_into().unwrap_or(u64::MAX)
    }

    /// Notes a message that a port has sent in a VLAN.
    pub fn hear(&self, from: PortId, vlan: u16, message: Message, records: &[Record], now: Instant) {
        let now = self.at(now);
        self.change(|groups| groups.hear(from, vlan, message, records, now));
    }

    /// Lets `choose` ask which ports take a frame to a group in a VLAN; `None` stands for a report,
    /// which only routers take. No queue may be locked by `choose`.
    pub fn choose<T>(
        &self,
        vlan: u16,
        group: Option<IpAddr>,
        now: Instant,
        choose: impl FnOnce(&Audience<'_>) -> T,
    ) -> T {
        self.look(|groups| choose(&groups.audience(vlan, group, self.at(now))))
    }

    /// Looks at the groups, beside others that do. No queue may be locked by `look`.
    pub fn look<T>(&self, look: impl FnOnce(&Groups) -> T) -> T {
        look(&self.groups.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes members and routers whose time is over, in steps, between which workers may pass.
    pub fn expire(&self, now: Instant) {
        let now = self.at(now);
        while self.change(|groups| groups.expire(now, MOST_LOOKS)) {
            std::thread::yield_now();
        }
    }

    /// Changes the groups. No queue may be locked by `change`: workers come here with one locked.
    pub fn change<T>(&self, change: impl FnOnce(&mut Groups) -> T) -> T {
        change(&mut self.groups.write().unwrap_or_else(PoisonError::into_inner))
    }
}
