//! Options for the teaming of a vSwitch or a port group.

use std::str::FromStr;

use clap::Args;
use taut_api::teaming::{TeamPolicy, Teaming};
use taut_api::word::SwitchArg as _;
use taut_api::{Name, PathProbe};

/// Teaming options. Absent options keep their values; a switch without a value means on.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TeamingArgs {
    /// How a port chooses an uplink: port-id, source-mac, ip-hash, explicit for the first one that
    /// has a link, or load for port-id until an uplink is busy
    #[arg(long, value_name = "POLICY")]
    team_policy: Option<TeamPolicy>,
    /// Uplinks that are used as long as they have a link, separated by commas; all for those that
    /// are not in standby
    #[arg(long, value_name = "UPLINKS|all")]
    active: Option<Active>,
    /// Uplinks that replace active ones without a link, separated by commas; none for no standby
    #[arg(long, value_name = "UPLINKS|none")]
    standby: Option<Standby>,
    /// Use an active uplink again 100 ms after its link comes back; off: only when another one
    /// fails
    #[arg(long, on_or_off())]
    failback: Option<bool>,
    /// Tell where ports are: physical switches by RARP, and hosts by gratuitous ARP and neighbour
    /// advertisements for the IP addresses that are known
    #[arg(long, on_or_off())]
    notify_switches: Option<bool>,
    /// Do not use an uplink whose link is up but leads nowhere: beacon if there are three uplinks
    /// or more, or the IP address of a gateway that each uplink asks, with its VLAN if it has one:
    /// 10.0.0.1@20; off: links decide
    #[arg(long, value_name = "beacon|GATEWAY|off")]
    probe: Option<PathProbe>,
}

/// Teaming options of a port group.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OwnTeamingArgs {
    /// Use the teaming of the vSwitch again
    #[arg(long, conflicts_with_all = ["team_policy", "active", "standby", "failback", "notify_switches", "probe"])]
    inherit_teaming: bool,
    #[command(flatten)]
    teaming: TeamingArgs,
}

/// Active uplinks; `None` for all that are not in standby.
#[derive(Debug, Clone)]
struct Active(Option<Vec<Name>>);

/// Uplinks in standby.
#[derive(Debug, Clone)]
struct Standby(Vec<Name>);

impl FromStr for Active {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self(None)) } else { names(text).map(Some).map(Self) }
    }
}

impl FromStr for Standby {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self(Vec::new())) } else { names(text).map(Self) }
    }
}

/// Reads names that commas separate.
fn names(text: &str) -> Result<Vec<Name>, String> {
    text.split(',').map(|name| name.trim().parse().map_err(|error| format!("{error}"))).collect()
}

impl TeamingArgs {
    /// Returns whether an option is given.
    fn is_given(&self) -> bool {
        let Self { team_policy, active, standby, failback, notify_switches, probe } = self;
        team_policy.is_some()
            || active.is_some()
            || standby.is_some()
            || failback.is_some()
            || notify_switches.is_some()
            || probe.is_some()
    }

    /// Changes what is given.
    pub(crate) fn change(&self, teaming: &mut Teaming) {
        teaming.policy = self.team_policy.unwrap_or(teaming.policy);
        if let Some(Active(active)) = &self.active {
            teaming.active.clone_from(active);
        }
        if let Some(Standby(standby)) = &self.standby {
            teaming.standby.clone_from(standby);
        }
        // An uplink that is named for one list leaves the other one.
        let Teaming { active, standby, .. } = teaming;
        if let (Some(active), None) = (&*active, &self.standby) {
            standby.retain(|name| !active.contains(name));
        }
        if let (Some(active), None) = (active, &self.active) {
            active.retain(|name| !standby.contains(name));
        }
        teaming.failback = self.failback.unwrap_or(teaming.failback);
        teaming.notify_switches = self.notify_switches.unwrap_or(teaming.notify_switches);
        teaming.probe = self.probe.unwrap_or(teaming.probe);
    }
}

impl OwnTeamingArgs {
    /// Returns whether the port group gets a teaming of its own, if it has none.
    pub(crate) fn is_given(&self) -> bool {
        self.teaming.is_given()
    }

    /// Changes what is given. A teaming of its own begins as that of the vSwitch.
    pub(crate) fn change(&self, teaming: &mut Option<Teaming>, of_vswitch: &Teaming) {
        if self.inherit_teaming {
            *teaming = None;
        } else if self.is_given() {
            self.teaming.change(teaming.get_or_insert_with(|| of_vswitch.clone()));
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
    match teaming.probe {
        PathProbe::Off => {}
        PathProbe::Beacon => parts.push("probes by beacons".to_owned()),
        gateway @ PathProbe::Gateway { .. } => parts.push(format!("probes the gateway {gateway}")),
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
        line.own.change(teaming, &Teaming { failback: false, ..Teaming::default() });
    }

    #[test]
    fn each_option_can_be_taken_back() {
        let mut teaming = None;
        change(&mut teaming, "");
        assert_eq!(teaming, None);
        change(&mut teaming, "--team-policy explicit --active eth1,eth2 --standby eth3");
        change(&mut teaming, "--notify-switches off --probe 10.0.0.1@20");
        assert_eq!(
            line(teaming.as_ref().unwrap()),
            "explicit, active eth1,eth2, standby eth3, no failback, switches are not notified, probes the \
             gateway 10.0.0.1@20"
        );
        change(
            &mut teaming,
            "--active all --standby none --failback --notify-switches on --team-policy port-id \
             --probe off",
        );
        assert_eq!(teaming, Some(Teaming::default()));
        assert_eq!(line(&Teaming::default()), "port-id");
        change(&mut teaming, "--active eth1 --standby eth2,eth3");
        change(&mut teaming, "--active eth2,eth1");
        assert_eq!(line(teaming.as_ref().unwrap()), "port-id, active eth2,eth1, standby eth3");
        change(&mut teaming, "--standby eth1");
        assert_eq!(line(teaming.as_ref().unwrap()), "port-id, active eth2, standby eth1");
        change(&mut teaming, "--inherit-teaming");
        assert_eq!(teaming, None);
        for wrong in
            [&["--inherit-teaming", "--failback"][..], &["--standby", "eth1;eth2"], &["--active", ""]]
        {
            assert!(Line::try_parse_from([&["taut"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }
}
