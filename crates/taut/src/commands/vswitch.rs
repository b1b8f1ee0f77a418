//! `taut vswitch`.

use clap::Subcommand;
use taut_api::multicast::{MulticastFilter, MulticastGroup, MulticastState};
use taut_api::network::VSwitchSpec;
use taut_api::path;
use taut_api::route::{PortGroup, Uplink, VSwitch};
use taut_api::{Mtu, Name};

use super::mirror::{self, MirrorArgs};
use super::network_io::{self, NetworkIoArgs};
use super::teaming::{self, TeamingArgs};
use crate::client::Client;
use crate::commands::settle;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a virtual switch. It is a private network until `taut uplink add` connects it with
    /// the outside
    Create {
        /// Name of the virtual switch
        name: Name,
        /// Bytes of the longest packet, 1280 to 9190; 1500 unless given. Namespaces and interfaces
        /// follow at once, a VM when it is started again
        #[arg(long, value_name = "BYTES")]
        mtu: Option<Mtu>,
        #[command(flatten)]
        teaming: TeamingArgs,
        #[command(flatten)]
        network_io: NetworkIoArgs,
        #[command(flatten)]
        mirrors: MirrorArgs,
        /// Ports that take frames for multicast groups: basic for all, snooping for those whose
        /// guests have joined the group by IGMP or MLD
        #[arg(long, value_name = "basic|snooping", default_value_t)]
        multicast: MulticastFilter,
    },
    /// List virtual switches
    List,
    /// Show one virtual switch with its uplinks and port groups
    Show {
        /// Name of the virtual switch
        name: Name,
    },
    /// Change the MTU of a virtual switch, how its ports use its uplinks (teaming, and network I/O
    /// control), which of them get copies of the frames of others, and which take frames for
    /// multicast groups. Running ports follow at once
    Set {
        /// Name of the virtual switch
        name: Name,
        /// Bytes of the longest packet, 1280 to 9190. Namespaces and interfaces follow at once, a
        /// VM when it is started again
        #[arg(long, value_name = "BYTES")]
        mtu: Option<Mtu>,
        #[command(flatten)]
        teaming: TeamingArgs,
        #[command(flatten)]
        network_io: NetworkIoArgs,
        #[command(flatten)]
        mirrors: MirrorArgs,
        /// Ports that take frames for multicast groups: basic for all, snooping for those whose
        /// guests have joined the group by IGMP or MLD
        #[arg(long, value_name = "basic|snooping")]
        multicast: Option<MulticastFilter>,
    },
    /// Delete a virtual switch that has no port groups and no uplinks
    Delete {
        /// Name of the virtual switch
        name: Name,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Create { name, mtu, teaming, network_io, mirrors, multicast } => {
            let mut spec = VSwitchSpec { mtu: mtu.unwrap_or_default(), multicast, ..VSwitchSpec::default() };
            teaming.change(&mut spec.teaming);
            network_io.change(&mut spec.network_io);
            mirrors.change(&mut spec.mirrors);
            let created: VSwitch = client.create(&path::VSWITCH.of(&name), &spec)?;
            out.changed(&created, |VSwitch { name, .. }| {
                format!(
                    "vSwitch {name}: created, a private network; `taut portgroup create` gives it port groups"
                )
            });
        }
        Command::List => {
            let all: Vec<VSwitch> = client.get(path::VSWITCHES)?;
            output::print(out.format, &all, |all| {
                let row =
                    |s: &VSwitch| [s.name.to_string(), s.spec.mtu.to_string(), s.status.ports.to_string()];
                output::table(["NAME", "MTU", "PORTS"], &all.iter().map(row).collect::<Vec<_>>())
            });
        }
        Command::Show { name } => {
            let vswitch: VSwitch = client.get(&path::VSWITCH.of(&name))?;
            let all: Vec<PortGroup> = client.get(path::PORTGROUPS)?;
            let uplinks: Vec<Uplink> = client.get(path::UPLINKS)?;
            output::print(out.format, &vswitch, |vswitch| show(vswitch, &all, &uplinks));
        }
        Command::Set { name, mtu, teaming, network_io, mirrors, multicast } => {
            let changed: VSwitch = client.change(&path::VSWITCH.of(&name), |mut spec: VSwitchSpec| {
                spec.mtu = mtu.unwrap_or(spec.mtu);
                teaming.change(&mut spec.teaming);
                network_io.change(&mut spec.network_io);
                mirrors.change(&mut spec.mirrors);
                spec.multicast = multicast.unwrap_or(spec.multicast);
                spec
            })?;
            if mtu.is_some() {
                settle(client, changed.revision);
            }
            out.changed(&changed, |VSwitch { name, spec, .. }| {
                let (teaming, network_io) =
                    (teaming::line(&spec.teaming), network_io::line(&spec.network_io));
                let mirrors = match mirror::line(&spec.mirrors) {
                    none if none.is_empty() => none,
                    all => format!("; mirrors {all}"),
                };
                let VSwitchSpec { mtu, multicast, .. } = spec;
                format!(
                    "vSwitch {name}: MTU {mtu}; teaming {teaming}; network I/O control {network_io}{mirrors}; \
                     multicast {multicast}"
                )
            });
        }
        Command::Delete { name } => {
            client.delete(&path::VSWITCH.of(&name))?;
            out.deleted("vSwitch", &name, "deleted");
        }
    }
    Ok(())
}

