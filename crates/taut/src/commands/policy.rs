//! Options for VLAN, security and MAC learning of a port group.

use std::str::FromStr;

use clap::Args;
use taut_api::Vlan;
use taut_api::network::{MacLearning, PortGroupSpec, Security};
use taut_api::word::SwitchArg as _;

/// Policy options. Absent options keep their values; a switch without a value means on.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyArgs {
    /// VLAN: 0 or none, 1 to 4094 for untagged guests in that VLAN, 4095 for all VLANs tagged by
    /// the guests, or ranges such as 10-20,30 for some of them
    #[arg(long, value_name = "ID|RANGES")]
    vlan: Option<Vlan>,
    /// Let guests receive frames for other addresses
    #[arg(long, on_or_off())]
    promiscuous: Option<bool>,
    /// Let guests change the address of their card
    #[arg(long, on_or_off())]
    mac_changes: Option<bool>,
    /// Let guests send from addresses other than their own
    #[arg(long, on_or_off())]
    forged_transmits: Option<bool>,
    /// Learn the addresses behind each port, for guests that are switches; requires forged
    /// transmits
    #[arg(long, on_or_off())]
    mac_learning: Option<bool>,
    /// Maximum number of addresses learnt per port: a number, or default for 4096; turns learning
    /// on
    #[arg(long, value_name = "COUNT")]
    mac_limit: Option<Count>,
    /// Seconds of silence after which an address is forgotten: a number, or default for 300; turns
    /// learning on
    #[arg(long, value_name = "SECONDS")]
    mac_ageing: Option<Count>,
}

/// A number, or `default`.
#[derive(Debug, Clone, Copy)]
struct Count(Option<u32>);

impl FromStr for Count {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "default" => Ok(Self(None)),
            number => number.parse().map(|n| Self(Some(n))).map_err(|_| "write a number, or default"),
        }
    }
}

impl PolicyArgs {
    pub(crate) fn change(&self, spec: &mut PortGroupSpec) {
        if let Some(vlan) = &self.vlan {
            spec.vlan = vlan.clone();
        }
        let Security { promiscuous, mac_changes, forged_transmits } = &mut spec.security;
        for (given, place) in [
            (self.promiscuous, promiscuous),
            (self.mac_changes, mac_changes),
            (self.forged_transmits, forged_transmits),
        ] {
            *place = given.unwrap_or(*place);
        }
        let details = self.mac_limit.is_some() || self.mac_ageing.is_some();
        match self.mac_learning {
            Some(false) => spec.mac_learning = None,
            None if !details => {}
            Some(true) | None => {
                let learning = spec.mac_learning.get_or_insert_default();
                let MacLearning { limit, ageing_s } = MacLearning::default();
                // The daemon refuses a number that is out of range.
                let most =
                    |Count(count): Count| count.map_or(limit, |n| u16::try_from(n).unwrap_or(u16::MAX));
                learning.limit = self.mac_limit.map_or(learning.limit, most);
                let ageing = |Count(seconds): Count| seconds.unwrap_or(ageing_s);
                learning.ageing_s = self.mac_ageing.map_or(learning.ageing_s, ageing);
            }
        }
    }
}

/// Renders a port group's policy in one cell of a table.
pub(crate) fn cell(spec: &PortGroupSpec) -> String {
    let Security { promiscuous, mac_changes, forged_transmits } = spec.security;
    let learning = spec.mac_learning.map(|MacLearning { limit, .. }| format!("mac-learning({limit})"));
    [(promiscuous, "promiscuous"), (mac_changes, "mac-changes"), (forged_transmits, "forged-transmits")]
        .into_iter()
        .filter(|&(accepted, _)| accepted)
        .map(|(_, what)| what.to_owned())
        .chain(learning)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn changed(spec: &mut PortGroupSpec, line: &str) {
        let words = ["taut"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().policy.change(spec);
    }

    #[test]
    fn options_change_only_what_they_name() {
        let mut spec: PortGroupSpec = serde_json::from_str(r#"{"vswitch": "sw"}"#).unwrap();
        changed(&mut spec, "--vlan 10-20,30 --promiscuous --forged-transmits=true --mac-limit 100");
        assert_eq!(spec.vlan, "10-20,30".parse().unwrap());
        assert_eq!(cell(&spec), "promiscuous,forged-transmits,mac-learning(100)");
        changed(&mut spec, "--promiscuous off --mac-ageing 60");
        assert_eq!(spec.mac_learning, Some(MacLearning { limit: 100, ageing_s: 60 }));
        changed(&mut spec, "--mac-limit default --mac-ageing default");
        assert_eq!(spec.mac_learning, Some(MacLearning::default()));
        changed(&mut spec, "--mac-learning=off --mac-changes on");
        assert_eq!(cell(&spec), "mac-changes,forged-transmits");
        assert_eq!(spec.vlan, "10-20,30".parse().unwrap());
        changed(&mut spec, "--vlan off --mac-changes=false --forged-transmits off");
        assert_eq!((cell(&spec).as_str(), spec.vlan), ("", Vlan::default()));
    }
}
