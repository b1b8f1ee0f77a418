//! `/metrics`, in the OpenMetrics text format that Prometheus reads.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use taut_api::fabric::counters::VmciCounters;
use taut_api::fabric::counters::{PortCounters, WorkerCounters};
use taut_api::link::Link;
use taut_api::path;
use taut_api::route::{PortInfo, Vm, WorkerInfo};
use taut_api::tune::HostTune;
use taut_api::vm::Phase;

use super::body::Failure;
use super::{Shared, daemon, host, ports, vms};

/// Name, explanation and reading of one counter. The encoder appends `_total` to the name.
type Column<C, N = u64> = (&'static str, &'static str, fn(&C) -> N);

const PORT: &[Column<PortCounters>] = &[
    ("taut_port_rx_frames", "Frames delivered to the guest", |counters| counters.rx_frames),
    ("taut_port_rx_bytes", "Bytes delivered to the guest", |counters| counters.rx_bytes),
    ("taut_port_tx_frames", "Frames taken from the guest", |counters| counters.tx_frames),
    ("taut_port_tx_bytes", "Bytes taken from the guest", |counters| counters.tx_bytes),
    ("taut_port_interrupts", "Interrupts sent to the guest", |counters| counters.interrupts),
    ("taut_port_kicks", "Notifications received from the guest", |counters| counters.kicks),
    ("taut_port_rx_multicast", "Broadcast and multicast frames delivered", |counters| counters.rx_multicast),
    ("taut_port_rx_waits", "Times a sender waited for a full receive ring", |counters| counters.rx_waits),
    ("taut_port_rx_merged_frames", "Frames merged from several TCP segments (LRO)", |counters| {
        counters.rx_merged_frames
    }),
    ("taut_port_rx_merged_segments", "TCP segments in merged frames", |counters| counters.rx_merged_segments),
    ("taut_port_wire_tx_bytes", "Bytes sent by uplinks, as they are on the wire", |counters| {
        counters.wire_tx_bytes
    }),
    ("taut_port_wire_rx_bytes", "Bytes received by uplinks, as they are on the wire", |counters| {
        counters.wire_rx_bytes
    }),
];

const VMCI: &[Column<VmciCounters>] = &[
    ("taut_vmci_opened", "Connections opened, from either side", |counters| counters.opened),
    ("taut_vmci_rx_bytes", "Payload bytes delivered to the guest", |counters| counters.rx_bytes),
    ("taut_vmci_tx_bytes", "Payload bytes taken from the guest", |counters| counters.tx_bytes),
    ("taut_vmci_ring_rx_bytes", "Payload bytes delivered to the guest by rings", |counters| {
        counters.ring_rx_bytes
    }),
    ("taut_vmci_ring_tx_bytes", "Payload bytes taken from the guest by rings", |counters| {
        counters.ring_tx_bytes
    }),
    ("taut_vmci_rx_packets", "Packets delivered to the guest", |counters| counters.rx_packets),
    ("taut_vmci_tx_packets", "Packets taken from the guest", |counters| counters.tx_packets),
    ("taut_vmci_refused", "Requests reset: no listener, or no permission", |counters| counters.refused),
    ("taut_vmci_limited", "Requests reset because of a limit", |counters| counters.limited),
    ("taut_vmci_forged", "Packets dropped for a source address of another VM", |counters| counters.forged),
    ("taut_vmci_malformed", "Malformed packets dropped", |counters| counters.malformed),
    ("taut_vmci_resets", "Connections reset by a protocol error or a restart", |counters| counters.resets),
    ("taut_vmci_stalls", "Times that the guest took nothing for a second", |counters| counters.stalls),
    ("taut_vmci_interrupts", "Interrupts sent to the guest", |counters| counters.interrupts),
    ("taut_vmci_kicks", "Notifications received from the guest", |counters| counters.kicks),
];

const WORKER: &[Column<WorkerCounters>] = &[
    ("taut_worker_sleeps", "Times the worker went to sleep", |counters| counters.sleeps),
    ("taut_worker_bursts", "Rounds with at least one frame", |counters| counters.bursts),
    ("taut_worker_empty_rounds", "Rounds without a frame", |counters| counters.empty_rounds),
    ("taut_worker_given", "Transmit queues given to another worker", |counters| counters.given),
];

