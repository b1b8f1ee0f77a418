//! `/metrics`, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use taut_api::fabric::counters::{PortCounters, WorkerCounters};
use taut_api::link::Link;
use taut_api::path;
use taut_api::route::{PortInfo, Vm, WorkerInfo};
use taut_api::tune::HostTune;
use taut_api::vm::Phase;
use taut_api::vmci::VmciCounters;

use super::body::Failure;
use super::{Shared, daemon, host, ports, vms};

/// Name, explanation and reading of each counter of a port.
type Column = (&'static str, &'static str, fn(&PortCounters) -> u64);

const COLUMNS: &[Column] = &[
    ("rx_frames", "Frames delivered to the guest", |counters| counters.rx_frames),
    ("rx_bytes", "Bytes delivered to the guest", |counters| counters.rx_bytes),
    ("tx_frames", "Frames taken from the guest", |counters| counters.tx_frames),
    ("tx_bytes", "Bytes taken from the guest", |counters| counters.tx_bytes),
    ("interrupts", "Interrupts sent to the guest", |counters| counters.interrupts),
    ("kicks", "Notifications received from the guest", |counters| counters.kicks),
    ("rx_multicast", "Broadcast and multicast frames delivered", |counters| counters.rx_multicast),
    ("rx_waits", "Times a sender waited for a full receive ring", |counters| counters.rx_waits),
    ("rx_merged_frames", "Frames made of several TCP segments (LRO)", |counters| counters.rx_merged_frames),
    ("rx_merged_segments", "TCP segments in merged frames", |counters| counters.rx_merged_segments),
];

const PHASES: [(Phase, &str); 5] = [
    (Phase::Stopped, "stopped"),
    (Phase::Starting, "starting"),
    (Phase::Running, "running"),
    (Phase::Stopping, "stopping"),
    (Phase::Failed, "failed"),
];

/// Counters of all ports, and how many VMs are in which phase.
#[utoipa::path(get, path = path::METRICS, tag = "Daemon",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(app): State<Shared>) -> Result<impl IntoResponse, Failure> {
    let vms = vms::all(&app)?;
    let mut text = render(&ports::all(&app)?, vms.iter().map(|vm| vm.status.phase));
    text += &render_vmci(&vms);
    text += &render_workers(&daemon::workers(&app)?);
    text += &render_tune(&host::tune(&app)?);
    let fabric_starts = app.board.lock().fabric_starts;
    let _ = writeln!(text, "# HELP taut_fabric_starts_total Times the fabric was started by this daemon");
    let _ =
        writeln!(text, "# TYPE taut_fabric_starts_total counter\ntaut_fabric_starts_total {fabric_starts}");
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

fn render(ports: &[PortInfo], phases: impl Iterator<Item = Phase>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (name, help, read) in COLUMNS {
        let _ = writeln!(text, "# HELP taut_port_{name}_total {help}\n# TYPE taut_port_{name}_total counter");
        for port in ports {
            let _ = writeln!(text, "taut_port_{name}_total{{{}}} {}", labels(port), read(&port.counters));
        }
    }
    let _ =
        writeln!(text, "# HELP taut_port_drops_total Frames dropped\n# TYPE taut_port_drops_total counter");
    for port in ports {
        for (direction, drops) in [("rx", &port.counters.rx_drops), ("tx", &port.counters.tx_drops)] {
            for (reason, count) in drops {
                let labels = labels(port);
                let reason = reason.as_str();
                let _ = writeln!(
                    text,
                    "taut_port_drops_total{{{labels},direction=\"{direction}\",reason=\"{reason}\"}} {count}"
                );
            }
        }
    }
    let _ = writeln!(text, "# HELP taut_port_up Is the link up\n# TYPE taut_port_up gauge");
    for port in ports {
        let _ = writeln!(text, "taut_port_up{{{}}} {}", labels(port), u8::from(port.link == Link::Up));
    }
    let mut counts = BTreeMap::new();
    for phase in phases {
        *counts.entry(PHASES.iter().position(|(known, _)| *known == phase)).or_insert(0u64) += 1;
    }
    let _ = writeln!(text, "# HELP taut_vms VMs by phase\n# TYPE taut_vms gauge");
    for (index, (_, name)) in PHASES.iter().enumerate() {
        let count = counts.get(&Some(index)).unwrap_or(&0);
        let _ = writeln!(text, "taut_vms{{phase=\"{name}\"}} {count}");
    }
    text
}

