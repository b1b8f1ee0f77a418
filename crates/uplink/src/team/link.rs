//! Usable uplinks, by what is seen of their links.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use super::set::{Set, Uplink};

const MINUTE_NS: u64 = 60_000_000_000;

/// When a link counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRules {
    /// Time in ns after a link came up until it is used (ESX: `TeamPolicyUpDelay`, 100 ms). It has
    /// to exceed the time after which the physical switch forwards.
    pub up_delay_ns: u64,
    /// Losses of a link within a minute from which on it is not used (ESX:
    /// `LinkFlappingThreshold`, 60).
    pub flapping: NonZeroUsize,
}

impl Default for LinkRules {
    fn default() -> Self {
        Self { up_delay_ns: 100_000_000, flapping: NonZeroUsize::new(60).unwrap() }
    }
}

/// Links of a vSwitch's uplinks.
#[derive(Debug, Default)]
pub struct Links {
    rules: LinkRules,
    links: BTreeMap<Uplink, Link>,
}

#[derive(Debug)]
struct Link {
    is_up: bool,
    /// From when on it is used, if it stays up.
    counts_from: u64,
    /// Times of its last losses, the most that the rules need.
    losses: VecDeque<u64>,
}

impl Link {
    fn is_flapping(&self, now: u64, rules: LinkRules) -> bool {
        let recent = self.losses.iter().filter(|loss| now.saturating_sub(**loss) < MINUTE_NS);
        recent.count() >= rules.flapping.get()
    }
}

impl Links {
    /// Returns an empty list.
    pub fn new(rules: LinkRules) -> Self {
        Self { rules, links: BTreeMap::new() }
    }

    /// Notes what is seen of an uplink's link. Of a new uplink, a link that is up counts at once.
    pub fn seen(&mut self, uplink: Uplink, is_up: bool, now: u64) {
        let rules = self.rules;
        let new = Link { is_up, counts_from: now, losses: VecDeque::new() };
        let link = self.links.entry(uplink).or_insert(new);
        if link.is_up == is_up {
            return;
        }
        link.is_up = is_up;
        if is_up {
            link.counts_from = now.saturating_add(rules.up_delay_ns);
        } else {
            link.losses.push_back(now);
            if link.losses.len() > rules.flapping.get() {
                link.losses.pop_front();
            }
        }
    }

    /// Returns whether an uplink has a link, used or not.
    pub fn is_up(&self, uplink: Uplink) -> bool {
        self.links.get(&uplink).is_some_and(|link| link.is_up)
    }

    /// Forgets an uplink.
    pub fn remove(&mut self, uplink: Uplink) {
        self.links.remove(&uplink);
    }

    /// Returns the usable ones of a team's uplinks. If none is, those that will be first count
    /// already, and if all of them flap, any that is up: a team that is dead has nothing to lose.
    pub fn usable(&self, team: Set, now: u64) -> Set {
        let up = || self.links.iter().filter(|(uplink, link)| team.contains(**uplink) && link.is_up);
        let calm = || up().filter(|(_, link)| !link.is_flapping(now, self.rules));
        let settled: Set = calm().filter(|(_, link)| link.counts_from <= now).map(|(at, _)| *at).collect();
        if !settled.is_empty() {
            return settled;
        }
        match calm().map(|(_, link)| link.counts_from).min() {
            Some(first) => calm().filter(|(_, link)| link.counts_from == first).map(|(at, _)| *at).collect(),
            None => up().map(|(at, _)| *at).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn uplink(number: u8) -> Uplink {
        Uplink::new(number).unwrap()
    }

    fn set(numbers: &[u8]) -> Set {
        numbers.iter().map(|number| uplink(*number)).collect()
    }

    fn two() -> Links {
        let mut links = Links::default();
        links.seen(uplink(0), true, 0);
        links.seen(uplink(1), true, 0);
        links
    }

    #[test]
    fn a_lost_link_is_left_at_once_and_used_again_after_the_delay() {
        let mut links = two();
        assert_eq!(links.usable(set(&[0, 1]), 0), set(&[0, 1]));
        links.seen(uplink(0), false, MS);
        assert_eq!(links.usable(set(&[0, 1]), MS), set(&[1]));
        links.seen(uplink(0), true, 2 * MS);
        assert_eq!(links.usable(set(&[0, 1]), 102 * MS - 1), set(&[1]));
        assert_eq!(links.usable(set(&[0, 1]), 102 * MS), set(&[0, 1]));
    }

    #[test]
    fn the_first_uplink_of_a_dead_team_counts_at_once() {
        let mut links = two();
        for number in [0, 1] {
            links.seen(uplink(number), false, MS);
        }
        assert!(links.usable(set(&[0, 1]), MS).is_empty());
        links.seen(uplink(1), true, 2 * MS);
        assert_eq!(links.usable(set(&[0, 1]), 2 * MS), set(&[1]));
        // The second one waits for its time all the same.
        links.seen(uplink(0), true, 60 * MS);
        assert_eq!(links.usable(set(&[0, 1]), 60 * MS), set(&[1]));
        assert_eq!(links.usable(set(&[0, 1]), 102 * MS), set(&[1]));
        assert_eq!(links.usable(set(&[0]), 102 * MS), set(&[0]), "a team without the other one");
        assert_eq!(links.usable(set(&[0, 1]), 160 * MS), set(&[0, 1]));
    }

    #[test]
    fn a_flapping_link_is_left_alone_until_a_minute_holds_fewer_losses() {
        let mut links = two();
        for round in 0..60 {
            links.seen(uplink(0), false, round * 500 * MS);
            links.seen(uplink(0), true, round * 500 * MS + MS);
        }
        let last = 59 * 500 * MS;
        assert_eq!(links.usable(set(&[0, 1]), last + 1000 * MS), set(&[1]));
        assert_eq!(links.usable(set(&[0, 1]), MINUTE_NS - 1), set(&[1]));
        assert_eq!(links.usable(set(&[0, 1]), MINUTE_NS), set(&[0, 1]));
        links.seen(uplink(1), false, last + 1000 * MS);
        assert_eq!(
            links.usable(set(&[0, 1]), last + 1000 * MS),
            set(&[0]),
            "a flapping one is better than none"
        );
        links.remove(uplink(0));
        assert!(links.usable(set(&[0, 1]), last + 1000 * MS).is_empty());
    }
}
