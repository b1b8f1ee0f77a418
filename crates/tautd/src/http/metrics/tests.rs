//! The metrics of a daemon whose state the tests know.

use std::collections::BTreeSet;

use axum::http::HeaderValue;
use taut_api::fabric::DropReason;
use taut_api::fabric::counters::{PortCounters, WorkerCounters};
use taut_api::link::Link;
use taut_api::shaping::PortShaping;
use taut_api::vm::{VmDesired, VmStatus};
use taut_api::{GuestMac, MacAddr};
use taut_host::observe::processes::{MemoryUse, Times};

use super::exposition::{Sample, read};
use super::*;

/// Name of a foreign VM that would add a sample, if labels were written as they are.
const HOSTILE: &str = "x\"} 1\ntaut_port_up{owner=\"vm/a/nic0\\\r";

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

fn times(name: &str, id: &str, vcpus: u32) -> VmTimes {
    let times = Times { ran_ns: 2_500_000_000, waited_ns: 500_000_000 };
    VmTimes {
        name: name.to_owned(),
        id: id.to_owned(),
        foreign: id != name,
        pid: 77,
        vcpus: (0..vcpus).map(|vcpu| (vcpu, times)).collect(),
        others: times,
        throttled_ns: Some(250_000_000),
        memory: Some(MemoryUse { resident: 1 << 20, ..MemoryUse::default() }),
    }
}

fn snapshot() -> Snapshot {
    let counters = PortCounters {
        rx_frames: 7,
        rx_drops: vec![(DropReason::RingFull, 5)],
        tx_drops: vec![(DropReason::Runt, 3)],
        ..PortCounters::default()
    };
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
    Snapshot {
        ports: vec![port],
        vms: vec![vm("a", "running"), vm("b", "failed"), vm("c", "running")],
        times: vec![times("a", "a", 2), times(HOSTILE, "pid:9", 1)],
        left_out: 0,
        workers: vec![worker],
        tune: tune(),
        daemon: daemon::State {
            fabric_up: true,
            fabric_restarts: 2,
            newest: 9,
            in_force: 8,
            problems: 1,
            history_written: true,
            forbidden: 3,
            refusals: vec![("address-rate", 5), ("slow", 0)],
        },
    }
}

fn text() -> String {
    snapshot().into_text()
}

