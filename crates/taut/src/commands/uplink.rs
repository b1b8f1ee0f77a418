//! `taut uplink`.

use clap::Subcommand;
use taut_api::link::Link;
use taut_api::route::{DaemonInfo, Uplink};
use taut_api::uplink::{UplinkBackend, UplinkSpec, UplinkStatus, XdpMode};
use taut_api::{ApiError, Mtu, Name, path};

use crate::client::Client;
use crate::commands::{Attachment, settle, until_attached};
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connect a virtual switch with the outside through a network interface of this host. The
    /// interface then serves the switch alone: an interface with addresses or routes, or in a
    /// bridge or bond, is refused
    Add {
        /// Virtual switch
        vswitch: Name,
        /// Network interface, as `ip link` lists it
        #[arg(value_name = "INTERFACE")]
        name: Name,
        /// Way in which frames pass: `packet` suits TCP and any interface; `xdp` passes more short
        /// frames per second, without offloads of the interface
        #[arg(long, value_enum, default_value_t)]
        backend: UplinkBackend,
        /// With `--backend xdp`: let the interface use memory that it shares with the virtual
        /// switch. Refused if its driver cannot
        #[arg(long)]
        zero_copy: bool,
    },
    /// List uplinks
    List,
    /// Show one uplink
    Show {
        /// Network interface of the uplink
        #[arg(value_name = "INTERFACE")]
        name: Name,
    },
    /// Move an uplink to another virtual switch
    Set {
        /// Network interface of the uplink
        #[arg(value_name = "INTERFACE")]
        name: Name,
        /// Virtual switch to move it to
        #[arg(long)]
        vswitch: Name,
    },
    /// Give the interface back to the host as it was. The virtual switch is a private network then
    Remove {
        /// Network interface of the uplink
        #[arg(value_name = "INTERFACE")]
        name: Name,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Add { vswitch, name, backend, zero_copy } => {
            let spec = UplinkSpec { vswitch, backend, zero_copy };
            client.create::<Uplink>(&path::UPLINK.of(&name), &spec)?;
            out.changed(&attached(client, &name)?, in_force);
        }
        Command::List => {
            let all: Vec<Uplink> = client.get(path::UPLINKS)?;
            output::print(out.format, &all, |all| table(all));
        }
        Command::Show { name } => output::print(out.format, &client.get(&path::UPLINK.of(&name))?, show),
        Command::Set { name, vswitch } => {
            let path = path::UPLINK.of(&name);
            let changed: Uplink = client
                .change(&path, |before: UplinkSpec| UplinkSpec { vswitch: vswitch.clone(), ..before })?;
            settle(client, changed.revision);
            out.changed(&attached(client, &name)?, in_force);
        }
        Command::Remove { name } => {
            client.delete(&path::UPLINK.of(&name))?;
            let daemon: DaemonInfo = client.get(path::DAEMON)?;
            settle(client, daemon.revision);
            out.deleted("uplink", &name, "removed; the interface is the host's again");
        }
    }
    Ok(())
}

/// Waits until the uplink is attached, and returns it.
fn attached(client: &Client, name: &Name) -> Result<Uplink, ApiError> {
    let hint = format!("remove the cause, and taut tries again; or give up: taut uplink remove {name}");
    until_attached(name, &hint, || {
        let document: Uplink = client.get(&path::UPLINK.of(name))?;
        let (is_attached, reason) = (document.status.attached, document.status.reason.clone());
        Ok(Attachment { document, is_attached, reason })
    })
}

/// Renders the uplink in one line.
fn in_force(uplink: &Uplink) -> String {
    let Uplink { name, spec, status, .. } = uplink;
    let link = match (&status.reason, status.link) {
        (None, _) => "link up".to_owned(),
        (Some(reason), Link::Up) => format!("link up, but {reason}"),
        (Some(reason), _) => format!("link down: {reason}"),
    };
    format!("uplink {name}: of vSwitch {}, {link}", spec.vswitch)
}

