//! `taut port set`: changes the port of a front end that taut did not start.

use clap::{ArgGroup, Args};
use taut_api::Name;
use taut_api::coalescing::NicCoalescing;
use taut_api::network::{ExternalPortSpec, SocketRole};
use taut_api::route::ExternalPort;
use taut_api::word::SwitchArg as _;

/// The port and its new settings.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("setting").required(true).multiple(true)))]
pub(crate) struct Changes {
    /// Name of the port
    pub(super) name: Name,
    /// Port group to attach it to
    #[arg(long, group = "setting")]
    portgroup: Option<Name>,
    /// Listen on the socket (on), or connect to it (off); the front end is connected anew
    #[arg(long, on_or_off(), group = "setting")]
    listen: Option<bool>,
    /// Interrupt and kick moderation of the port: disabled, static[:PACKETS],
    /// rbc[:INTERRUPTS_PER_SECOND], adapt, or default for the host's setting
    #[arg(long, value_name = "SCHEME", group = "setting")]
    coalescing: Option<NicCoalescing>,
    /// Admit memory that can shrink, and event descriptors that are no eventfds, from the next
    /// connection of the front end on. Such a front end can disturb all guests of the host
    #[arg(long, on_or_off(), group = "setting")]
    trusted: Option<bool>,
}

impl Changes {
    pub(super) fn apply(&self, mut spec: ExternalPortSpec) -> ExternalPortSpec {
        if let Some(portgroup) = &self.portgroup {
            spec.portgroup = portgroup.clone();
        }
        match self.listen {
            Some(true) => spec.role = SocketRole::Listen,
            Some(false) => spec.role = SocketRole::Connect,
            None => {}
        }
        spec.coalescing = self.coalescing.unwrap_or(spec.coalescing);
        spec.trusted = self.trusted.unwrap_or(spec.trusted);
        spec
    }
}

/// Renders all settings of the port in one line.
pub(super) fn in_force(port: &ExternalPort) -> String {
    let ExternalPort { name, spec, .. } = port;
    let role = match spec.role {
        SocketRole::Connect => "connects to",
        SocketRole::Listen => "listens on",
    };
    let offloads = if spec.offloads { "on" } else { "off" };
    let trusted = if spec.trusted { ", trusted" } else { "" };
    format!(
        "port {name}: on port group {}, {role} {}, queue pairs {}, offloads {offloads}, coalescing {}{trusted}",
        spec.portgroup, spec.socket, spec.queues, spec.coalescing
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        changes: Changes,
    }

    #[test]
    fn a_change_of_a_port_can_be_taken_back() {
        let changed = |line: &str, port: &ExternalPort| {
            let line = Line::try_parse_from(format!("set {line}").split_whitespace()).unwrap();
            ExternalPort { spec: line.changes.apply(port.spec.clone()), ..port.clone() }
        };
        let port: ExternalPort = serde_json::from_value(serde_json::json!({
            "name": "gen",
            "revision": 1,
            "spec": { "portgroup": "web", "socket": "/run/gen.sock" },
            "status": { "port": null, "link": "down" }
        }))
        .unwrap();
        let on = changed("gen --listen --coalescing static:16 --portgroup db --trusted", &port);
        insta::assert_snapshot!(in_force(&on), @"port gen: on port group db, listens on /run/gen.sock, queue pairs 1, offloads off, coalescing static:16, trusted");
        let off = "gen --listen off --coalescing default --portgroup web --trusted off";
        assert_eq!(changed(off, &on).spec, port.spec);
    }
}
