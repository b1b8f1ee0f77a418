//! Options for VLAN, security and MAC learning of a port group.

use clap::Args;
use taut_api::Vlan;
use taut_api::network::{MacLearning, PortGroupSpec, Security};

/// Policy options. Absent options keep their values; a switch without a value means on, `=false`
/// off.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PolicyArgs {
    /// VLAN: 0 for none, 1 to 4094 for untagged guests in that VLAN, 4095 for all VLANs tagged by
    /// the guests, or ranges such as 10-20,30 for some of them
    #[arg(long, value_name = "ID|RANGES")]
    vlan: Option<Vlan>,
    /// Let guests receive frames for other addresses
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    promiscuous: Option<bool>,
    /// Let guests change the address of their card
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    mac_changes: Option<bool>,
    /// Let guests send from addresses other than their own
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    forged_transmits: Option<bool>,
    /// Learn the addresses behind each port, for guests that are switches; requires forged
    /// transmits
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    mac_learning: Option<bool>,
    /// Maximum number of addresses learnt per port; turns learning on
    #[arg(long, value_name = "COUNT")]
    mac_limit: Option<u16>,
    /// Seconds of silence after which an address is forgotten; turns learning on
    #[arg(long, value_name = "SECONDS")]
    mac_ageing: Option<u32>,
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
                learning.limit = self.mac_limit.unwrap_or(learning.limit);
                learning.ageing_s = self.mac_ageing.unwrap_or(learning.ageing_s);
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
        changed(&mut spec, "--promiscuous=false --mac-ageing 60");
        assert_eq!(spec.mac_learning, Some(MacLearning { limit: 100, ageing_s: 60 }));
        changed(&mut spec, "--mac-learning=false --mac-changes");
        assert_eq!(cell(&spec), "mac-changes,forged-transmits");
        assert_eq!(spec.vlan, "10-20,30".parse().unwrap());
    }
}
