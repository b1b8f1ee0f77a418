//! `taut portgroup`.

use clap::{Args, Subcommand};
use taut_api::network::{PortGroupSpec, Security};
use taut_api::network_io::TrafficClass;
use taut_api::path;
use taut_api::route::{PortGroup, VSwitch};
use taut_api::shaping::Shaping;
use taut_api::teaming::Teaming;
use taut_api::{ApiError, Name, Vlan};

use super::policy::{self, PolicyArgs};
use super::shaping::{self, ShapingArgs};
use super::teaming::{self, OwnTeamingArgs};
use crate::client::Client;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a port group; `taut portgroup set` changes an existing one
    Create {
        /// Name of the port group
        name: Name,
        /// Virtual switch that it belongs to
        #[arg(long)]
        vswitch: Name,
        #[command(flatten)]
        policy: PolicyArgs,
        #[command(flatten)]
        shaping: ShapingArgs,
        #[command(flatten)]
        teaming: OwnTeamingArgs,
        #[command(flatten)]
        traffic: TrafficArgs,
    },
    /// List port groups
    List,
    /// Show one port group with all its settings
    Show {
        /// Name of the port group
        name: Name,
    },
    /// Change the given settings of a port group; others keep their values. Running ports follow at
    /// once
    Set {
        /// Name of the port group
        name: Name,
        #[command(flatten)]
        policy: PolicyArgs,
        #[command(flatten)]
        shaping: ShapingArgs,
        #[command(flatten)]
        teaming: OwnTeamingArgs,
        #[command(flatten)]
        traffic: TrafficArgs,
    },
    /// Delete a port group that has no ports
    Delete {
        /// Name of the port group
        name: Name,
    },
}

/// Options for network I/O control of a port group.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrafficArgs {
    /// Class of what its ports send to uplinks, while the vSwitch has network I/O control:
    /// management, faulttolerance, nfs, iscsi, vsan, vmotion, hbr, vdp or virtualmachine, the
    /// default
    #[arg(long, value_name = "CLASS")]
    traffic_class: Option<TrafficClass>,
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Create { name, vswitch, policy, shaping, teaming, traffic } => {
            let of_vswitch =
                if teaming.is_given() { teaming_of(client, &vswitch)? } else { Teaming::default() };
            let mut spec = PortGroupSpec {
                vswitch,
                vlan: Vlan::default(),
                security: Security::default(),
                shaping: Shaping::default(),
                mac_learning: None,
                teaming: None,
                traffic_class: traffic.traffic_class.unwrap_or_default(),
            };
            policy.change(&mut spec);
            shaping.change(&mut spec.shaping);
            teaming.change(&mut spec.teaming, &of_vswitch);
            out.changed(&client.create(&path(&name), &spec)?, in_force);
        }
        Command::List => {
            let all: Vec<PortGroup> = client.get(path::PORTGROUPS)?;
            output::print(out.format, &all, |all| {
                let rows: Vec<_> = all.iter().map(row).collect();
                output::table(["NAME", "VSWITCH", "VLAN", "PORTS", "ACCEPTS", "SHAPING"], &rows)
            });
        }
        Command::Show { name } => output::print(out.format, &client.get(&path(&name))?, show),
        Command::Set { name, policy, shaping, teaming, traffic } => {
            let of_vswitch = if teaming.is_given() {
                teaming_of(client, &client.get::<PortGroup>(&path(&name))?.spec.vswitch)?
            } else {
                Teaming::default()
            };
            let changed: PortGroup = client.change(&path(&name), |mut spec: PortGroupSpec| {
                policy.change(&mut spec);
                shaping.change(&mut spec.shaping);
                teaming.change(&mut spec.teaming, &of_vswitch);
                spec.traffic_class = traffic.traffic_class.unwrap_or(spec.traffic_class);
                spec
            })?;
            out.changed(&changed, in_force);
        }
        Command::Delete { name } => {
            client.delete(&path(&name))?;
            out.deleted("port group", &name, "deleted");
        }
    }
    Ok(())
}

fn teaming_of(client: &Client, vswitch: &Name) -> Result<Teaming, ApiError> {
    client.get::<VSwitch>(&path::VSWITCH.of(vswitch)).map(|vswitch| vswitch.spec.teaming)
}

