//! Options for the teaming of a vSwitch or a port group.

use std::convert::Infallible;
use std::str::FromStr;

use clap::Args;
use taut_api::Name;
use taut_api::teaming::{TeamPolicy, Teaming};
use taut_api::word::SwitchArg as _;

/// Teaming options. Absent options keep their values; a switch without a value means on.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TeamingArgs {
    /// How a port chooses an uplink: port-id, source-mac, ip-hash, or explicit for the first one
    /// that has a link
    #[arg(long, value_name = "POLICY")]
    team_policy: Option<TeamPolicy>,
    /// Uplinks that are used as long as they have a link, separated by commas; all for those that
    /// are not in standby
    #[arg(long, value_name = "UPLINKS|all")]
    active: Option<Uplinks>,
    /// Uplinks that replace active ones without a link, separated by commas; none for no standby
    #[arg(long, value_name = "UPLINKS|none")]
    standby: Option<Uplinks>,
    /// Use an active uplink at once when its link comes back
    #[arg(long, on_or_off())]
    failback: Option<bool>,
    /// Tell physical switches where ports are, by RARP
    #[arg(long, on_or_off())]
    notify_switches: Option<bool>,
}

/// Teaming options of a port group.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OwnTeamingArgs {
    /// Use the teaming of the vSwitch again
    #[arg(long, conflicts_with_all = ["team_policy", "active", "standby", "failback", "notify_switches"])]
    inherit_teaming: bool,
    #[command(flatten)]
    teaming: TeamingArgs,
}

/// Names of uplinks as they are written, checked when they are used.
#[derive(Debug, Clone)]
struct Uplinks(String);

impl FromStr for Uplinks {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl Uplinks {
    /// Returns the names; `None` for this word in their place.
    fn unless(&self, word: &str) -> Option<Vec<Name>> {
        let names = self.0.split(',').map(str::trim).filter(|name| !name.is_empty());
        // The daemon refuses what is no uplink; what is no name cannot be one.
        (self.0 != word).then(|| names.filter_map(|name| name.parse().ok()).collect())
    }
}

impl TeamingArgs {
    /// Returns whether an option is given.
    fn is_given(&self) -> bool {
        let Self { team_policy, active, standby, failback, notify_switches } = self;
        team_policy.is_some()
            || active.is_some()
            || standby.is_some()
            || failback.is_some()
            || notify_switches.is_some()
    }

    /// Changes what is given.
    pub(crate) fn change(&self, teaming: &mut Teaming) {
        teaming.policy = self.team_policy.unwrap_or(teaming.policy);
        if let Some(active) = &self.active {
            teaming.active = active.unless("all");
        }
        if let Some(standby) = &self.standby {
            teaming.standby = standby.unless("none").unwrap_or_default();
        }
        teaming.failback = self.failback.unwrap_or(teaming.failback);
        teaming.notify_switches = self.notify_switches.unwrap_or(teaming.notify_switches);
    }
}

impl OwnTeamingArgs {
    /// Changes what is given. A teaming of its own begins with the defaults.
    pub(crate) fn change(&self, teaming: &mut Option<Teaming>) {
        if self.inherit_teaming {
            *teaming = None;
        } else if self.teaming.is_given() {
            self.teaming.change(teaming.get_or_insert_default());
        }
    }
}

/// Renders a teaming in one line.
pub(crate) fn line(teaming: &Teaming) -> String {
    let list = |names: &[Name]| names.iter().map(Name::as_str).collect::<Vec<_>>().join(",");
    let mut parts = vec![teaming.policy.to_string()];
    parts.extend(teaming.active.as_deref().map(|active| format!("active {}", list(active))));
    if !teaming.standby.is_empty() {
        parts.push(format!("standby {}", list(&teaming.standby)));
    }
    if !teaming.failback {
        parts.push("no failback".to_owned());
    }
    if !teaming.notify_switches {
        parts.push("switches are not notified".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        own: OwnTeamingArgs,
    }

    fn change(teaming: &mut Option<Teaming>, words: &str) {
        let line = Line::try_parse_from(["taut"].into_iter().chain(words.split_whitespace())).unwrap();
        line.own.change(teaming);
    }

    #[test]
    fn each_option_can_be_taken_back() {
        let mut teaming = None;
        change(&mut teaming, "");
        assert_eq!(teaming, None);
        change(&mut teaming, "--team-policy explicit --active eth1,eth2 --standby eth3 --failback off");
        change(&mut teaming, "--notify-switches off");
        assert_eq!(
            line(teaming.as_ref().unwrap()),
            "explicit, active eth1,eth2, standby eth3, no failback, switches are not notified"
        );
        change(
            &mut teaming,
            "--active all --standby none --failback --notify-switches on --team-policy port-id",
        );
        assert_eq!(teaming, Some(Teaming::default()));
        assert_eq!(line(&Teaming::default()), "port-id");
        change(&mut teaming, "--inherit-teaming");
        assert_eq!(teaming, None);
        assert!(Line::try_parse_from(["taut", "--inherit-teaming", "--failback"]).is_err());
    }
}
