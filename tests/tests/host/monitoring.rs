//! What Prometheus and Grafana get: metrics, alerts and the dashboard of `dist/monitoring/`.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use taut_tests::{Background, Cable, Netns, RawPort, Taut, busy_machine, directory, eventually};
use taut_virtq::header::NetHeader;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
/// Address that no port has: one that the sender must not use as its own.
const FORGED: [u8; 6] = [2, 0, 0, 0, 0, 0xf];
/// User and group of the forwarder, which have the role `view` and no other rights.
const VIEWER: u32 = 61_001;
const GROUP: u32 = 61_000;
/// Address of the Prometheus of the test, in a namespace of its own.
const PROMETHEUS: &str = "127.0.0.1:9090";

/// Returns a file for Prometheus or Grafana.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("dist/monitoring").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(shipped(name)).unwrap()
}

/// Returns what a program has printed, and that it has succeeded.
fn ended_well(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{}\n{}", said[0], said[1]);
    said.concat()
}

fn promtool(args: &[&str], file: &str) -> String {
    let output = Command::new("promtool").args(args).arg(shipped(file)).output();
    ended_well(&output.expect("promtool is installed"))
}

/// The test of the rules has, for each alert, times before, while and after it fires.
#[test]
fn rules_are_sound_and_each_alert_fires_and_clears() {
    promtool(&["check", "config"], "prometheus.yml");
    promtool(&["check", "rules"], "alerts.yml");
    promtool(&["test", "rules"], "alerts_test.yml");
    let tests = read("alerts_test.yml");
    let mut tested = BTreeSet::new();
    for test in tests.split("\n  - name: ").skip(1) {
        let (name, rest) = test.split_once('\n').unwrap();
        let times: Vec<_> = rest.split("- eval_time: ").skip(1).collect();
        let fires: Vec<_> = times.iter().map(|time| time.contains("exp_labels")).collect();
        assert_eq!(fires, [false, true, false], "{name}");
        assert_eq!(rest.matches(&format!("alertname: {name}\n")).count(), 3, "{name}");
        tested.insert(name);
    }
    let rules = read("alerts.yml");
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(tested, alerts);
    println!("alerts that fire and clear: {}", alerts.len());
}

/// Returns every query of a panel, or of a list of the dashboard.
fn queries(of: &Value) -> Vec<String> {
    let panels = of["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_dashboard_can_be_imported() {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    assert_eq!(dashboard["uid"], "taut-hosts", "links to the dashboard contain it");
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{panel}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "it covers another panel: {panel}");
            }
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
    assert!(queries(&dashboard).len() > 25);
}

/// A Prometheus that scrapes a daemon by the shipped configuration, in a namespace.
struct Monitoring {
    namespace: Netns,
    _programs: [Background; 2],
}

impl Monitoring {
    fn start(taut: &Taut) -> Self {
        let namespace = Netns::attach(taut, "prometheus", "lan", "10.71.0.9");
        ended_well(&namespace.run("ip", ["link", "set", "lo", "up"]));
        // The service's command, as a user without rights.
        let unit = read("taut-metrics.service");
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let command = command.replace("/run/taut", &format!("{}/run", taut.dir().display()));
        let mut forwarder = namespace.command("setpriv");
        let user = [format!("--reuid={VIEWER}"), format!("--regid={GROUP}"), "--clear-groups".to_owned()];
        let forwarder = Background::start(forwarder.args(user).args(command.split(' ')));
        // The shipped configuration, with shorter times.
        let folder = taut.dir().join("prometheus");
        fs::create_dir(&folder).unwrap();
        let configuration = read("prometheus.yml").replace("15s", "1s");
        fs::write(folder.join("prometheus.yml"), configuration).unwrap();
        fs::copy(shipped("alerts.yml"), folder.join("alerts.yml")).unwrap();
        let mut prometheus = namespace.command("prometheus");
        prometheus.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        prometheus.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        prometheus.arg(format!("--web.listen-address={PROMETHEUS}"));
        Self { namespace, _programs: [Background::start(&mut prometheus), forwarder] }
    }

    /// Asks Prometheus. Returns nothing while it does not answer.
    fn get(&self, path: &str, query: &str) -> Option<Value> {
        let url = format!("http://{PROMETHEUS}/api/v1/{path}");
        let query = format!("query={query}");
        let answer = self.namespace.run("curl", ["-sS", "-G", "--data-urlencode", &query, &url]);
        serde_json::from_slice(&answer.stdout).ok()
    }

    /// Returns the result of a query; nothing if there is none.
    fn result(&self, query: &str) -> Option<Vec<Value>> {
        let answer = self.get("query", query)?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        Some(answer["data"]["result"].as_array().unwrap().clone()).filter(|result| !result.is_empty())
    }
}

