//! Uplinks that a team uses of the usable ones, and the one for a port or a frame.

use super::set::{Set, Uplink};

/// Rule by which a team chooses an uplink. ESX's names are those of its API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// By the port (`loadbalance_srcid`).
    #[default]
    PortId,
    /// By the frame's source address (`loadbalance_srcmac`).
    SourceMac,
    /// By the frame's IP addresses (`loadbalance_ip`). The physical switch has to treat the uplinks
    /// as one channel.
    IpHash,
    /// The first usable uplink (`failover_explicit`).
    Explicit,
    /// By the port, until an uplink is busy (`loadbalance_loadbased`).
    Load,
}

impl Policy {
    /// Returns ESX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PortId => "loadbalance_srcid",
            Self::SourceMac => "loadbalance_srcmac",
            Self::IpHash => "loadbalance_ip",
            Self::Explicit => "failover_explicit",
            Self::Load => "loadbalance_loadbased",
        }
    }
}

/// Uplinks of a team. An uplink in neither list is unused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Uplinks that are used as long as they are usable (`active_nics`).
    pub active: Vec<Uplink>,
    /// Uplinks that replace them, the first one first (`standby_nics`).
    pub standby: Vec<Uplink>,
}

/// A team: the uplinks of a vSwitch, or those that a port group has chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Team {
    policy: Policy,
    order: Order,
    /// An active uplink that comes back is used at once; else it waits until another one fails.
    failback: bool,
    /// Places by which keys choose. A place without an uplink leaves its keys to the others.
    places: Vec<Option<Uplink>>,
}

impl Team {
    /// Returns a team that uses no uplink until [`Team::settle`].
    /// An uplink that is listed twice counts where it is first.
    pub fn new(policy: Policy, order: Order, failback: bool) -> Self {
        let mut listed = Set::default();
        let mut once = |uplinks: Vec<Uplink>| -> Vec<Uplink> {
            uplinks.into_iter().filter(|uplink| listed.insert(*uplink)).collect()
        };
        let active = once(order.active);
        let order = Order { active, standby: once(order.standby) };
        let places = if policy == Policy::Explicit { 1 } else { order.active.len() };
        Self { policy, order, failback, places: vec![None; places] }
    }

    /// Returns how it chooses.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Chooses the uplinks to use among the usable ones. Each active uplink has a place of its own,
    /// so the keys of the others stay where they are while one is replaced.
    pub fn settle(&mut self, usable: Set) {
        let all = self.order.active.iter().chain(&self.order.standby).copied();
        let mut free: Vec<Uplink> = all.filter(|uplink| usable.contains(*uplink)).collect();
        let former = self.places.clone();
        self.places.fill(None);
        let own: Vec<Option<Uplink>> = match self.policy {
            _ if !self.failback => Vec::new(),
            Policy::Explicit => vec![free.first().copied()],
            _ => self.order.active.iter().copied().map(Some).collect(),
        };
        for wishes in [own, former] {
            for (place, wish) in self.places.iter_mut().zip(wishes) {
                if place.is_none()
                    && let Some(at) = free.iter().position(|uplink| Some(*uplink) == wish)
                {
                    *place = Some(free.remove(at));
                }
            }
        }
        let mut free = free.into_iter();
        self.places.iter_mut().filter(|place| place.is_none()).for_each(|place| *place = free.next());
    }

    /// Returns the uplinks that it uses.
    pub fn used(&self) -> Set {
        self.places.iter().flatten().copied().collect()
    }

    /// Returns the active and standby uplinks.
    pub fn listed(&self) -> Set {
        self.order.active.iter().chain(&self.order.standby).copied().collect()
    }

    /// Returns the uplink for a key: a port's number, or what its policy takes from a frame.
    pub fn uplink(&self, key: u32) -> Option<Uplink> {
        let places = u32::try_from(self.places.len()).ok().filter(|places| *places > 0)?;
        let own = self.places[(key % places) as usize];
        // Keys of a place without an uplink are spread over the others, each to the uplink for
        // which its mark is highest. So a key does not move when any other uplink comes or goes.
        own.or_else(|| self.places.iter().flatten().copied().max_by_key(|uplink| mark(key, *uplink)))
    }
}

