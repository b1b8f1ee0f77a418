//! `taut vmci`.

mod connections;
mod stats;

use clap::Subcommand;
use taut_api::error::ErrorKind;
use taut_api::path;
use taut_api::route::Vm;
use taut_api::statistics::Period;
use taut_api::vm::VmciStatus;
use taut_api::vmci::{VmciConnection, VmciSpec};
use taut_api::word::counted;
use taut_api::{ApiError, Bytes, Name};

use crate::client::Client;
use crate::output::{self, Format, Outcome};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List all VMCI devices with their counters; `taut vm set` changes their settings
    List {
        /// List connections instead, and whether each end uses a ring or packets
        #[arg(long)]
        connections: bool,
    },
    /// Show averages of connections and bytes over a period; TX is what a guest sends
    Stats {
        /// The period before now: a number of seconds, or a number with s, m, h or d, up to 366d
        #[arg(long, default_value_t)]
        period: Period,
    },
    /// Show the VMCI device of one VM
    Show {
        /// Name of the VM
        name: Name,
    },
}

pub(crate) fn run(command: &Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::List { connections: true } => {
            let all: Vec<VmciConnection> = client.get(path::VMCI_CONNECTIONS)?;
            output::print(format, &all, |all| connections::table(all));
            Ok(())
        }
        Command::List { connections: false } => {
            let mut all: Vec<Vm> = client.get(path::VMS)?;
            all.retain(|vm| vm.status.vmci.is_some());
            output::print(format, &all, |all| table(all));
            Ok(())
        }
        Command::Stats { period } => stats::run(*period, client, format),
        Command::Show { name } => {
            let vm: Vm = client.get(&path::VM.of(name))?;
            let (Some(spec), Some(status)) = (&vm.spec.vm.vmci, &vm.status.vmci) else {
                return Err(ApiError::new(
                    ErrorKind::NotFound,
                    format!("VM `{name}` has no VMCI device"),
                    format!("add one: taut vm set {name} --vmci on"),
                ));
            };
            output::print(format, &vm, |vm| show(vm, spec, status));
            Ok(())
        }
    }
}

