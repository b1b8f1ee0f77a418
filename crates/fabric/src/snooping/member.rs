//! A member of a group, and the queries after it has left. All times are in milliseconds.

use std::net::IpAddr;

use taut_api::fabric::PortId;

/// Queries for the members of a group that are left, and the time after each (RFC 3376, sections
/// 8.8 and 8.9).
const LAST_MEMBER_QUERIES: u8 = 2;
const LAST_MEMBER_MS: u64 = 1000;
/// Most of these queries that may find no room at the port. After the last one the member stays.
pub(super) const LAST_MEMBER_FAILURES: u8 = 5;

/// Place of a member that may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doubt {
    /// The port.
    pub port: PortId,
    /// The VLAN.
    pub vlan: u16,
    /// The group.
    pub group: IpAddr,
}

/// A port that has joined a group.
#[derive(Debug)]
pub(super) struct Member {
    /// End of the membership.
    pub(super) until: u64,
    /// Time of the next look at it, not after its end.
    pub(super) look: u64,
    /// Queries for it, if it may be gone.
    pub(super) doubt: Option<Asking>,
}

/// Queries for a member that may be gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    /// Time of the next query.
    pub(super) next: u64,
    /// Number of those that were sent.
    sent: u8,
    /// Number of those that found no room.
    failed: u8,
}

/// Consequence of a query.
#[derive(Debug)]
pub(super) enum After {
    /// Another query.
    Ask(Asking),
    /// The member cannot be asked, and stays one.
    Stays,
    /// Without an answer until this time, the port is a member no longer.
    EndsAt(u64),
}

impl Asking {
    /// Begins with a query at once.
    pub(super) fn begin(now: u64) -> Self {
        Self { next: now, sent: 0, failed: 0 }
    }

    /// Returns what follows the query of this time, which the port has taken or not.
    pub(super) fn after(self, was_asked: bool, now: u64) -> After {
        let next = now.saturating_add(LAST_MEMBER_MS);
        let Self { mut sent, mut failed, .. } = self;
        *if was_asked { &mut sent } else { &mut failed } += 1;
        if sent == LAST_MEMBER_QUERIES {
            After::EndsAt(next)
        } else if failed == LAST_MEMBER_FAILURES {
            After::Stays
        } else {
            After::Ask(Self { next, sent, failed })
        }
    }
}
