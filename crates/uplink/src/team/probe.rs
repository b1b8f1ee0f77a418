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
#[derive(Debug, Default)]
pub struct Probes {
    uplinks: BTreeMap<Uplink, Heard>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    last: u64,
    /// Since when it is heard without a pause.
    since: u64,
    is_lost: bool,
}

impl Probes {
    /// Begins to listen on an uplink. It has a path until it is not heard.
    pub fn add(&mut self, uplink: Uplink, now: u64) {
        self.uplinks.entry(uplink).or_insert(Heard { last: now, since: now, is_lost: false });
    }

    /// Stops to listen on an uplink.
    pub fn remove(&mut self, uplink: Uplink) {
        self.uplinks.remove(&uplink);
    }

    /// Notes a beacon of another uplink of the same team, or the gateway's answer.
    pub fn heard(&mut self, uplink: Uplink, now: u64) {
        if let Some(heard) = self.uplinks.get_mut(&uplink) {
            if now.saturating_sub(heard.last) > LOST_NS {
                heard.since = now;
            }
            heard.last = now;
        }
    }

    /// Returns those of the uplinks `up` that have a path: uplinks of a team whose links are up.
    ///
    /// If nothing is heard on any of them, none is lost: then the gateway or the other uplinks are
    /// to blame, and to leave one uplink for another would not help.
    pub fn with_path(&mut self, up: Set, now: u64) -> Set {
        let is_heard = |heard: &Heard| now.saturating_sub(heard.last) <= LOST_NS;
        let own = |uplink: Uplink| up.contains(uplink);
        let known = self.uplinks.iter().filter(|(uplink, heard)| own(**uplink) && is_heard(heard));
        let heard: Set = known.map(|(uplink, _)| *uplink).collect();
        for (uplink, state) in self.uplinks.iter_mut().filter(|(uplink, _)| own(**uplink)) {
            if !heard.contains(*uplink) {
                state.is_lost |= !heard.is_empty();
            } else if now.saturating_sub(state.since) >= BACK_NS {
                state.is_lost = false;
            }
        }
        let lost = |uplink: Uplink| self.uplinks.get(&uplink).is_some_and(|state| state.is_lost);
        let left: Set = up.iter().filter(|uplink| !lost(*uplink)).collect();
        // An uplink that is heard again too early is better than one that is not heard.
        [left, heard, up].into_iter().find(|set| !set.is_empty()).unwrap_or_default()
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
        probes.remove(Uplink::new(1).unwrap());
        assert_eq!(probes.with_path(set(&[0, 1]), 10 * SECOND), set(&[0, 1]));
    }
}