fn show(vm: &Vm, spec: &VmciSpec, status: &VmciStatus) -> String {
    let domains: Vec<_> = spec.domains.iter().map(ToString::to_string).collect();
    let counters = &status.counters;
    output::fields(&[
        ("vm", vm.name.to_string()),
        ("cid", status.cid.to_string()),
        ("link", output::word(&status.link)),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("domains", if domains.is_empty() { "none".to_owned() } else { domains.join(", ") }),
        ("unrestricted", if spec.unrestricted { "on" } else { "off" }.to_owned()),
        ("connections", format!("{} of at most {}", counters.connections, spec.most_connections())),
        ("attached", counted(counters.attached, "end")),
        ("half-open", format!("at most {}", spec.most_half_open())),
        ("received", format!("{} bytes, {} by rings", counters.rx_bytes, counters.ring_rx_bytes)),
        ("sent", format!("{} bytes, {} by rings", counters.tx_bytes, counters.ring_tx_bytes)),
        ("refused, forged", format!("{}, {}", counters.refused, counters.forged)),
        ("host socket", status.socket.clone()),
        ("group", spec.group.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("group's socket", status.group_socket.clone().unwrap_or_default()),
        ("queue pairs", queue_pairs(vm, spec, status)),
    ])
}

/// Renders the size of the memory for queue pairs; empty without any.
fn queue_pairs(vm: &Vm, spec: &VmciSpec, status: &VmciStatus) -> String {
    let shown = |size: Bytes| if size.0 == 0 { "none".to_owned() } else { size.to_string() };
    let (wanted, now) = (spec.queue_pairs(), status.queue_pairs.unwrap_or_default());
    let runs = vm.status.pid.is_some();
    let room = if runs { status.queue_pairs_room.unwrap_or_default() } else { spec.queue_pairs_room() };
    if runs && now.0 == 0 && wanted.0 > 0 && wanted <= room {
        format!("none; {wanted} will be added")
    } else if runs && wanted != now {
        format!("{}; {} from the next start on", shown(now), shown(wanted))
    } else if wanted.0 > 0 {
        wanted.to_string()
    } else if room.0 > 0 {
        format!("none; {room} can be added while it runs")
    } else {
        String::new()
    }
}

/// Renders devices and their counters, followed by the sockets of groups, and by the reason for
/// each device that is down.
pub(super) fn table(vms: &[Vm]) -> String {
    let devices = vms.iter().filter_map(|vm| Some((vm, vm.spec.vm.vmci.as_ref()?, vm.status.vmci.as_ref()?)));
    let rows: Vec<_> = devices.clone().map(|(vm, spec, status)| row(vm, spec, status)).collect();
    let mut text = output::table(
        [
            "VM",
            "CID",
            "LINK",
            "DOMAINS",
            "CONNECTIONS",
            "ATTACHED",
            "RX BYTES",
            "TX BYTES",
            "REFUSED",
            "FORGED",
            "HOST SOCKET",
        ],
        &rows,
    );
    for (vm, spec, status) in devices.clone() {
        if let (Some(group), Some(socket)) = (&spec.group, &status.group_socket) {
            text += &format!("{}: members of group {group} use {socket}\n", vm.name);
        }
    }
    for (vm, _, status) in devices.filter(|(vm, ..)| vm.status.pid.is_some()) {
        if let Some(reason) = &status.reason {
            text += &format!("{}: {reason}\n", vm.name);
        }
    }
    text
}

fn row(vm: &Vm, spec: &VmciSpec, status: &VmciStatus) -> [String; 11] {
    let counters = &status.counters;
    let mut domains: Vec<_> = spec.domains.iter().map(ToString::to_string).collect();
    if spec.unrestricted {
        domains.push("(unrestricted)".to_owned());
    }
    [
        vm.name.to_string(),
        status.cid.to_string(),
        output::word(&status.link),
        domains.join(","),
        counters.connections.to_string(),
        counters.attached.to_string(),
        counters.rx_bytes.to_string(),
        counters.tx_bytes.to_string(),
        counters.refused.to_string(),
        counters.forged.to_string(),
        status.socket.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::counters::VmciCounters;
    use taut_api::link::Link;
    use taut_api::vm::{VmDesired, VmStatus};
    use taut_api::vmci::Cid;

    use super::*;

    fn vm(name: &str, vmci: &serde_json::Value, status: Option<VmciStatus>) -> Vm {
        let spec: VmDesired = serde_json::from_value(serde_json::json!({ "vmci": vmci })).unwrap();
        let status = VmStatus { vmci: status, pid: Some(9), ..VmStatus::default() };
        Vm { name: name.parse().unwrap(), revision: 1, spec, status }
    }

    #[test]
    fn devices_are_listed_with_counters_and_reasons() {
        let status = |cid, link, reason: Option<&str>, counters| VmciStatus {
            cid: Cid(cid),
            port: 1,
            link,
            reason: reason.map(str::to_owned),
            socket: format!("/run/taut/vms/{cid}/vmci.sock"),
            group_socket: (cid == 3).then(|| "/run/taut/vmci/db1/vmci.sock".to_owned()),
            queue_pairs: (cid == 3).then_some(Bytes::mib(16)),
            queue_pairs_room: None,
            counters,
        };
        let counters = VmciCounters {
            connections: 2,
            attached: 1,
            rx_bytes: 70,
            ring_rx_bytes: 50,
            forged: 1,
            ..VmciCounters::default()
        };
        let vms = [
            vm(
                "db1",
                &serde_json::json!({ "domains": ["a", "b"], "group": "web", "queue_pairs": "16MiB" }),
                Some(status(3, Link::Up, None, counters)),
            ),
            vm("plain", &serde_json::Value::Null, None),
            vm(
                "web1",
                &serde_json::json!({ "unrestricted": true }),
                Some(status(4, Link::Down, Some("no front end has connected"), VmciCounters::default())),
            ),
        ];
        insta::assert_snapshot!(table(&vms), @r"
        VM    CID  LINK  DOMAINS         CONNECTIONS  ATTACHED  RX BYTES  TX BYTES  REFUSED  FORGED  HOST SOCKET
        db1     3  up    a,b                       2         1        70         0        0       1  /run/taut/vms/3/vmci.sock
        web1    4  down  (unrestricted)            0         0         0         0        0       0  /run/taut/vms/4/vmci.sock
        db1: members of group web use /run/taut/vmci/db1/vmci.sock
        web1: no front end has connected
        ");
        let db1 = &vms[0];
        let (spec, status) = (db1.spec.vm.vmci.as_ref().unwrap(), db1.status.vmci.as_ref().unwrap());
        insta::assert_snapshot!(show(db1, spec, status), @r"
        vm               db1
        cid              3
        link             up
        domains          a, b
        unrestricted     off
        connections      2 of at most 4096
        attached         1 end
        half-open        at most 256
        received         70 bytes, 50 by rings
        sent             0 bytes, 0 by rings
        refused, forged  0, 1
        host socket      /run/taut/vms/3/vmci.sock
        group            web
        group's socket   /run/taut/vmci/db1/vmci.sock
        queue pairs      16MiB
        ");
    }

    #[test]
    fn memory_for_queue_pairs_of_a_running_vm_changes_at_the_next_start() {
        let with_room = |wanted: &str, now: Option<u64>, room: Option<u64>, runs: bool| {
            let queue_pairs = now.map(Bytes::mib);
            let status = VmciStatus {
                cid: Cid(3),
                port: 1,
                link: Link::Up,
                reason: None,
                socket: String::new(),
                group_socket: None,
                queue_pairs,
                queue_pairs_room: room.map(Bytes::mib),
                counters: VmciCounters::default(),
            };
            let spec = serde_json::json!({ "queue_pairs": wanted, "queue_pairs_room": "64MiB" });
            let mut vm = vm("a", &spec, Some(status.clone()));
            vm.status.pid = runs.then_some(9);
            queue_pairs_of(&vm, &status)
        };
        let shown = |wanted: &str, now, runs| with_room(wanted, now, None, runs);
        assert_eq!(with_room("16MiB", None, Some(64), true), "none; 16MiB will be added");
        assert_eq!(with_room("0", None, Some(64), true), "none; 64MiB can be added while it runs");
        assert_eq!(with_room("0", None, None, false), "none; 64MiB can be added while it runs");
        assert_eq!(with_room("128MiB", None, Some(64), true), "none; 128MiB from the next start on");
        assert_eq!(shown("16MiB", Some(16), true), "16MiB");
        assert_eq!(shown("0", None, true), "");
        assert_eq!(shown("16MiB", None, false), "16MiB");
        assert_eq!(shown("16MiB", None, true), "none; 16MiB from the next start on");
        assert_eq!(shown("0", Some(16), true), "16MiB; none from the next start on");
    }

    fn queue_pairs_of(vm: &Vm, status: &VmciStatus) -> String {
        queue_pairs(vm, vm.spec.vm.vmci.as_ref().unwrap(), status)
    }
}
