//! `taut netns`.

use clap::Subcommand;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use taut_api::error::ErrorKind;
use taut_api::ip::parse_ipv4_net;
use taut_api::network::NetnsSpec;
use taut_api::path;
use taut_api::route::Netns;
use taut_api::{ApiError, MacAddr, Name};

use crate::client::Client;
use crate::commands::{Attachment, until_attached};
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Attach a network namespace to a port group; the namespace is created if it does not exist.
    /// `taut netns set` changes an existing attachment
    Attach {
        /// Name of the namespace, as `ip netns` lists it
        netns: String,
        /// Port group to attach it to
        #[arg(long)]
        portgroup: Name,
        /// IPv4 address of its interface, such as 10.0.0.1/24
        #[arg(long, value_parser = parse_ipv4_net)]
        ip: Option<Ipv4Net>,
        /// Router to other networks, in the network of --ip: the default route of the namespace
        #[arg(long, value_name = "IP", requires = "ip")]
        gateway: Option<Ipv4Addr>,
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
    /// List attachments
    List,
    /// Show one attachment
    Show {
        /// Name of the attachment
        name: Name,
    },
    /// Move an attachment to another port group, at once. Its address belongs to its interface:
    /// detach it and attach it again to change that
    Set {
        /// Name of the attachment
        name: Name,
        /// Port group to move it to
        #[arg(long)]
        portgroup: Name,
    },
    /// Detach a network namespace
    Detach {
        /// Name of the attachment
        name: Name,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Attach { netns, portgroup, ip, gateway, mac, name, ifname } => {
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
            let spec = NetnsSpec { netns, portgroup, mac, ip, gateway, ifname };
            client.create::<Netns>(&path::NETNS_ATTACHMENT.of(&name), &spec)?;
            out.changed(&attached(client, &name)?, in_force);
        }
        Command::List => {
            let all: Vec<Netns> = client.get(path::NETNS)?;
            output::print(out.format, &all, |all| {
                let rows: Vec<_> = all.iter().map(row).collect();
                output::table(["NAME", "NAMESPACE", "INTERFACE", "PORTGROUP", "IP", "ATTACHED"], &rows)
            });
        }
        Command::Show { name } => {
            output::print(out.format, &client.get(&path::NETNS_ATTACHMENT.of(&name))?, show);
        }
        Command::Set { name, portgroup } => {
            let path = path::NETNS_ATTACHMENT.of(&name);
            let _: Netns = client.change(&path, |spec| NetnsSpec { portgroup: portgroup.clone(), ..spec })?;
            out.changed(&attached(client, &name)?, in_force);
        }
        Command::Detach { name } => {
            let path = path::NETNS_ATTACHMENT.of(&name);
            let Netns { spec, status, .. } = client.get(&path)?;
            client.delete(&path)?;
            let rest = match (status.made_netns, spec.netns) {
                (true, _) => "taut made the namespace, and removes it with its last attachment".to_owned(),
                (false, netns) => format!("namespace {netns} stays, because taut did not make it"),
            };
            out.deleted("namespace", &name, &format!("detached; {rest}"));
        }
    }
    Ok(())
}

/// Waits until the namespace is attached, and returns the attachment.
fn attached(client: &Client, name: &Name) -> Result<Netns, ApiError> {
    until_attached(name, "remove the cause; taut keeps trying until you detach it", || {
        let document: Netns = client.get(&path::NETNS_ATTACHMENT.of(name))?;
        let (is_attached, reason) = (document.status.attached, document.status.reason.clone());
        Ok(Attachment { document, is_attached, reason })
    })
}

/// Renders the attachment in one line.
fn in_force(attachment: &Netns) -> String {
    let Netns { name, spec, .. } = attachment;
    let ip = address(spec).unwrap_or("no address".to_owned());
    format!("namespace {name}: on port group {}, interface {} with {ip}", spec.portgroup, spec.ifname)
}

/// Renders the interface's address with its gateway.
fn address(spec: &NetnsSpec) -> Option<String> {
    let gateway = spec.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    spec.ip.map(|ip| format!("{ip}{gateway}"))
}

fn show(attachment: &Netns) -> String {
    let Netns { name, revision, spec, status } = attachment;
    let by = if status.made_netns { "taut, which removes it on detach" } else { "somebody else" };
    output::fields(&[
        ("name", name.to_string()),
        ("namespace", spec.netns.clone()),
        ("created by", by.to_owned()),
        ("portgroup", spec.portgroup.to_string()),
        ("interface", spec.ifname.clone()),
        ("mac", spec.mac.map(|mac| mac.to_string()).unwrap_or_default()),
        ("ip", address(spec).unwrap_or("none".to_owned())),
        ("attached", if status.attached { "yes" } else { "no" }.to_owned()),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("revision", revision.to_string()),
    ])
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
        address(spec).unwrap_or_default(),
        attached,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment() -> Netns {
        serde_json::from_value(serde_json::json!({
            "name": "probe",
            "revision": 3,
            "spec": { "netns": "probe", "portgroup": "web", "ip": "10.0.0.9/24", "mac": "02:00:00:00:00:09" },
            "status": { "attached": true, "made_netns": true }
        }))
        .unwrap()
    }

    #[test]
    fn first_hour_a_gateway_is_shown_behind_the_address() {
        let mut routed = attachment();
        routed.spec.gateway = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(row(&routed)[4], "10.0.0.9/24 via 10.0.0.1");
        assert!(in_force(&routed).ends_with("interface taut0 with 10.0.0.9/24 via 10.0.0.1"));
    }

    #[test]
    fn an_attachment_is_shown_with_its_origin() {
        let text = in_force(&attachment());
        assert_eq!(text, "namespace probe: on port group web, interface taut0 with 10.0.0.9/24");
        insta::assert_snapshot!(show(&attachment()), @r"
        name        probe
        namespace   probe
        created by  taut, which removes it on detach
        portgroup   web
        interface   taut0
        mac         02:00:00:00:00:09
        ip          10.0.0.9/24
        attached    yes
        revision    3
        ");
    }
}