/// Returns a number that differs for each pair of a key and an uplink (SplitMix64's finaliser).
fn mark(key: u32, uplink: Uplink) -> u64 {
    let mut mixed = (u64::from(key) << 8 | u64::from(uplink.number())).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uplinks(numbers: &[u8]) -> Vec<Uplink> {
        numbers.iter().map(|number| Uplink::new(*number).unwrap()).collect()
    }

    fn set(numbers: &[u8]) -> Set {
        uplinks(numbers).into_iter().collect()
    }

    fn team(policy: Policy, failback: bool, active: &[u8], standby: &[u8]) -> Team {
        let order = Order { active: uplinks(active), standby: uplinks(standby) };
        let mut team = Team::new(policy, order, failback);
        team.settle(set(&[0, 1, 2, 3, 4]));
        team
    }

    /// Numbers of the uplinks of keys 0 to 5.
    fn of_keys(team: &Team) -> Vec<Option<u8>> {
        (0..6).map(|key| team.uplink(key).map(Uplink::number)).collect()
    }

    #[test]
    fn keys_are_dealt_to_active_uplinks() {
        let team = team(Policy::PortId, true, &[2, 0], &[1]);
        assert_eq!(of_keys(&team), [2, 0, 2, 0, 2, 0].map(Some));
        assert_eq!(team.used(), set(&[0, 2]));
    }

    #[test]
    fn a_standby_takes_the_place_of_the_lost_uplink_and_nothing_else_moves() {
        let mut team = team(Policy::PortId, true, &[0, 1, 2], &[3]);
        team.settle(set(&[0, 2, 3]));
        assert_eq!(of_keys(&team), [0, 3, 2, 0, 3, 2].map(Some));
        team.settle(set(&[0, 3]));
        let is_first = |key: &u32| team.uplink(3 * key + 2) == Uplink::new(0);
        let of_first = (0..300).filter(is_first).count();
        assert!((120..=180).contains(&of_first), "{of_first} of 300 keys without a place of their own");
        team.settle(set(&[0, 1, 2, 3]));
        assert_eq!(of_keys(&team), [0, 1, 2, 0, 1, 2].map(Some));
        team.settle(Set::default());
        assert_eq!(of_keys(&team), [None; 6]);
    }

    #[test]
    fn without_failback_an_uplink_waits_until_another_one_is_lost() {
        let mut team = team(Policy::PortId, false, &[0, 1], &[2]);
        team.settle(set(&[1, 2]));
        assert_eq!(of_keys(&team), [2, 1, 2, 1, 2, 1].map(Some));
        team.settle(set(&[0, 1, 2]));
        assert_eq!(of_keys(&team), [2, 1, 2, 1, 2, 1].map(Some), "it stays out");
        team.settle(set(&[0, 2]));
        assert_eq!(of_keys(&team), [2, 0, 2, 0, 2, 0].map(Some));
    }

    #[test]
    fn explicit_order_uses_the_first_usable_uplink() {
        let mut team = team(Policy::Explicit, true, &[1, 0], &[2]);
        assert_eq!(of_keys(&team), [Some(1); 6]);
        team.settle(set(&[0, 2]));
        assert_eq!(of_keys(&team), [Some(0); 6]);
        team.settle(set(&[2]));
        assert_eq!(of_keys(&team), [Some(2); 6]);
        team.settle(set(&[0, 1, 2]));
        assert_eq!(of_keys(&team), [Some(1); 6]);
    }

    #[test]
    fn explicit_order_without_failback_stays() {
        let mut team = team(Policy::Explicit, false, &[1, 0], &[]);
        team.settle(set(&[0]));
        team.settle(set(&[0, 1]));
        assert_eq!(of_keys(&team), [Some(0); 6]);
    }

    #[test]
    fn an_uplink_that_is_listed_twice_has_one_place() {
        let mut team = team(Policy::PortId, true, &[0, 1, 0], &[1, 2]);
        assert_eq!(of_keys(&team), [0, 1, 0, 1, 0, 1].map(Some));
        team.settle(set(&[0, 2]));
        assert_eq!(of_keys(&team), [0, 2, 0, 2, 0, 2].map(Some));
    }

    #[test]
    fn a_team_without_uplinks_uses_none() {
        assert_eq!(of_keys(&team(Policy::PortId, true, &[], &[1])), [None; 6]);
        assert_eq!(of_keys(&team(Policy::Explicit, true, &[], &[1])), [Some(1); 6]);
    }

    proptest! {
        /// Whatever comes and goes: only usable uplinks are used, no more than there are places,
        /// as many as possible, each in one place; an unused uplink never is; and a key changes its
        /// uplink only if the former one is left, or to one that was not used before.
        #[test]
        fn a_team_uses_as_many_uplinks_as_it_may(
            active in 1..5_usize,
            standby in 0..3_usize,
            explicit: bool,
            failback: bool,
            steps in prop::collection::vec(0..256_u32, 1..40),
        ) {
            let numbers: Vec<u8> = (0..8).collect();
            let order = Order {
                active: uplinks(&numbers[..active]),
                standby: uplinks(&numbers[active..active + standby]),
            };
            let policy = if explicit { Policy::Explicit } else { Policy::Load };
            let places = if explicit { 1 } else { active };
            let mut team = Team::new(policy, order, failback);
            for step in steps {
                let usable: Set =
                    uplinks(&numbers).into_iter().filter(|uplink| step >> uplink.number() & 1 == 1).collect();
                let before: Vec<_> = (0..24).map(|key| team.uplink(key)).collect();
                let used_before = team.used();
                team.settle(usable);
                let used = team.used();
                let listed = usable.iter().filter(|uplink| team.listed().contains(*uplink));
                prop_assert_eq!(used.len(), listed.count().min(places));
                prop_assert_eq!(team.places.iter().flatten().count(), used.len(), "one place each");
                for uplink in used.iter() {
                    prop_assert!(usable.contains(uplink) && team.listed().contains(uplink));
                }
                if failback && !explicit {
                    for (place, own) in team.places.iter().zip(uplinks(&numbers)) {
                        prop_assert!(!usable.contains(own) || *place == Some(own), "its own place");
                    }
                }
                for (key, before) in before.into_iter().enumerate() {
                    let after = team.uplink(key as u32);
                    let was_left = before.is_none_or(|before| !used.contains(before));
                    let is_new = after.is_some_and(|after| !used_before.contains(after));
                    // A replacement makes room for the uplink whose place it has, and takes
                    // another.
                    let makes_room = failback && used_before != used;
                    let moves = after != before;
                    prop_assert!(!moves || was_left || is_new || makes_room, "{before:?} {after:?}");
                }
            }
        }

        /// Of a team without standby uplinks, only keys of an uplink that comes or goes move.
        #[test]
        fn other_keys_stay(active in 1..9_u8, first in 0..512_u32, second in 0..512_u32) {
            let numbers: Vec<u8> = (0..active).collect();
            let usable = |step: u32| -> Set {
                uplinks(&numbers).into_iter().filter(|uplink| step >> uplink.number() & 1 == 1).collect()
            };
            let order = Order { active: uplinks(&numbers), standby: Vec::new() };
            let mut team = Team::new(Policy::PortId, order, true);
            team.settle(usable(first));
            let (before, used_before) = ((0..64).map(|key| team.uplink(key)).collect::<Vec<_>>(), team.used());
            team.settle(usable(second));
            for (key, before) in before.into_iter().enumerate() {
                let after = team.uplink(key as u32);
                let has_gone = before.is_some_and(|before| !team.used().contains(before));
                let has_come = after.is_some_and(|after| !used_before.contains(after));
                prop_assert!(before == after || has_gone || has_come, "{before:?} {after:?}");
            }
        }
    }
}
