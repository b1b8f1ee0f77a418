use std::time::Duration;

use super::*;
use crate::measure::latencies::Latencies;

/// A plausible distribution of latencies around `us`, the same each time.
fn latencies(us: f64) -> Latencies {
    let mut latencies = Latencies::new();
    for n in 1..=10_000_u32 {
        let tail = (1.0 - f64::from(n) / 10_001.0).powf(-0.35);
        latencies.record(Duration::from_secs_f64(us * 0.8 * tail / 1e6));
    }
    latencies
}

fn cpu(base: f64) -> Cpu {
    Cpu { sender: Some(base), receiver: Some(base + 7.4), fabric: Some(21.0), host: Some(base + 60.0) }
}

fn end(name: &str, kind: &str) -> EndPoint {
    EndPoint {
        name: name.to_owned(),
        kind: kind.to_owned(),
        kernel: "6.12.0".to_owned(),
        address: (kind == "guest").then(|| "10.70.0.2".parse().unwrap()),
        accelerator: (kind == "guest").then(|| "tcg".to_owned()),
    }
}

fn host() -> Host {
    Host {
        hostname: "lab1".to_owned(),
        cpu_model: "Example CPU 2.0 GHz".to_owned(),
        cpus: 8,
        os: "Debian GNU/Linux 12".to_owned(),
        kernel: "6.18.0".to_owned(),
        accelerator: "tcg".to_owned(),
        qemu: Some("10.0.2".to_owned()),
        taut: "0.1.0".to_owned(),
    }
}

fn ping(name: &str, repeats: &[f64]) -> Configuration {
    let repeats = repeats.iter().map(|us| Figures {
        lost: Some(0),
        cpu: cpu(12.0),
        ..Figures::of_latencies(latencies(*us))
    });
    Configuration::new(end(name, "netns"), end("beta", "guest"), repeats.collect())
}

fn ping_report(b: Option<Configuration>) -> Report {
    let settings = Settings {
        duration_s: 10.0,
        repeats: 5,
        size: Some(256),
        interval_us: Some(1000),
        ..Settings::default()
    };
    let a = ping("netns/probe", &[398.0, 402.0, 405.0, 400.0, 401.0]);
    Report::new(Kind::Ping, settings, host(), a, b)
}

fn stream_report() -> Report {
    let settings = Settings {
        duration_s: 2.5,
        repeats: 3,
        pattern: Some("bulk".to_owned()),
        socket_size: Some(65536),
        send_size: Some(8192),
        receive_size: Some(8192),
        sessions: Some(1),
        ..Settings::default()
    };
    let side = |name: &str, rates: &[f64]| {
        let repeats =
            rates.iter().map(|rate| Figures { mbit_s: Some(*rate), cpu: cpu(88.0), ..Figures::default() });
        Configuration::new(end(name, "guest"), end("beta", "guest"), repeats.collect())
    };
    let a = side("alpha", &[734.0, 1000.0, 1070.0]);
    let b = side("agent:/run/other.sock", &[1250.4, 1200.0, 1250.0]);
    Report::new(Kind::Stream, settings, host(), a, Some(b))
}

#[test]
fn latencies_as_table() {
    insta::assert_snapshot!(ping_report(None).table());
}

#[test]
fn two_configurations_as_table() {
    insta::assert_snapshot!(stream_report().table());
    let b = ping("netns/other", &[301.0, 303.0, 299.0, 304.0, 300.0]);
    insta::assert_snapshot!(ping_report(Some(b)).comparison.unwrap().to_string(),
        @"B is faster: p50 306.9 µs, 25.0 % below A's p50 409.1 µs (p = 0.008, 5 repeats each)");
}

#[test]
fn a_measurement_without_replies_has_a_result() {
    let silent = Figures { lost: Some(1000), ..Figures::of_latencies(Latencies::new()) };
    let a = Configuration::new(end("m1", "micro"), end("m2", "micro"), vec![silent]);
    let settings = Settings { duration_s: 1.0, repeats: 1, size: Some(256), ..Settings::default() };
    let report = Report::new(Kind::Ping, settings, Host::default(), a, None);
    assert!(report.table().contains("1000"), "{}", report.table());
    assert!(report.svg().unwrap().contains("no answers"));
}

#[test]
fn the_json_keeps_its_shape() {
    let mut report = stream_report();
    report.a.repeats[0].histogram = Some([(1_000, 2), (5_000, 1)].to_vec().into());
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    let read: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(read, report);
}

#[test]
fn pictures_name_what_they_show() {
    let b = ping("netns/other", &[301.0, 303.0, 299.0, 304.0, 300.0]);
    for report in [ping_report(Some(b)), stream_report()] {
        let svg = report.svg().unwrap();
        let b = report.b.as_ref().unwrap();
        for part in [&report.a.name, &b.name, "lab1", "repeats each"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
    assert!(ping_report(None).svg().unwrap().contains("99.99 %"));
}