fn path(name: &Name) -> String {
    path::PORTGROUP.of(name)
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

/// Renders all settings in one line.
fn in_force(group: &PortGroup) -> String {
    let PortGroup { name, spec, .. } = group;
    let or = |text: String, nothing: &str, before: &str| match text.as_str() {
        "" => nothing.to_owned(),
        text => format!("{before} {text}"),
    };
    let teaming = spec.teaming.as_ref().map(|own| format!(", teaming {}", teaming::line(own)));
    let class = spec.traffic_class;
    let class = if class.is_default() { String::new() } else { format!(", traffic class {class}") };
    format!(
        "port group {name}: vSwitch {}, {}, security policy {}, {}{}{class}",
        spec.vswitch,
        or(vlan(spec), "no VLAN", "VLAN"),
        or(policy::cell(spec), "rejects promiscuous mode, MAC changes and forged transmits", "accepts"),
        or(shaping::cell(&spec.shaping), "not shaped", "shaped"),
        teaming.unwrap_or_default()
    )
}

/// Returns the VLAN; empty if there is none.
fn vlan(spec: &PortGroupSpec) -> String {
    if spec.vlan == Vlan::default() { String::new() } else { spec.vlan.to_string() }
}

fn show(group: &PortGroup) -> String {
    let PortGroup { name, revision, spec, status } = group;
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let learning = spec.mac_learning.map_or("off".to_owned(), |learning| {
        format!("on, {} addresses per port, forgotten after {} s", learning.limit, learning.ageing_s)
    });
    output::fields(&[
        ("name", name.to_string()),
        ("vswitch", spec.vswitch.to_string()),
        ("vlan", or_none(vlan(spec))),
        ("ports", status.ports.to_string()),
        ("promiscuous", switch(spec.security.promiscuous)),
        ("mac changes", switch(spec.security.mac_changes)),
        ("forged transmits", switch(spec.security.forged_transmits)),
        ("mac learning", learning),
        ("to switch", or_none(spec.shaping.to_switch.map_or(String::new(), |shape| shape.to_string()))),
        ("to guest", or_none(spec.shaping.to_guest.map_or(String::new(), |shape| shape.to_string()))),
        ("teaming", spec.teaming.as_ref().map_or("that of the vSwitch".to_owned(), teaming::line)),
        ("traffic class", spec.traffic_class.to_string()),
        ("own shaping", status.own_shaping.join(", ")),
        ("revision", revision.to_string()),
    ])
}

fn row(group: &PortGroup) -> [String; 6] {
    [
        group.name.to_string(),
        group.spec.vswitch.to_string(),
        group.spec.vlan.to_string(),
        group.status.ports.to_string(),
        policy::cell(&group.spec),
        shaping::cell(&group.spec.shaping),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(spec: &serde_json::Value) -> PortGroup {
        let document =
            serde_json::json!({ "name": "web", "revision": 7, "spec": spec, "status": { "ports": 2 } });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_port_group_is_shown_with_every_setting() {
        let plain = group(&serde_json::json!({ "vswitch": "prod" }));
        assert_eq!(
            in_force(&plain),
            "port group web: vSwitch prod, no VLAN, security policy rejects promiscuous mode, MAC changes \
             and forged transmits, not shaped"
        );
        let full = group(&serde_json::json!({
            "vswitch": "prod",
            "vlan": 10,
            "security": { "promiscuous": true, "forged_transmits": true },
            "mac_learning": { "limit": 100 },
            "shaping": { "to_guest": { "average": "100Mbit", "peak": "200Mbit", "burst": "1MiB" } }
        }));
        let mut with_own = full.clone();
        with_own.status.own_shaping = vec!["vm/web1/nic0".to_owned(), "vm/web2/nic1".to_owned()];
        assert!(show(&with_own).contains("\nown shaping       vm/web1/nic0, vm/web2/nic1\n"));
        insta::assert_snapshot!(in_force(&full), @"port group web: vSwitch prod, VLAN 10, security policy accepts promiscuous,forged-transmits,mac-learning(100), shaped to-guest 100Mbit peak 200Mbit burst 1MiB");
        insta::assert_snapshot!(show(&full), @r"
        name              web
        vswitch           prod
        vlan              10
        ports             2
        promiscuous       on
        mac changes       off
        forged transmits  on
        mac learning      on, 100 addresses per port, forgotten after 300 s
        to switch         none
        to guest          100Mbit peak 200Mbit burst 1MiB
        teaming           that of the vSwitch
        traffic class     virtualmachine
        revision          7
        ");
    }
}