/// Name, explanation and reading of each counter of a VMCI device.
type VmciColumn = (&'static str, &'static str, fn(&VmciCounters) -> u64);

const VMCI_COLUMNS: &[VmciColumn] = &[
    ("opened", "Connections opened, from either side", |counters| counters.opened),
    ("rx_bytes", "Payload bytes delivered to the guest", |counters| counters.rx_bytes),
    ("tx_bytes", "Payload bytes taken from the guest", |counters| counters.tx_bytes),
    ("rx_packets", "Packets delivered to the guest", |counters| counters.rx_packets),
    ("tx_packets", "Packets taken from the guest", |counters| counters.tx_packets),
    ("refused", "Requests for nobody, or nobody that the guest may talk to", |counters| counters.refused),
    ("limited", "Requests refused because of a limit", |counters| counters.limited),
    ("forged", "Packets whose source was not the guest's", |counters| counters.forged),
    ("malformed", "Packets that made no sense", |counters| counters.malformed),
    ("resets", "Connections reset for a broken rule or by a restart", |counters| counters.resets),
    ("interrupts", "Interrupts sent to the guest", |counters| counters.interrupts),
    ("kicks", "Notifications received from the guest", |counters| counters.kicks),
];

fn render_vmci(vms: &[Vm]) -> String {
    let devices: Vec<_> = vms
        .iter()
        .filter_map(|vm| {
            let device = vm.status.vmci.as_ref()?;
            Some((format!("vm=\"{}\",cid=\"{}\"", vm.name, device.cid), device))
        })
        .collect();
    let mut text = String::new();
    for (name, help, read) in VMCI_COLUMNS {
        let _ = writeln!(text, "# HELP taut_vmci_{name}_total {help}\n# TYPE taut_vmci_{name}_total counter");
        for (labels, device) in &devices {
            let _ = writeln!(text, "taut_vmci_{name}_total{{{labels}}} {}", read(&device.counters));
        }
    }
    let _ =
        writeln!(text, "# HELP taut_vmci_connections Open connections\n# TYPE taut_vmci_connections gauge");
    for (labels, device) in &devices {
        let _ = writeln!(text, "taut_vmci_connections{{{labels}}} {}", device.counters.connections);
    }
    let _ = writeln!(text, "# HELP taut_vmci_up Is the guest's driver there\n# TYPE taut_vmci_up gauge");
    for (labels, device) in &devices {
        let _ = writeln!(text, "taut_vmci_up{{{labels}}} {}", u8::from(device.link == Link::Up));
    }
    text
}

/// Name, explanation and reading of each counter of a worker.
type WorkerColumn = (&'static str, &'static str, fn(&WorkerCounters) -> f64);

const WORKER_COLUMNS: &[WorkerColumn] = &[
    ("sleeps", "Times the worker went to sleep", |counters| counters.sleeps as f64),
    ("sleep_seconds", "Time the worker slept", |counters| counters.sleep_ns as f64 / 1e9),
    ("busy_seconds", "Time the worker moved frames", |counters| counters.busy_ns as f64 / 1e9),
    ("bursts", "Rounds with at least one frame", |counters| counters.bursts as f64),
    ("empty_rounds", "Rounds that found nothing", |counters| counters.empty_rounds as f64),
    ("given", "Transmit queues given to another worker", |counters| counters.given as f64),
];

fn render_workers(workers: &[WorkerInfo]) -> String {
    let mut text = String::new();
    for (name, help, read) in WORKER_COLUMNS {
        let _ =
            writeln!(text, "# HELP taut_worker_{name}_total {help}\n# TYPE taut_worker_{name}_total counter");
        for WorkerInfo { worker, mode, counters, .. } in workers {
            let value = read(counters);
            let _ = writeln!(text, "taut_worker_{name}_total{{worker=\"{worker}\",mode=\"{mode}\"}} {value}");
        }
    }
    text
}

