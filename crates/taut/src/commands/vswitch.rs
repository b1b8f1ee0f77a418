//! `taut vswitch`.

use clap::Subcommand;
use taut_api::Name;
use taut_api::network::VSwitchSpec;
use taut_api::path;
use taut_api::route::VSwitch;

use crate::client::Client;
use crate::output::{self, Format, Outcome};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a virtual switch. Without an uplink it is a private network; uplinks do not exist yet
    Create {
        /// Name of the virtual switch
        name: Name,
    },
    /// Delete a virtual switch that has no port groups
    Delete {
        /// Name of the virtual switch
        name: Name,
    },
    /// List virtual switches
    List,
}

pub(crate) fn run(command: Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Create { name } => client.put(&path::VSWITCH.of(&name), &VSwitchSpec::default()),
        Command::Delete { name } => client.delete(&path::VSWITCH.of(&name)),
        Command::List => {
            let all: Vec<VSwitch> = client.get(path::VSWITCHES)?;
            output::print(format, &all, |all| {
                let row = |s: &VSwitch| [s.name.to_string(), s.status.ports.to_string()];
                output::table(["NAME", "PORTS"], &all.iter().map(row).collect::<Vec<_>>())
            });
            Ok(())
        }
    }
}
