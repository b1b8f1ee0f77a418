//! Uplinks at which a port receives.

use super::order::{Policy, Team};
use super::set::Uplink;

/// Time in ns for which a port still receives at its former uplink after switches were told its new
/// place: frames are under way.
pub const FORMER_NS: u64 = 1_000_000_000;

/// Uplinks at which an address of a port receives. A switch outside that floods a frame sends it to
/// all uplinks of the host. The port takes it from one of them, so there are no duplicates (ESX:
/// `Net.ReversePathFwdCheck`).
///
/// Under [`Policy::SourceMac`] each address of a port has a path of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Path {
    current: Option<Uplink>,
    former: Option<Former>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Former {
    uplink: Uplink,
    /// End of the time in which it receives, once switches were told.
    until: Option<u64>,
}

impl Path {
    /// Notes the uplink at which the port sends from now on. Returns whether it is another one than
    /// before, so that switches have to be told.
    pub fn use_uplink(&mut self, uplink: Option<Uplink>) -> bool {
        let changes = uplink != self.current;
        if changes {
            let former = self.current.map(|uplink| Former { uplink, until: None });
            *self = Self { current: uplink, former: former.or(self.former) };
        }
        changes && uplink.is_some()
    }

    /// Notes that switches have learnt the place of the port: it was announced, or it has sent a
    /// frame.
    pub fn told(&mut self, now: u64) {
        if let Some(former) = &mut self.former {
            former.until.get_or_insert(now.saturating_add(FORMER_NS));
        }
    }

    /// Forgets the former uplink if its time is over. Returns whether it did.
    pub fn expire(&mut self, now: u64) -> bool {
        self.former.take_if(|former| former.until.is_some_and(|until| until <= now)).is_some()
    }

    /// Returns the uplink at which the port sends.
    pub fn uplink(&self) -> Option<Uplink> {
        self.current
    }

    /// Returns whether the port takes a frame from an uplink. At its former uplink, which it has
    /// until [`Self::expire`] forgets that, it takes only frames to its own address; a switch
    /// floods group frames to the current one, too. A frame to its own address that a switch floods
    /// just then may come twice.
    ///
    /// A team that chooses by IP addresses is one channel to the switch, which sends each frame to
    /// one of its members, whichever it likes, as soon as that has a link.
    pub fn takes(&self, team: &Team, arrived: Uplink, is_to_own_address: bool) -> bool {
        if team.policy() == Policy::IpHash {
            return team.used().contains(arrived);
        }
        let is_former = |former: Former| former.uplink == arrived;
        self.current == Some(arrived) || is_to_own_address && self.former.is_some_and(is_former)
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::Order;
    use super::*;

    fn uplink(number: u8) -> Uplink {
        Uplink::new(number).unwrap()
    }

    fn team(policy: Policy) -> Team {
        let order = Order { active: vec![uplink(0), uplink(1)], standby: vec![uplink(2)] };
        let mut team = Team::new(policy, order, true);
        team.settle((0..3).map(uplink).collect());
        team
    }

    #[test]
    fn a_flooded_frame_is_taken_once() {
        for policy in [Policy::PortId, Policy::SourceMac, Policy::Explicit, Policy::Load] {
            let team = team(policy);
            for key in 0..10 {
                let mut path = Path::default();
                path.use_uplink(team.uplink(key));
                let taken = (0..4).filter(|number| path.takes(&team, uplink(*number), false)).count();
                assert_eq!(taken, 1, "{policy:?}");
            }
        }
    }

    #[test]
    fn a_channel_is_one_path() {
        let team = team(Policy::IpHash);
        let taken = (0..4).filter(|number| Path::default().takes(&team, uplink(*number), false)).count();
        assert_eq!(taken, 2, "its members in use");
    }

    #[test]
    fn a_moved_port_still_receives_what_is_under_way() {
        let team = team(Policy::PortId);
        let mut path = Path::default();
        assert!(path.use_uplink(Some(uplink(0))));
        assert!(!path.use_uplink(Some(uplink(0))));
        assert!(path.use_uplink(Some(uplink(1))));
        assert!(path.takes(&team, uplink(1), false));
        assert!(path.takes(&team, uplink(0), true), "no switch knows its new place");
        assert!(!path.takes(&team, uplink(0), false), "the new uplink has a copy");
        path.told(10);
        path.told(20);
        assert!(!path.expire(10 + FORMER_NS - 1) && path.takes(&team, uplink(0), true));
        assert!(path.expire(10 + FORMER_NS) && !path.expire(u64::MAX));
        assert!(!path.takes(&team, uplink(0), true), "it is forgotten");
    }

    #[test]
    fn a_port_without_an_uplink_takes_nothing_new() {
        let team = team(Policy::PortId);
        let mut path = Path::default();
        path.use_uplink(Some(uplink(0)));
        assert!(!path.use_uplink(None), "there is nobody to tell");
        assert!(!path.takes(&team, uplink(0), false));
    }
}