fn table(uplinks: &[Uplink]) -> String {
    let row = |uplink: &Uplink| {
        let Uplink { name, spec, status, .. } = uplink;
        let attached = if status.attached { "yes" } else { "no" };
        [
            name.to_string(),
            spec.vswitch.to_string(),
            attached.to_owned(),
            output::word(&status.link),
            status.speed_mbit.map(|speed| format!("{speed} Mbit/s")).unwrap_or_default(),
            status.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            status.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = uplinks.iter().map(row).collect();
    let mut text = output::table(["UPLINK", "VSWITCH", "ATTACHED", "LINK", "SPEED", "MAC", "MTU"], &rows);
    for uplink in uplinks {
        if let Some(reason) = &uplink.status.reason {
            text += &format!("{}: {reason}\n", uplink.name);
        }
        if uplink.status.vswitch_mtu.is_some() {
            text +=
                &format!("{}: MTU {}\n", uplink.name, mtu_of(uplink.status.mtu, uplink.status.vswitch_mtu));
        }
    }
    text
}

fn show(uplink: &Uplink) -> String {
    let Uplink { name, revision, spec, status } = uplink;
    output::fields(&[
        ("uplink", name.to_string()),
        ("vswitch", spec.vswitch.to_string()),
        ("backend", backend(spec, status)),
        ("attached", if status.attached { "yes" } else { "no" }.to_owned()),
        ("link", output::word(&status.link)),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("mac", status.mac.map(|mac| mac.to_string()).unwrap_or_default()),
        ("speed", status.speed_mbit.map(|speed| format!("{speed} Mbit/s")).unwrap_or_default()),
        ("network i/o", network_io(status).to_owned()),
        ("mtu", mtu_of(status.mtu, status.vswitch_mtu)),
        ("port", status.port.map(|port| port.to_string()).unwrap_or_default()),
        (
            "lost",
            format!(
                "{} frames that the kernel dropped: the ring was full, or their form is not supported",
                status.lost
            ),
        ),
        ("kernel lacks", status.missing.join("; ")),
        ("revision", revision.to_string()),
    ])
}

/// Renders the MTU of an interface. `vswitch` is that of the vSwitch, if it is larger.
pub(super) fn mtu_of(own: Option<u32>, vswitch: Option<Mtu>) -> String {
    let own = own.map(|mtu| mtu.to_string()).unwrap_or_default();
    match vswitch {
        None => own,
        Some(vswitch) => format!("{own}, below the {vswitch} of the vSwitch: longer packets are dropped"),
    }
}

/// Renders the backend and its mode.
fn backend(spec: &UplinkSpec, status: &UplinkStatus) -> String {
    match (spec.backend, status.xdp) {
        (UplinkBackend::Packet, _) => "packet".to_owned(),
        (UplinkBackend::Xdp, None) => "xdp".to_owned(),
        (UplinkBackend::Xdp, Some(XdpMode { native, zero_copy, queues })) => {
            let program = if native { "native" } else { "generic" };
            let copies = if zero_copy { "zero copy" } else { "copy" };
            let queues = if queues > 1 { format!(", {queues} queues") } else { String::new() };
            format!("xdp, {program}, {copies}{queues}")
        }
    }
}

fn network_io(status: &UplinkStatus) -> &'static str {
    match status.network_io {
        None => "",
        Some(true) => "in force",
        Some(false) if !status.attached => "not in force: the uplink is not attached",
        Some(false) if status.speed_mbit.is_none() => "not in force: the interface states no speed",
        Some(false) => {
            "not in force: the running fabric is of an earlier version; hint: to replace it while traffic goes on: \
             taut daemon upgrade-fabric"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uplink(status: &serde_json::Value) -> Uplink {
        let document = serde_json::json!({
            "name": "eth1", "revision": 4, "spec": { "vswitch": "prod" }, "status": status
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn an_uplink_is_shown_with_what_keeps_it_from_working() {
        let up = uplink(&serde_json::json!({
            "port": 3, "attached": true, "link": "up", "speed_mbit": 10000, "mac": "02:00:00:00:00:09", "mtu": 1500, "lost": 2,
            "missing": ["segmentation of UDP"]
        }));
        assert_eq!(in_force(&up), "uplink eth1: of vSwitch prod, link up");
        let lost = uplink(&serde_json::json!({
            "port": 3, "attached": true, "link": "up", "reason": "nothing is heard"
        }));
        assert_eq!(in_force(&lost), "uplink eth1: of vSwitch prod, link up, but nothing is heard");
        insta::assert_snapshot!(show(&up), @r"
        uplink        eth1
        vswitch       prod
        backend       packet
        attached      yes
        link          up
        mac           02:00:00:00:00:09
        speed         10000 Mbit/s
        mtu           1500
        port          3
        lost          2 frames that the kernel dropped: the ring was full, or their form is not supported
        kernel lacks  segmentation of UDP
        revision      4
        ");
        let mut xdp = up.clone();
        xdp.spec.backend = UplinkBackend::Xdp;
        assert_eq!(backend(&xdp.spec, &xdp.status), "xdp");
        xdp.status.xdp = Some(XdpMode { native: true, zero_copy: false, queues: 1 });
        assert_eq!(backend(&xdp.spec, &xdp.status), "xdp, native, copy");
        xdp.status.xdp = Some(XdpMode { native: false, zero_copy: false, queues: 4 });
        assert_eq!(backend(&xdp.spec, &xdp.status), "xdp, generic, copy, 4 queues");
        let down = uplink(&serde_json::json!({
            "port": 3, "attached": false, "link": "down", "reason": "its interface is gone", "mtu": 1500, "vswitch_mtu": 9000
        }));
        insta::assert_snapshot!(table(&[up, down]), @r"
        UPLINK  VSWITCH  ATTACHED  LINK  SPEED         MAC                 MTU
        eth1    prod     yes       up    10000 Mbit/s  02:00:00:00:00:09  1500
        eth1    prod     no        down                                   1500
        eth1: its interface is gone
        eth1: MTU 1500, below the 9000 of the vSwitch: longer packets are dropped
        ");
    }

    #[test]
    fn network_i_o_control_that_is_not_in_force_has_a_reason() {
        let told = |status: serde_json::Value| network_io(&uplink(&status).status);
        assert_eq!(told(serde_json::json!({ "attached": true, "link": "up", "speed_mbit": 1000 })), "");
        let status = |attached: bool, speed: Option<u64>, in_force: bool| {
            told(serde_json::json!({
                "attached": attached, "link": "up", "speed_mbit": speed, "network_io": in_force
            }))
        };
        assert_eq!(status(true, Some(1000), true), "in force");
        assert!(status(false, Some(1000), false).contains("not attached"));
        assert!(status(true, None, false).contains("states no speed"));
        assert!(status(true, Some(1000), false).contains("earlier version; hint: "));
    }
}
