//! `taut netns`.

use std::time::{Duration, Instant};

use clap::Subcommand;
use ipnet::Ipv4Net;
use taut_api::error::ErrorKind;
use taut_api::ip::parse_ipv4_net;
use taut_api::network::NetnsSpec;
use taut_api::path;
use taut_api::route::Netns;
use taut_api::{ApiError, MacAddr, Name};

use crate::client::Client;
use crate::commands::until;
use crate::output::{self, Format, Outcome};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put a network namespace on a port group; it is made when it does not exist.
    Attach {
        /// The namespace, as `ip netns` names it.
        netns: String,
        /// The port group.
        #[arg(long)]
        portgroup: Name,
        /// Address for its interface, as 10.0.0.1/24.
        #[arg(long, value_parser = parse_ipv4_net)]
        ip: Option<Ipv4Net>,
        /// Ethernet address; derived from the name when absent.
        #[arg(long)]
        mac: Option<MacAddr>,
        /// Name of the attachment, when a namespace has several.
        #[arg(long)]
        name: Option<Name>,
        /// Name of the interface inside the namespace.
        #[arg(long, default_value = "taut0")]
        ifname: String,
    },
    /// Take an attachment back.
    Detach {
        /// Name of the attachment (the namespace's, unless another was given).
        name: Name,
    },
    /// List attachments.
    List,
}

/// How long an attachment may take before the reason that it is not there counts as the answer.
const SETTLED: Duration = Duration::from_secs(3);

pub(crate) fn run(command: Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Attach { netns, portgroup, ip, mac, name, ifname } => {
            let name = match name {
                Some(name) => name,
                None => netns.parse().map_err(|error| {
                    ApiError::new(
                        ErrorKind::Invalid,
                        format!("{error}"),
                        "give the attachment a name with --name",
                    )
                })?,
            };
            let path = path::NETNS_ATTACHMENT.of(&name);
            client.put(&path, &NetnsSpec { netns, portgroup, mac, ip, ifname })?;
            let asked = Instant::now();
            until(&format!("{name} is attached"), || {
                let attachment: Netns = client.get(&path)?;
                match attachment.status {
                    status if status.attached => Ok(Some(())),
                    status => match status.reason {
                        // At first there is always a reason: nobody has got to it yet.
                        Some(reason) if asked.elapsed() > SETTLED => Err(ApiError::new(
                            ErrorKind::Unavailable,
                            format!("{name} could not be attached: {reason}"),
                            "remove the cause; taut goes on trying until the attachment is detached",
                        )),
                        _ => Ok(None),
                    },
                }
            })
        }
        Command::Detach { name } => client.delete(&path::NETNS_ATTACHMENT.of(&name)),
        Command::List => {
            let all: Vec<Netns> = client.get(path::NETNS)?;
            output::print(format, &all, |all| {
                let rows: Vec<_> = all.iter().map(row).collect();
                output::table(["NAME", "NAMESPACE", "INTERFACE", "PORTGROUP", "IP", "ATTACHED"], &rows)
            });
            Ok(())
        }
    }
}

fn row(attachment: &Netns) -> [String; 6] {
    let Netns { name, spec, status, .. } = attachment;
    let attached = match &status.reason {
        _ if status.attached => "yes".to_owned(),
        Some(reason) => reason.clone(),
        None => "not yet".to_owned(),
    };
    [
        name.to_string(),
        spec.netns.clone(),
        spec.ifname.clone(),
        spec.portgroup.to_string(),
        spec.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        attached,
    ]
}
