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
    /// Attach a network namespace to a port group; the namespace is created if it does not exist
    Attach {
        /// Name of the namespace, as `ip netns` lists it
        netns: String,
        /// Port group to attach it to
        #[arg(long)]
        portgroup: Name,
        /// IPv4 address of its interface, such as 10.0.0.1/24
        #[arg(long, value_parser = parse_ipv4_net)]
        ip: Option<Ipv4Net>,
        /// Ethernet address of its interface; derived from the name by default
        #[arg(long)]
        mac: Option<MacAddr>,
        /// Name of the attachment, if a namespace has several [default: the namespace's name]
        #[arg(long)]
        name: Option<Name>,
        /// Name of the interface inside the namespace
        #[arg(long, default_value = "taut0")]
        ifname: String,
    },
    /// Detach a network namespace
    Detach {
        /// Name of the attachment
        name: Name,
    },
    /// List attachments
    List,
}

/// Time after which a reported reason counts as the final answer.
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
                        // A new attachment always has a reason at first: the daemon has not
                        // processed it yet.
                        Some(reason) if asked.elapsed() > SETTLED => Err(ApiError::new(
                            ErrorKind::Unavailable,
                            format!("cannot attach {name}: {reason}"),
                            "remove the cause; taut keeps trying until you detach it",
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