fn show(vswitch: &VSwitch, portgroups: &[PortGroup], uplinks: &[Uplink]) -> String {
    let own = portgroups.iter().filter(|group| group.spec.vswitch == vswitch.name);
    let names: Vec<_> = own.map(|group| group.name.to_string()).collect();
    let own = uplinks.iter().filter(|uplink| uplink.spec.vswitch == vswitch.name);
    let uplinks: Vec<_> = own.map(|uplink| uplink.name.to_string()).collect();
    let private = || "none: a private network in memory".to_owned();
    let (is_private, network_io) = (uplinks.is_empty(), &vswitch.spec.network_io);
    output::fields(&[
        ("name", vswitch.name.to_string()),
        ("mtu", vswitch.spec.mtu.to_string()),
        ("uplinks", if uplinks.is_empty() { private() } else { uplinks.join(", ") }),
        ("teaming", if uplinks.is_empty() { String::new() } else { teaming::line(&vswitch.spec.teaming) }),
        (
            "network i/o",
            if is_private && network_io.is_default() { String::new() } else { network_io::line(network_io) },
        ),
        ("mirrors", mirror::line(&vswitch.spec.mirrors)),
        ("multicast", multicast(vswitch)),
        ("port groups", if names.is_empty() { "none".to_owned() } else { names.join(", ") }),
        ("ports", vswitch.status.ports.to_string()),
        ("revision", vswitch.revision.to_string()),
    ])
}

/// Renders the filter of multicast frames, and the groups of a vSwitch with snooping, one a line.
fn multicast(vswitch: &VSwitch) -> String {
    let filter = vswitch.spec.multicast;
    let Some(MulticastState { groups, more_groups, routers }) = &vswitch.status.multicast else {
        return filter.to_string();
    };
    let group = |group: &MulticastGroup| {
        let vlan = if group.vlan == 0 { String::new() } else { format!(" in VLAN {}", group.vlan) };
        format!("{}{vlan}: {}", group.group, group.members.join(", "))
    };
    let routers = (!routers.is_empty()).then(|| format!("routers: {}", routers.join(", ")));
    let more = (*more_groups > 0).then(|| format!("and {more_groups} more"));
    let lines = [filter.to_string()].into_iter().chain(groups.iter().map(group)).chain(more).chain(routers);
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vswitch_is_shown_with_its_own_port_groups() {
        let vswitch: VSwitch = serde_json::from_value(serde_json::json!({
            "name": "prod", "revision": 4, "spec": {}, "status": { "ports": 3 }
        }))
        .unwrap();
        let group = |name: &str, vswitch: &str| -> PortGroup {
            let spec = serde_json::json!({ "vswitch": vswitch });
            let document =
                serde_json::json!({ "name": name, "revision": 1, "spec": spec, "status": { "ports": 0 } });
            serde_json::from_value(document).unwrap()
        };
        let groups = [group("web", "prod"), group("db", "other"), group("dmz", "prod")];
        let uplink = |vswitch: &str| -> Uplink {
            let document = serde_json::json!({
                "name": "eth1", "revision": 1, "spec": { "vswitch": vswitch },
                "status": { "port": 1, "attached": true, "link": "up" }
            });
            serde_json::from_value(document).unwrap()
        };
        let connected = show(&vswitch, &groups, &[uplink("prod")]);
        assert!(connected.contains("uplinks      eth1\nteaming      port-id\nnetwork i/o  off\n"));
        insta::assert_snapshot!(
            show(&vswitch, &groups, &[uplink("other")]),
            @r"
        name         prod
        mtu          1500
        uplinks      none: a private network in memory
        multicast    basic
        port groups  web, dmz
        ports        3
        revision     4
        ");
    }
}