const WORKER_TIMES: &[Column<WorkerCounters, f64>] = &[
    ("taut_worker_sleep_seconds", "Time the worker slept", |counters| counters.sleep_ns as f64 / 1e9),
    ("taut_worker_busy_seconds", "Time the worker moved frames", |counters| counters.busy_ns as f64 / 1e9),
];

const PHASES: [(Phase, &str); 5] = [
    (Phase::Stopped, "stopped"),
    (Phase::Starting, "starting"),
    (Phase::Running, "running"),
    (Phase::Stopping, "stopping"),
    (Phase::Failed, "failed"),
];

/// Counters of all ports, VMCI devices and workers, the number of VMs per phase, and dense mode.
#[utoipa::path(get, path = path::METRICS, tag = "Daemon",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(app): State<Shared>) -> Result<impl IntoResponse, Failure> {
    let snapshot = Snapshot {
        ports: ports::all(&app)?,
        vms: vms::all(&app)?,
        workers: daemon::workers(&app)?,
        tune: host::tune(&app)?,
        fabric_starts: app.board.lock().fabric_starts,
        forbidden: app.forbidden.load(Relaxed),
    };
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], snapshot.into_text()))
}

/// Everything that the metrics are made of, read once.
#[derive(Debug)]
struct Snapshot {
    ports: Vec<PortInfo>,
    vms: Vec<Vm>,
    workers: Vec<WorkerInfo>,
    tune: HostTune,
    fabric_starts: u32,
    forbidden: u64,
}

impl Snapshot {
    fn into_text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }

    fn encode_ports(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, read) in PORT {
            let mut metric = counter(encoder, name, help)?;
            for port in &self.ports {
                count(metric.encode_family(&labels(port))?, read(&port.counters))?;
            }
        }
        let mut drops = counter(encoder, "taut_port_drops", "Frames dropped")?;
        for port in &self.ports {
            for (direction, reasons) in [("rx", &port.counters.rx_drops), ("tx", &port.counters.tx_drops)] {
                for (reason, frames) in reasons {
                    let mut labels = labels(port);
                    labels.push(("direction", direction.to_owned()));
                    labels.push(("reason", reason.as_str().to_owned()));
                    count(drops.encode_family(&labels)?, *frames)?;
                }
            }
        }
        let mut up = gauge(encoder, "taut_port_up", "Is the link up")?;
        for port in &self.ports {
            up.encode_family(&labels(port))?.encode_gauge(&u32::from(port.link == Link::Up))?;
        }
        Ok(())
    }

    fn encode_vms(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut vms = gauge(encoder, "taut_vms", "VMs by phase")?;
        for (phase, name) in PHASES {
            let count = self.vms.iter().filter(|vm| vm.status.phase == phase).count();
            vms.encode_family(&[("phase", name)])?.encode_gauge(&count)?;
        }
        Ok(())
    }

    fn encode_vmci(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let devices = self.vms.iter().filter_map(|vm| {
            let device = vm.status.vmci.as_ref()?;
            Some(([("vm", vm.name.to_string()), ("cid", device.cid.to_string())], device))
        });
        let devices: Vec<_> = devices.collect();
        for (name, help, read) in VMCI {
            let mut metric = counter(encoder, name, help)?;
            for (labels, device) in &devices {
                count(metric.encode_family(labels)?, read(&device.counters))?;
            }
        }
        let mut open = gauge(encoder, "taut_vmci_connections", "Open connections")?;
        for (labels, device) in &devices {
            open.encode_family(labels)?.encode_gauge(&device.counters.connections)?;
        }
        let mut attached = gauge(encoder, "taut_vmci_attached", "Ends of connections that use rings")?;
        for (labels, device) in &devices {
            attached.encode_family(labels)?.encode_gauge(&device.counters.attached)?;
        }
        let mut up = gauge(encoder, "taut_vmci_up", "Does the guest's driver serve the device")?;
        for (labels, device) in &devices {
            up.encode_family(labels)?.encode_gauge(&u32::from(device.link == Link::Up))?;
        }
        Ok(())
    }

    fn encode_workers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let labels =
            |worker: &WorkerInfo| [("worker", worker.worker.to_string()), ("mode", worker.mode.clone())];
        for (name, help, read) in WORKER {
            let mut metric = counter(encoder, name, help)?;
            for worker in &self.workers {
                count(metric.encode_family(&labels(worker))?, read(&worker.counters))?;
            }
        }
        for (name, help, read) in WORKER_TIMES {
            let mut metric = counter(encoder, name, help)?;
            for worker in &self.workers {
                let seconds = read(&worker.counters);
                metric.encode_family(&labels(worker))?.encode_counter::<Labels, _, u64>(&seconds, None)?;
            }
        }
        Ok(())
    }

    /// Encodes dense mode. Readings exist after the first test; the utilisation only if it is
    /// known.
    fn encode_tune(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let tune = &self.tune;
        let dense = u32::from(tune.state.on);
        gauge(encoder, "taut_tune_dense", "Is dense mode in force")?.encode_gauge(&dense)?;
        let test = tune.state.test.as_ref();
        let limits = test.map_or(tune.limits, |test| test.limits);
        let reading = test.map(|test| &test.reading);
        let rows = [
            ("vms", limits.vms, reading.map(|reading| reading.vms)),
            ("vcpus", limits.vcpus, reading.map(|reading| reading.vcpus)),
            ("utilisation_percent", limits.utilisation, reading.and_then(|reading| reading.utilisation)),
        ];
        let mut threshold = gauge(encoder, "taut_tune_threshold", "Load that makes the host dense")?;
        for (load, limit, _) in &rows {
            threshold.encode_family(&[("load", *load)])?.encode_gauge(limit)?;
        }
        let mut readings = gauge(encoder, "taut_tune_reading", "Load at the last test")?;
        for (load, _, reading) in &rows {
            if let Some(reading) = reading {
                readings.encode_family(&[("load", *load)])?.encode_gauge(reading)?;
            }
        }
        Ok(())
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_ports(&mut encoder)?;
        self.encode_vms(&mut encoder)?;
        self.encode_vmci(&mut encoder)?;
        self.encode_workers(&mut encoder)?;
        self.encode_tune(&mut encoder)?;
        let help = "Times the fabric was started by this daemon";
        count(counter(&mut encoder, "taut_fabric_starts", help)?, u64::from(self.fabric_starts))?;
        let help = "Requests refused because their caller lacks the role";
        count(counter(&mut encoder, "taut_api_forbidden", help)?, self.forbidden)
    }
}