/// Dense mode; readings only when there was a test, and the utilisation only when it was known.
fn render_tune(tune: &HostTune) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "# HELP taut_tune_dense Is dense mode in force\n# TYPE taut_tune_dense gauge");
    let _ = writeln!(text, "taut_tune_dense {}", u8::from(tune.state.on));
    let test = tune.state.test.as_ref();
    let limits = test.map_or(tune.limits, |test| test.limits);
    let reading = test.map(|test| &test.reading);
    let rows = [
        ("vms", limits.vms, reading.map(|reading| reading.vms)),
        ("vcpus", limits.vcpus, reading.map(|reading| reading.vcpus)),
        ("utilisation_percent", limits.utilisation, reading.and_then(|reading| reading.utilisation)),
    ];
    let _ = writeln!(
        text,
        "# HELP taut_tune_threshold Load that makes the host dense\n# TYPE taut_tune_threshold gauge"
    );
    for (load, limit, _) in rows {
        let _ = writeln!(text, "taut_tune_threshold{{load=\"{load}\"}} {limit}");
    }
    let _ = writeln!(text, "# HELP taut_tune_reading Load at the last test\n# TYPE taut_tune_reading gauge");
    for (load, reading) in rows.iter().filter_map(|(load, _, reading)| Some((load, (*reading)?))) {
        let _ = writeln!(text, "taut_tune_reading{{load=\"{load}\"}} {reading}");
    }
    text
}

/// Names hold no character that would need an escape.
fn labels(port: &PortInfo) -> String {
    format!("port=\"{}\",owner=\"{}\",portgroup=\"{}\"", port.port, port.owner, port.portgroup)
}

#[cfg(test)]
mod tests {
    use taut_api::MacAddr;
    use taut_api::fabric::DropReason;

    use super::*;

    #[test]
    fn workers_are_rendered() {
        let counters = WorkerCounters { sleeps: 3, sleep_ns: 1_500_000_000, ..WorkerCounters::default() };
        let worker = WorkerInfo { worker: 1, cpu: Some(4), mode: "adaptive".to_owned(), counters };
        let text = render_workers(&[worker]);
        for line in [
            "taut_worker_sleeps_total{worker=\"1\",mode=\"adaptive\"} 3",
            "taut_worker_sleep_seconds_total{worker=\"1\",mode=\"adaptive\"} 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn dense_mode_is_rendered() {
        let state = serde_json::json!({ "on": true, "test": {
            "at_ms": 1, "reading": { "pcpus": 2, "vms": 3, "vcpus": 5 },
            "limits": { "vms": 2, "vcpus": 4, "utilisation": 50 },
        }});
        let tune = serde_json::json!({
            "mode": "dense", "interval_s": 60, "threshold": "1n 2n 50", "pcpus": 4, "state": state,
            "limits": { "vms": 4, "vcpus": 8, "utilisation": 50 }, "governs": [], "leaves_alone": [],
        });
        let text = render_tune(&serde_json::from_value(tune).unwrap());
        for line in [
            "taut_tune_dense 1",
            "taut_tune_threshold{load=\"vcpus\"} 4",
            "taut_tune_reading{load=\"vcpus\"} 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("taut_tune_reading{load=\"utilisation"), "{text}");
    }

    #[test]
    fn counters_drops_and_phases_are_rendered() {
        let counters =
            PortCounters { rx_frames: 7, tx_drops: vec![(DropReason::Runt, 3)], ..PortCounters::default() };
        let port = PortInfo {
            port: 4,
            owner: "vm/a/nic0".into(),
            mac: MacAddr([2; 6]),
            portgroup: "lan".parse().unwrap(),
            link: Link::Up,
            reason: None,
            coalescing: None,
            counters,
        };
        let text = render(&[port], [Phase::Running, Phase::Failed, Phase::Running].into_iter());
        let labels = "port=\"4\",owner=\"vm/a/nic0\",portgroup=\"lan\"";
        for line in [
            format!("taut_port_rx_frames_total{{{labels}}} 7"),
            format!(
                "taut_port_drops_total{{{labels},direction=\"tx\",reason=\"frame shorter than an Ethernet header\"}} 3"
            ),
            format!("taut_port_up{{{labels}}} 1"),
            "taut_vms{phase=\"running\"} 2".to_owned(),
            "taut_vms{phase=\"stopped\"} 0".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
