//! `taut netdev`.

use clap::Subcommand;
use taut_api::link::Link;
use taut_api::netdev::NetdevSpec;
use taut_api::route::{DaemonInfo, Netdev};
use taut_api::{ApiError, MacAddr, Name, path};

use crate::client::Client;
use crate::commands::{Attachment, settle, until_attached, uplink};
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put an interface of this host on a port group, such as the TAP device of a running VM of
    /// libvirt. If the interface is in a bridge, it stays there, but frames pass to and from the
    /// port group only
    Attach {
        /// Network interface, as `ip link` lists it
        #[arg(value_name = "INTERFACE")]
        name: Name,
        /// Port group
        #[arg(long)]
        portgroup: Name,
        /// Ethernet address at the other end, such as that of the VM's card; without it, the one
        /// that the interface's bridge has learned there
        #[arg(long)]
        mac: Option<MacAddr>,
    },
    /// List interfaces on port groups
    List,
    /// Show one interface
    Show {
        /// Network interface
        #[arg(value_name = "INTERFACE")]
        name: Name,
    },
    /// Move an interface to another port group, or change its address
    Set {
        /// Network interface
        #[arg(value_name = "INTERFACE")]
        name: Name,
        /// Port group
        #[arg(long, required_unless_present = "mac")]
        portgroup: Option<Name>,
        /// Ethernet address at the other end
        #[arg(long)]
        mac: Option<MacAddr>,
    },
    /// Give an interface back to the host as it was
    Detach {
        /// Network interface
        #[arg(value_name = "INTERFACE")]
        name: Name,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Attach { name, portgroup, mac } => {
            client.create::<Netdev>(&path::NETDEV.of(&name), &NetdevSpec { portgroup, mac })?;
            out.changed(&attached(client, &name)?, in_force);
        }
        Command::List => {
            let all: Vec<Netdev> = client.get(path::NETDEVS)?;
            output::print(out.format, &all, |all| table(all));
        }
        Command::Show { name } => output::print(out.format, &client.get(&path::NETDEV.of(&name))?, show),
        Command::Set { name, portgroup, mac } => {
            let path = path::NETDEV.of(&name);
            let changed: Netdev = client.change(&path, |spec: NetdevSpec| NetdevSpec {
                portgroup: portgroup.clone().unwrap_or(spec.portgroup),
                mac: mac.or(spec.mac),
            })?;
            settle(client, changed.revision);
            out.changed(&attached(client, &name)?, in_force);
        }
        Command::Detach { name } => {
            client.delete(&path::NETDEV.of(&name))?;
            let daemon: DaemonInfo = client.get(path::DAEMON)?;
            settle(client, daemon.revision);
            out.deleted("interface", &name, "detached; it is the host's again");
        }
    }
    Ok(())
}

/// Waits until the interface is attached, and returns it.
fn attached(client: &Client, name: &Name) -> Result<Netdev, ApiError> {
    let hint = format!("remove the cause, and taut tries again; or give up: taut netdev detach {name}");
    until_attached(name, &hint, || {
        let document: Netdev = client.get(&path::NETDEV.of(name))?;
        let (is_attached, reason) = (document.status.attached, document.status.reason.clone());
        Ok(Attachment { document, is_attached, reason })
    })
}

/// Renders the interface in one line.
fn in_force(netdev: &Netdev) -> String {
    let Netdev { name, spec, status, .. } = netdev;
    let mac = spec.mac.map(|mac| mac.to_string()).unwrap_or_default();
    let link = match (&status.reason, status.link) {
        (Some(reason), Link::Down | Link::Broken) => format!("link down: {reason}"),
        _ => "link up".to_owned(),
    };
    format!("interface {name}: on port group {}, address {mac}, {link}", spec.portgroup)
}

fn table(netdevs: &[Netdev]) -> String {
    let row = |netdev: &Netdev| {
        let Netdev { name, spec, status, .. } = netdev;
        [
            name.to_string(),
            spec.portgroup.to_string(),
            if status.attached { "yes" } else { "no" }.to_owned(),
            output::word(&status.link),
            spec.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = netdevs.iter().map(row).collect();
    let mut text = output::table(["INTERFACE", "PORT GROUP", "ATTACHED", "LINK", "MAC"], &rows);
    for netdev in netdevs {
        if let Some(reason) = &netdev.status.reason {
            text += &format!("{}: {reason}\n", netdev.name);
        }
    }
    text
}

fn show(netdev: &Netdev) -> String {
    let Netdev { name, revision, spec, status } = netdev;
    output::fields(&[
        ("interface", name.to_string()),
        ("port group", spec.portgroup.to_string()),
        ("attached", if status.attached { "yes" } else { "no" }.to_owned()),
        ("link", output::word(&status.link)),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("mac", spec.mac.map(|mac| mac.to_string()).unwrap_or_default()),
        ("mtu", uplink::mtu_of(status.mtu, status.vswitch_mtu)),
        ("port", status.port.map(|port| port.to_string()).unwrap_or_default()),
        ("lost", format!("{} frames that the kernel dropped", status.lost)),
        ("revision", revision.to_string()),
    ])
}
