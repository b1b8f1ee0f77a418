//! Uplinks with a path beyond their links: a cable can end at a switch that leads nowhere.
//!
//! Two ways to find out feed the same rules. *Beacons* (ESX: `check_beacon`): each uplink sends one
//! a second, and the others listen; it takes three uplinks, since of two that do not hear each
//! other nobody knows which one is dead. A *gateway probe*: each uplink asks the gateway; two
//! uplinks are enough.

use std::collections::BTreeMap;

use super::set::{Set, Uplink};

/// Time between two beacons or questions of an uplink in ns (ESX: `beacon_interval`, 1 s).
pub const INTERVAL_NS: u64 = 1_000_000_000;
/// Time in ns without anything heard after which an uplink has no path: two of its own beacons or
/// answers may be lost.
pub const LOST_NS: u64 = 2_500_000_000;
/// Time in ns for which a path that was lost must be heard again before it counts. A path that
/// comes and goes is left alone.
pub const BACK_NS: u64 = 10_000_000_000;

/// Paths of uplinks, by what was heard on them.
#[derive(Debug, Clone, Default)]
pub struct Probes {
    uplinks: BTreeMap<Uplink, Listened>,
    /// Since when at least one uplink with a link is heard.
    any_since: Option<u64>,
}

/// An uplink, and what was heard on it.
#[derive(Debug, Clone, Copy)]
struct Listened {
    /// Time at which it was heard last.
    last: u64,
    /// Since when it is heard without a pause.
    since: u64,
    /// True if the uplink was not heard for too long.
    is_lost: bool,
    /// True if its link was down, and nothing was heard since.
    is_unproven: bool,
    /// Time at which its link came up; 0 for the link that it had in the beginning.
    up_since: u64,
}

impl Listened {
    fn is_heard(&self, now: u64) -> bool {
        !self.is_unproven && now.saturating_sub(self.last) <= LOST_NS
    }
}

impl Probes {
    /// Begins to listen on an uplink. It has a path until it is not heard.
    pub fn add(&mut self, uplink: Uplink, now: u64) {
        let new = Listened { last: now, since: now, is_lost: false, is_unproven: false, up_since: 0 };
        self.uplinks.entry(uplink).or_insert(new);
    }

    /// Takes over what another team has heard that probes the same.
    pub fn add_as_in(&mut self, other: &Self, uplink: Uplink) {
        self.uplinks.extend(other.uplinks.get(&uplink).map(|listened| (uplink, *listened)));
        self.any_since = self.any_since.max(other.any_since);
    }

    /// Notes a beacon of another uplink of the vSwitch, or the gateway's answer.
    pub fn heard(&mut self, uplink: Uplink, now: u64) {
        if let Some(listened) = self.uplinks.get_mut(&uplink) {
            if !listened.is_heard(now) {
                listened.since = now;
            }
            listened.last = now;
            if std::mem::take(&mut listened.is_unproven) {
                listened.is_lost = false;
            }
        }
    }

    /// Returns those of the uplinks `up` that have a path: uplinks of a team whose links are up.
    ///
    /// While nothing is heard on any of them, none is lost: then the gateway or the other uplinks
    /// are to blame, and to leave one uplink for another would not help. An uplink whose link came
    /// up has a path as soon as it is heard: its switch may not forward yet.
    pub fn with_path(&mut self, up: Set, now: u64) -> Set {
        for (uplink, state) in &mut self.uplinks {
            if !up.contains(*uplink) {
                state.is_unproven = true;
                state.up_since = now;
            }
        }
        let own = |uplink: &Uplink| up.contains(*uplink);
        let known = self.uplinks.iter().filter(|(uplink, state)| own(uplink) && state.is_heard(now));
        let heard: Set = known.map(|(uplink, _)| *uplink).collect();
        self.any_since = if heard.is_empty() { None } else { self.any_since.or(Some(now)) };
        for (uplink, state) in self.uplinks.iter_mut().filter(|(uplink, _)| own(uplink)) {
            if heard.contains(*uplink) {
                state.is_lost &= now.saturating_sub(state.since) < BACK_NS;
            } else if let Some(any_since) = self.any_since {
                let silent_since = state.last.max(any_since).max(state.up_since);
                state.is_lost |= now.saturating_sub(silent_since) > LOST_NS;
            }
        }
        let has_path = |uplink: Uplink| {
            let state = self.uplinks.get(&uplink);
            state.is_none_or(|state| !state.is_lost && (!state.is_unproven || heard.is_empty()))
        };
        let left: Set = up.iter().filter(|uplink| has_path(*uplink)).collect();
        // An uplink that is heard again too early is better than one that is not heard.
        [left, heard, up].into_iter().find(|set| !set.is_empty()).unwrap_or_default()
    }

