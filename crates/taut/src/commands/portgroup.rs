//! `taut portgroup`.

use clap::Subcommand;
use taut_api::Name;
use taut_api::network::{PortGroupSpec, Security};
use taut_api::route::PortGroup;
use taut_api::shaping::Shaping;

use super::shaping::{self, ShapingArgs};
use crate::Outcome;
use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a port group, or change its policy.
    Create {
        /// Its name.
        name: Name,
        /// The virtual switch that it is on.
        #[arg(long)]
        vswitch: Name,
        /// VLAN that the switch keeps it in, 1 to 4094; 0: untagged.
        #[arg(long, default_value_t = 0, value_name = "ID")]
        vlan: u16,
        /// Let guests see frames for others.
        #[arg(long)]
        promiscuous: bool,
        /// Let guests receive for addresses other than their own.
        #[arg(long)]
        mac_changes: bool,
        /// Let guests send from addresses other than their own.
        #[arg(long)]
        forged_transmits: bool,
        #[command(flatten)]
        shaping: ShapingArgs,
    },
    /// Change what is given of a port group; the rest stays. Running ports follow at once.
    Set {
        /// Its name.
        name: Name,
        #[command(flatten)]
        shaping: ShapingArgs,
    },
    /// Remove a port group that no port is on.
    Delete {
        /// Its name.
        name: Name,
    },
    /// List port groups.
    List,
}

pub(crate) fn run(command: Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Create {
            name,
            vswitch,
            vlan,
            promiscuous,
            mac_changes,
            forged_transmits,
            shaping: args,
        } => {
            let security = Security { promiscuous, mac_changes, forged_transmits };
            let mut shaping = Shaping::default();
            args.change(&mut shaping);
            let spec = PortGroupSpec { vswitch, vlan, security, shaping };
            client.put(&path(&name), &spec)
        }
        Command::Set { name, shaping } => {
            let PortGroup { mut spec, .. } = client.get(&path(&name))?;
            shaping.change(&mut spec.shaping);
            client.put(&path(&name), &spec)
        }
        Command::Delete { name } => client.delete(&path(&name)),
        Command::List => {
            let all: Vec<PortGroup> = client.get("/v1/portgroups")?;
            output::print(format, &all, |all| {
                let rows: Vec<_> = all.iter().map(row).collect();
                output::table(["NAME", "VSWITCH", "VLAN", "PORTS", "ACCEPTS", "SHAPING"], &rows)
            });
            Ok(())
        }
    }
}

fn path(name: &Name) -> String {
    format!("/v1/portgroups/{name}")
}

fn row(group: &PortGroup) -> [String; 6] {
    let Security { promiscuous, mac_changes, forged_transmits } = group.spec.security;
    let accepts: Vec<_> =
        [(promiscuous, "promiscuous"), (mac_changes, "mac-changes"), (forged_transmits, "forged-transmits")]
            .into_iter()
            .filter_map(|(accepted, what)| accepted.then_some(what))
            .collect();
    [
        group.name.to_string(),
        group.spec.vswitch.to_string(),
        group.spec.vlan.to_string(),
        group.status.ports.to_string(),
        accepts.join(","),
        shaping::cell(&group.spec.shaping),
    ]
}