#[test]
fn values_are_rendered_with_their_labels() {
    let text = text();
    let labels = "port=\"4\",owner=\"vm/a/nic0\",portgroup=\"lan\"";
    for line in [
        format!("taut_port_rx_frames_total{{{labels}}} 7"),
        format!("taut_port_tx_drops_total{{{labels},reason=\"runt\"}} 3"),
        format!("taut_port_up{{{labels}}} 1"),
        "taut_vms{phase=\"running\"} 2".to_owned(),
        "taut_vms{phase=\"stopped\"} 0".to_owned(),
        "taut_vmci_up{vm=\"a\",cid=\"7\"} 1".to_owned(),
        "taut_worker_sleeps_total{worker=\"1\",mode=\"adaptive\"} 3".to_owned(),
        "taut_worker_sleep_seconds_total{worker=\"1\",mode=\"adaptive\"} 1.5".to_owned(),
        "taut_tune_dense 1".to_owned(),
        "taut_tune_threshold_vcpus 4".to_owned(),
        "taut_tune_threshold_utilisation_ratio 0.5".to_owned(),
        "taut_tune_reading_vcpus 5".to_owned(),
        "taut_vm_info{vm=\"a\",id=\"a\",foreign=\"false\",pid=\"77\"} 1".to_owned(),
        "taut_vm_vcpu_run_seconds_total{vm=\"a\",id=\"a\",vcpu=\"1\"} 2.5".to_owned(),
        "taut_vm_vcpu_ready_seconds_total{vm=\"a\",id=\"a\",vcpu=\"0\"} 0.5".to_owned(),
        "taut_vm_others_run_seconds_total{vm=\"a\",id=\"a\"} 2.5".to_owned(),
        "taut_vm_throttled_seconds_total{vm=\"a\",id=\"a\"} 0.25".to_owned(),
        "taut_vm_memory_bytes{vm=\"a\",id=\"a\"} 1048576".to_owned(),
        "taut_vms_left_out 0".to_owned(),
        "taut_fabric_up 1".to_owned(),
        "taut_revision_newest 9".to_owned(),
        "taut_revision_in_force 8".to_owned(),
        "taut_problems 1".to_owned(),
        "taut_history_written 1".to_owned(),
        "taut_fabric_restarts_total 2".to_owned(),
        "taut_api_forbidden_total 3".to_owned(),
        "taut_remote_refused_total{reason=\"address-rate\"} 5".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("taut_tune_reading_utilisation"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

/// Dashboards depend on these.
#[test]
fn names_and_labels_of_all_metrics_are_stable() {
    let text = text();
    let named = |Sample { name, labels, .. }: Sample| {
        let keys: Vec<_> = labels.into_keys().collect();
        if keys.is_empty() { name } else { format!("{name} {}", keys.join(",")) }
    };
    let samples: BTreeSet<String> = read(&text, Format::OpenMetrics).into_iter().map(named).collect();
    let mut expected = BTreeSet::new();
    let mut expect = |prefix: &str, names: &str, labels: &str| {
        for name in names.split_whitespace() {
            expected.insert(format!("taut_{prefix}{name}{labels}"));
        }
    };
    expect(
        "port_",
        "rx_frames_total rx_bytes_total tx_frames_total tx_bytes_total interrupts_total kicks_total
         rx_multicast_frames_total rx_waits_total rx_merged_frames_total rx_merged_segments_total
         wire_tx_bytes_total wire_rx_bytes_total up",
        " owner,port,portgroup",
    );
    expect("port_", "rx_drops_total tx_drops_total", " owner,port,portgroup,reason");
    expect(
        "vmci_",
        "connections_opened_total rx_bytes_total tx_bytes_total rx_packets_total tx_packets_total
         requests_refused_total requests_limited_total packets_forged_total
         packets_malformed_total connections_reset_total stalls_total interrupts_total
         kicks_total ring_rx_bytes_total ring_tx_bytes_total
         connections attached up",
        " cid,vm",
    );
    expect(
        "worker_",
        "sleeps_total sleep_seconds_total busy_seconds_total bursts_total empty_rounds_total
         queues_given_total",
        " mode,worker",
    );
    expect("", "vms", " phase");
    expect("vm_vcpu_", "run_seconds_total ready_seconds_total", " id,vcpu,vm");
    expect("vm_others_", "run_seconds_total ready_seconds_total", " id,vm");
    expect("vm_", "throttled_seconds_total memory_bytes swapped_bytes", " id,vm");
    expect("", "vm_info", " foreign,id,pid,vm");
    expect("", "build_info", " version");
    expect("", "remote_refused_total", " reason");
    expect(
        "",
        "tune_dense tune_threshold_vms tune_threshold_vcpus tune_threshold_utilisation_ratio
         tune_reading_vms tune_reading_vcpus fabric_up fabric_restarts_total revision_newest
         revision_in_force problems history_written api_forbidden_total vms_left_out",
        "",
    );
    assert_eq!(samples, expected);
}

#[test]
fn names_of_foreign_vms_stay_labels() {
    let shown = HOSTILE.replace('\r', "\u{fffd}");
    for format in [Format::OpenMetrics, Format::Plain] {
        let samples = read(&format.convert(text()), format);
        let ready = |sample: &&Sample| sample.name == "taut_vm_vcpu_ready_seconds_total";
        let names: Vec<_> = samples.iter().filter(ready).map(|sample| sample.labels["vm"].as_str()).collect();
        assert_eq!(names, ["a", "a", shown.as_str()]);
        assert_eq!(samples.iter().filter(|sample| sample.name == "taut_port_up").count(), 1);
    }
}

#[test]
fn the_plain_format_declares_counters_by_the_names_of_their_samples() {
    let plain = Format::Plain.convert(text());
    let declared = "# HELP taut_port_rx_bytes_total Bytes delivered to the guest\n\
                    # TYPE taut_port_rx_bytes_total counter\ntaut_port_rx_bytes_total{";
    assert!(plain.contains(declared) && !plain.contains("# EOF"), "{plain}");
    assert_eq!(read(&plain, Format::Plain), read(&text(), Format::OpenMetrics));
}

#[test]
fn a_client_gets_the_format_that_it_accepts() {
    let accepted = |accept: Option<&'static str>| {
        let value = accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
        Format::accepted(&value.into_iter().collect())
    };
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(accepted(Some(prometheus)), Format::OpenMetrics);
    assert_eq!(
        accepted(Some("text/plain, application/openmetrics-text; version=1.0.0")),
        Format::OpenMetrics
    );
    assert_eq!(accepted(Some("*/*")), Format::Plain);
    assert_eq!(accepted(None), Format::Plain);
}

#[test]
fn the_number_of_series_of_vms_is_bounded() {
    let listed = |vms: Vec<VmTimes>| {
        let samples = read(&Snapshot { times: vms, ..snapshot() }.into_text(), Format::OpenMetrics);
        let of = |name: &str| samples.iter().filter(|sample| sample.name == name).count();
        let left_out = samples.iter().find(|sample| sample.name == "taut_vms_left_out").unwrap().value;
        (of("taut_vm_info"), of("taut_vm_vcpu_run_seconds_total"), left_out)
    };
    let left_out =
        |count: u32, vcpus| (0..count).map(|pid| times("x", &format!("pid:{pid}"), vcpus)).collect();
    assert_eq!(listed(left_out(1025, 0)), (1024, 0, 1.0));
    let unsampled = Snapshot { left_out: 7, ..snapshot() }.into_text();
    assert!(unsampled.contains("\ntaut_vms_left_out 7\n"), "{unsampled}");
    assert_eq!(listed(left_out(40, 120)), (34, 4080, 6.0));
}