    /// Returns uplinks that have lost their path.
    pub fn lost(&self) -> Set {
        self.uplinks.iter().filter(|(_, state)| state.is_lost).map(|(uplink, _)| *uplink).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn set(numbers: &[u8]) -> Set {
        numbers.iter().map(|number| Uplink::new(*number).unwrap()).collect()
    }

    /// Uplinks 0 to `count` - 1 from time 0 on.
    fn probes(count: u8) -> Probes {
        let mut probes = Probes::default();
        (0..count).for_each(|number| probes.add(Uplink::new(number).unwrap(), 0));
        probes
    }

    /// Lets seconds pass in which some uplinks are heard. Returns the uplinks with a path after
    /// each.
    fn pass(probes: &mut Probes, up: Set, heard: &[u8], seconds: std::ops::Range<u64>) -> Vec<Set> {
        seconds
            .map(|second| {
                set(heard).iter().for_each(|uplink| probes.heard(uplink, second * SECOND));
                probes.with_path(up, second * SECOND + SECOND / 2)
            })
            .collect()
    }

    #[test]
    fn a_path_that_is_not_heard_is_left_within_3_s() {
        let mut probes = probes(3);
        let up = set(&[0, 1, 2]);
        assert!(pass(&mut probes, up, &[0, 1, 2], 0..10).iter().all(|with| *with == up));
        let with = pass(&mut probes, up, &[0, 1], 10..14);
        // Last heard at 9 s.
        assert_eq!(with, [up, up, set(&[0, 1]), set(&[0, 1])]);
    }

    #[test]
    fn a_path_counts_again_after_it_was_heard_for_a_while() {
        let mut probes = probes(2);
        let up = set(&[0, 1]);
        pass(&mut probes, up, &[0], 0..10);
        let with = pass(&mut probes, up, &[0, 1], 10..22);
        assert_eq!(with.iter().position(|with| *with == up), Some(10), "{with:?}");
        // The second uplink is heard every fourth second only.
        let with: Vec<Set> = (22..600)
            .flat_map(|second| {
                let heard: &[u8] = if second % 4 == 0 { &[0, 1] } else { &[0] };
                pass(&mut probes, up, heard, second..second + 1)
            })
            .collect();
        let changes = with.windows(2).filter(|two| two[0] != two[1]).count();
        assert_eq!((changes, with.last()), (1, Some(&set(&[0]))));
    }

    #[test]
    fn an_uplink_that_is_heard_is_better_than_one_that_is_not() {
        let mut probes = probes(2);
        let up = set(&[0, 1]);
        pass(&mut probes, up, &[1], 0..10);
        // The first one is heard again, and soon afterwards the second one is not.
        pass(&mut probes, up, &[0, 1], 10..12);
        let with = pass(&mut probes, up, &[0], 12..16);
        assert_eq!(with.last(), Some(&set(&[0])), "{with:?}");
    }

    #[test]
    fn a_link_that_was_down_has_a_path_as_soon_as_it_is_up() {
        let mut probes = probes(2);
        pass(&mut probes, set(&[1]), &[1], 0..10);
        let with = pass(&mut probes, set(&[0, 1]), &[0, 1], 10..12);
        assert_eq!(with, [set(&[0, 1]); 2]);
    }

    #[test]
    fn a_link_that_came_up_waits_until_it_is_heard() {
        let mut probes = probes(2);
        pass(&mut probes, set(&[1]), &[1], 0..10);
        let with = pass(&mut probes, set(&[0, 1]), &[1], 10..20);
        assert!(with.iter().all(|with| *with == set(&[1])), "{with:?}");
        assert_eq!(probes.lost(), set(&[0]));
        let with = pass(&mut probes, set(&[0, 1]), &[0, 1], 20..21);
        assert_eq!((with, probes.lost()), (vec![set(&[0, 1])], Set::default()));
        // Without any other uplink that is heard, it does not wait.
        pass(&mut probes, set(&[1]), &[], 21..30);
        assert_eq!(pass(&mut probes, set(&[0, 1]), &[], 30..31), [set(&[0, 1])]);
    }

    #[test]
    fn the_first_one_that_is_heard_after_a_silence_does_not_condemn_the_others() {
        let mut probes = probes(2);
        let up = set(&[0, 1]);
        pass(&mut probes, up, &[], 0..60);
        probes.heard(Uplink::new(0).unwrap(), 60 * SECOND);
        assert_eq!(probes.with_path(up, 60 * SECOND + 1), up);
        probes.heard(Uplink::new(1).unwrap(), 60 * SECOND + 30_000_000);
        assert!(pass(&mut probes, up, &[0, 1], 61..70).iter().all(|with| *with == up));
        // One that is never heard is lost after a while.
        pass(&mut probes, up, &[], 70..130);
        assert_eq!(pass(&mut probes, up, &[0], 130..135), [up, up, up, set(&[0]), set(&[0])]);
    }

    #[test]
    fn a_link_that_flaps_waits_until_it_is_heard_again() {
        let mut probes = probes(2);
        pass(&mut probes, set(&[0, 1]), &[0, 1], 0..10);
        assert_eq!(probes.with_path(set(&[1]), 9 * SECOND + 600_000_000), set(&[1]));
        assert_eq!(probes.with_path(set(&[0, 1]), 9 * SECOND + 700_000_000), set(&[1]));
        assert_eq!(pass(&mut probes, set(&[0, 1]), &[0, 1], 10..11), [set(&[0, 1])]);
    }

    #[test]
    fn nothing_is_left_while_nobody_is_heard() {
        let mut probes = probes(2);
        let up = set(&[0, 1]);
        assert!(pass(&mut probes, up, &[], 0..60).iter().all(|with| *with == up));
    }

    #[test]
    fn the_last_uplink_is_kept_although_it_has_no_path() {
        let mut probes = probes(2);
        pass(&mut probes, set(&[0, 1]), &[0], 0..10);
        assert_eq!(probes.with_path(set(&[1]), 10 * SECOND), set(&[1]));
        assert_eq!(probes.lost(), set(&[1]));
    }
}