type Labels = Vec<(&'static str, String)>;

fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

fn count(mut metric: MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<Labels, _, u64>(&value, None)
}

fn labels(port: &PortInfo) -> Labels {
    vec![
        ("port", port.port.to_string()),
        ("owner", port.owner.clone()),
        ("portgroup", port.portgroup.as_ref().map(ToString::to_string).unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use taut_api::fabric::DropReason;
    use taut_api::shaping::PortShaping;
    use taut_api::vm::{VmDesired, VmStatus};
    use taut_api::{GuestMac, MacAddr};

    use super::*;

    fn tune() -> HostTune {
        let state = serde_json::json!({ "on": true, "test": {
            "at_ms": 1, "reading": { "pcpus": 2, "vms": 3, "vcpus": 5 },
            "limits": { "vms": 2, "vcpus": 4, "utilisation": 50 },
        }});
        let tune = serde_json::json!({
            "mode": "dense", "interval_s": 60, "threshold": "1n 2n 50", "pcpus": 4, "state": state,
            "limits": { "vms": 4, "vcpus": 8, "utilisation": 50 }, "governs": [], "leaves_alone": [],
        });
        serde_json::from_value(tune).unwrap()
    }

    fn vm(name: &str, phase: &str) -> Vm {
        let spec: VmDesired = serde_json::from_str(r#"{"power": "off"}"#).unwrap();
        let vmci = serde_json::json!({ "cid": 7, "port": 1, "link": "up", "socket": "" });
        let status = serde_json::json!({ "phase": phase, "vmci": vmci });
        let status: VmStatus = serde_json::from_value(status).unwrap();
        Vm { name: name.parse().unwrap(), revision: 1, spec, status }
    }

    fn text() -> String {
        let counters =
            PortCounters { rx_frames: 7, tx_drops: vec![(DropReason::Runt, 3)], ..PortCounters::default() };
        let port = PortInfo {
            port: 4,
            owner: "vm/a/nic0".into(),
            mac: Some(MacAddr([2; 6])),
            guest_mac: GuestMac::default(),
            vswitch: "prod".parse().unwrap(),
            portgroup: Some("lan".parse().unwrap()),
            link: Link::Up,
            reason: None,
            coalescing: None,
            shaping: PortShaping::default(),
            trusted: false,
            counters,
        };
        let counters = WorkerCounters { sleeps: 3, sleep_ns: 1_500_000_000, ..WorkerCounters::default() };
        let worker = WorkerInfo { worker: 1, cpu: Some(4), mode: "adaptive".to_owned(), counters };
        let snapshot = Snapshot {
            ports: vec![port],
            vms: vec![vm("a", "running"), vm("b", "failed"), vm("c", "running")],
            workers: vec![worker],
            tune: tune(),
            fabric_starts: 2,
            forbidden: 3,
        };
        snapshot.into_text()
    }

    #[test]
    fn values_are_rendered_with_their_labels() {
        let text = text();
        let labels = "port=\"4\",owner=\"vm/a/nic0\",portgroup=\"lan\"";
        for line in [
            format!("taut_port_rx_frames_total{{{labels}}} 7"),
            format!(
                "taut_port_drops_total{{{labels},direction=\"tx\",reason=\"frame shorter than an Ethernet header\"}} 3"
            ),
            format!("taut_port_up{{{labels}}} 1"),
            "taut_vms{phase=\"running\"} 2".to_owned(),
            "taut_vms{phase=\"stopped\"} 0".to_owned(),
            "taut_vmci_up{vm=\"a\",cid=\"7\"} 1".to_owned(),
            "taut_worker_sleeps_total{worker=\"1\",mode=\"adaptive\"} 3".to_owned(),
            "taut_worker_sleep_seconds_total{worker=\"1\",mode=\"adaptive\"} 1.5".to_owned(),
            "taut_tune_dense 1".to_owned(),
            "taut_tune_threshold{load=\"vcpus\"} 4".to_owned(),
            "taut_tune_reading{load=\"vcpus\"} 5".to_owned(),
            "taut_fabric_starts_total 2".to_owned(),
            "taut_api_forbidden_total 3".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("taut_tune_reading{load=\"utilisation"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    /// Dashboards depend on these.
    #[test]
    fn names_and_labels_of_all_metrics_are_stable() {
        let text = text();
        let samples: BTreeSet<String> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (name, rest) = line.split_once('{').unwrap_or((line, ""));
                let keys = rest.split('"').step_by(2).filter_map(|part| part.strip_suffix('='));
                let keys: Vec<_> = keys.map(|key| key.trim_start_matches(',')).collect();
                let name = name.split(' ').next().unwrap_or_default();
                if keys.is_empty() { name.to_owned() } else { format!("{name} {}", keys.join(",")) }
            })
            .collect();
        let mut expected = BTreeSet::new();
        let mut expect = |prefix: &str, names: &str, labels: &str| {
            for name in names.split_whitespace() {
                expected.insert(format!("taut_{prefix}{name}{labels}"));
            }
        };
        expect(
            "port_",
            "rx_frames_total rx_bytes_total tx_frames_total tx_bytes_total interrupts_total kicks_total
             rx_multicast_total rx_waits_total rx_merged_frames_total rx_merged_segments_total
             wire_tx_bytes_total wire_rx_bytes_total up",
            " port,owner,portgroup",
        );
        expect("port_", "drops_total", " port,owner,portgroup,direction,reason");
        expect(
            "vmci_",
            "opened_total rx_bytes_total tx_bytes_total rx_packets_total tx_packets_total refused_total
             limited_total forged_total malformed_total resets_total stalls_total interrupts_total
             kicks_total ring_rx_bytes_total ring_tx_bytes_total
             connections attached up",
            " vm,cid",
        );
        expect(
            "worker_",
            "sleeps_total sleep_seconds_total busy_seconds_total bursts_total empty_rounds_total
             given_total",
            " worker,mode",
        );
        expect("", "vms", " phase");
        expect("tune_", "threshold reading", " load");
        expect("", "tune_dense fabric_starts_total api_forbidden_total", "");
        assert_eq!(samples, expected);
    }
}
