//! A class, or a port of a class: its rules, its backlog, and how far it has come.

use super::rules::Rules;
use super::tag::{PerByte, Tag};

/// A port of an uplink's scheduler. Its number is used again after the port is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(usize);

impl Port {
    /// Returns its place in an array with one element for each port of the uplink. Some elements of
    /// such an array are unused.
    #[inline]
    pub const fn index(self) -> usize {
        self.0
    }

    /// Returns the port with a number of the scheduler.
    pub(super) const fn of(number: u32) -> Self {
        Self(number as usize)
    }

    /// Returns its number.
    pub(super) const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Progress of a node on each of three lines. The node may be served when a tag is reached.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tags {
    /// Real time up to which its reservation is served.
    pub(super) reservation: Tag,
    /// Real time up to which its limit is used.
    pub(super) limit: Tag,
    /// Place among the nodes that share what is left.
    pub(super) shares: Tag,
}

/// Time in ns for which a reservation is made up for, if the uplink could not keep it. After a
/// longer stop of the card, ports without a reservation would wait for as long again.
const MOST_ARREARS: u64 = 100_000_000;
/// Time in ns by which a node may be late without losing a part of its reservation or limit: others
/// have their turns first, and a port asks again only when somebody serves it.
const MOST_LATE: u64 = 1_000_000;

/// Lengths of a byte on the three lines.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    reservation: Option<PerByte>,
    limit: Option<PerByte>,
    shares: PerByte,
}

/// A class or a port.
#[derive(Debug)]
pub(super) struct Node {
    /// Number of the class to which a port belongs; none for a class.
    pub(super) class: Option<u32>,
    pub(super) tags: Tags,
    rules: Rules,
    lengths: Lengths,
    /// Bytes on the wire of the longest frame with which a queue of the port waits.
    pub(super) next_frame: u32,
    /// The port has something to send.
    pub(super) has_backlog: bool,
    /// The port has a turn that has begun.
    pub(super) has_turn: bool,
    /// The port, or its class, has a limit.
    pub(super) is_bounded: bool,
    /// The port has become ready since its turn has begun.
    pub(super) is_ready_again: bool,
    /// The port was removed, and its number waits for the next one.
    pub(super) is_free: bool,
}

impl Node {
    pub(super) fn new(class: Option<u32>, rules: Rules) -> Self {
        Self {
            class,
            tags: Tags::default(),
            rules,
            lengths: Lengths::of(rules),
            next_frame: 0,
            has_backlog: false,
            has_turn: false,
            is_bounded: rules.limit.is_some(),
            is_ready_again: false,
            is_free: false,
        }
    }

    /// Replaces the rules. A new rate counts from now on: time that was used up at the former one
    /// does not bind the node.
    pub(super) fn set(&mut self, rules: Rules, now: Tag) {
        if self.rules.reservation != rules.reservation {
            self.tags.reservation = now;
        }
        if self.rules.limit != rules.limit {
            self.tags.limit = now;
        }
        (self.rules, self.lengths) = (rules, Lengths::of(rules));
    }

    /// Returns whether the node has a reservation.
    pub(super) fn reserves(&self) -> bool {
        self.lengths.reservation.is_some()
    }

    /// Returns whether the node has a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.lengths.limit.is_some()
    }

    /// Returns whether the limit lets the node send.
    pub(super) fn is_within_limit(&self, now: Tag) -> bool {
        self.lengths.limit.is_none() || self.tags.limit <= now
    }

    /// Begins anew after a time in which the node had nothing to send. It cannot save up: its
    /// reservation and limit count from now on, unless the time was too short to be noticed, and
    /// its place among `shares` is no earlier than that of the node that was served last.
    pub(super) fn wake(&mut self, now: Tag, shares: Tag) {
        let Tags { reservation, limit, shares: own } = &mut self.tags;
        for tag in [reservation, limit] {
            if *tag < now.before(MOST_LATE) {
                *tag = now;
            }
        }
        *own = shares.max(*own);
    }

    /// Takes its place among `shares` again after it waited for its limit.
    pub(super) fn resume(&mut self, shares: Tag) {
        self.tags.shares = shares.max(self.tags.shares);
    }

    /// Counts bytes towards the reservation of a class that the reservations of its ports served.
    /// If these are larger than its own, it owes nothing for that later.
    pub(super) fn count_reserved_by_ports(&mut self, bytes: u32, now: Tag) {
        self.count_reserved(bytes, now);
        self.tags.reservation = self.tags.reservation.min(now.later(MOST_ARREARS));
    }

    /// Counts bytes towards the reservation.
    pub(super) fn count_reserved(&mut self, bytes: u32, now: Tag) {
        if let Some(each) = self.lengths.reservation {
            self.tags.reservation = self.tags.reservation.max(now.before(MOST_ARREARS)).after(bytes, each);
        }
    }

    /// Counts bytes towards the limit.
    pub(super) fn count_limited(&mut self, bytes: u32, now: Tag) {
        if let Some(each) = self.lengths.limit {
            self.tags.limit = self.tags.limit.max(now.before(MOST_LATE)).after(bytes, each);
        }
    }

    /// Counts bytes towards the shares.
    pub(super) fn count_shared(&mut self, bytes: u32) {
        self.tags.shares = self.tags.shares.after(bytes, self.lengths.shares);
    }
}

impl Lengths {
    fn of(rules: Rules) -> Self {
        Self {
            reservation: rules.reservation.map(PerByte::at),
            limit: rules.limit.map(PerByte::at),
            shares: PerByte::of(rules.shares),
        }
    }
}
