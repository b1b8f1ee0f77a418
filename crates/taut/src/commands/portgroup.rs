//! `taut portgroup`.

use clap::Subcommand;
use taut_api::network::{PortGroupSpec, Security};
use taut_api::path;
use taut_api::route::PortGroup;
use taut_api::shaping::Shaping;
use taut_api::{Name, Vlan};

use super::policy::{self, PolicyArgs};
use super::shaping::{self, ShapingArgs};
use crate::client::Client;
use crate::output::{self, Format, Outcome};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a port group, or replace its settings
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
    },
    /// Delete a port group that has no ports
    Delete {
        /// Name of the port group
        name: Name,
    },
    /// List port groups
    List,
}

pub(crate) fn run(command: Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Create { name, vswitch, policy, shaping } => {
            let mut spec = PortGroupSpec {
                vswitch,
                vlan: Vlan::default(),
                security: Security::default(),
                shaping: Shaping::default(),
                mac_learning: None,
            };
            policy.change(&mut spec);
            shaping.change(&mut spec.shaping);
            client.put(&path(&name), &spec)
        }
        Command::Set { name, policy, shaping } => {
            let PortGroup { mut spec, .. } = client.get(&path(&name))?;
            policy.change(&mut spec);
            shaping.change(&mut spec.shaping);
            client.put(&path(&name), &spec)
        }
        Command::Delete { name } => client.delete(&path(&name)),
        Command::List => {
            let all: Vec<PortGroup> = client.get(path::PORTGROUPS)?;
            output::print(format, &all, |all| {
                let rows: Vec<_> = all.iter().map(row).collect();
                output::table(["NAME", "VSWITCH", "VLAN", "PORTS", "ACCEPTS", "SHAPING"], &rows)
            });
            Ok(())
        }
    }
}

fn path(name: &Name) -> String {
    path::PORTGROUP.of(name)
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