/// Sends frames to a guest that takes none, so that its ring is full. Every second one has a forged
/// source address.
fn send_to_be_dropped(from: &mut RawPort) {
    for number in 0..20 {
        let from_address = if number % 2 == 0 { A } else { FORGED };
        let mut frame = [&B[..], &from_address, &[0x88, 0xb5]].concat();
        frame.resize(500, 0);
        // Without room, the frames before are still waiting for the receiver.
        let _ = from.send(&NetHeader::default(), &frame);
    }
    from.flush();
}

/// Replaces what Grafana replaces.
fn for_prometheus(query: &str) -> String {
    query.replace("$__rate_interval", "10s").replace("$instance", ".+")
}

/// Returns the part of an alert's expression before its comparison with a number, so that it has a
/// value while the alert is silent.
fn without_threshold(query: &str) -> String {
    let (value, threshold) = query.rsplit_once(' ').unwrap();
    assert!(threshold.parse::<f64>().is_ok(), "{query}");
    let (value, comparison) = value.rsplit_once(' ').unwrap();
    assert!([">", "<", "=="].contains(&comparison), "{query}");
    value.to_owned()
}

#[test]
fn every_query_of_dashboard_and_alerts_has_data_under_load() {
    let roles = directory();
    let file = roles.path().join("roles.toml");
    fs::write(&file, format!("group = {GROUP}\n[roles]\nview = [{VIEWER}]\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    // The fixture keeps its arguments for restarts.
    let file: &'static str = String::leak(file.to_str().unwrap().to_owned());
    let taut = Taut::start_with(Vec::leak(vec!["--roles", file])).with_lan();
    fs::set_permissions(taut.dir(), Permissions::from_mode(0o755)).unwrap();

    let _foreign = busy_machine(taut.dir(), "fore\"ign\\", 1);
    let cable = Cable::plug();
    taut.ok(["uplink", "add", "sw", &cable.card]);
    let nic = "[[nic]]\nportgroup = \"lan\"\nip = \"10.71.0.1/24\"\n";
    taut.boot("m1", &format!("kind = \"micro\"\nmemory = \"64MiB\"\n{nic}[vmci]\n"));
    let monitoring = Monitoring::start(&taut);
    let _silent = RawPort::attach(&taut, "b", "lan", B);
    let mut sender = RawPort::attach(&taut, "a", "lan", A);

    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let alerts = eventually("Prometheus has read the alerts", || {
        let rules = monitoring.get("rules", "")?["data"]["groups"][0]["rules"].as_array()?.clone();
        let expressions = rules.iter().map(|rule| without_threshold(rule["query"].as_str().unwrap()));
        Some(expressions.collect::<Vec<_>>()).filter(|rules| !rules.is_empty())
    });
    let shown = queries(&dashboard);
    let mut missing: Vec<_> = shown.iter().map(|query| for_prometheus(query)).chain(alerts).collect();
    let count = missing.len();
    eventually("every query has data", || {
        missing.retain(|query| {
            send_to_be_dropped(&mut sender);
            monitoring.result(query).is_none()
        });
        if missing.is_empty() {
            Some(())
        } else {
            println!("no data yet: {}", missing.join("\n"));
            None
        }
    });
    println!("queries with data: {count}");
    let variable = dashboard["templating"]["list"][1]["query"]["query"].as_str().unwrap();
    assert_eq!(variable, "label_values(taut_build_info, instance)");
    assert!(monitoring.result("taut_build_info").is_some());

    // Both drops have reasons, and the foreign VM has its name.
    for (direction, reason) in [("rx", "ring-full"), ("tx", "forged-transmit")] {
        let query = format!("taut_port_{direction}_drops_total{{reason=\"{reason}\"}} > 0");
        assert!(monitoring.result(&query).is_some(), "{query}");
    }
    let foreign = r#"taut_vm_vcpu_run_seconds_total{vm="fore\"ign\\",id=~"pid:.+"} > 0"#;
    assert!(monitoring.result(foreign).is_some(), "{foreign}");

    // What others than Prometheus get is sound, too.
    let check = "set -o pipefail; curl -sS --fail http://127.0.0.1:9105/metrics | promtool check metrics";
    let mut checked = monitoring.namespace.command("bash");
    let checked = checked.args(["-c", check]).stdin(Stdio::null()).output().unwrap();
    let said = ended_well(&checked);
    assert_eq!(said, "", "promtool has nothing to say");
    // The forwarder may read and no more.
    let change = ["-sS", "-X", "DELETE", "http://127.0.0.1:9105/v1/portgroups/lan"];
    let refused = monitoring.namespace.run("curl", change);
    assert!(String::from_utf8_lossy(&refused.stdout).contains("forbidden"), "{refused:?}");
}
