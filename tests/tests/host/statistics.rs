//! Statistics of ports and VMs beside loads that the tests know.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use taut_tests::{Controller, CpuLimit, Prerequisite, RawPort, Taut, busy_machine, eventually, require};
use taut_virtq::header::NetHeader;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
/// Bytes of a frame.
const LEN: usize = 500;
/// Frames that are sent while the daemon, on a busy host, is late with its sample.
const MOST_LATE: f64 = 100.0;
/// Time between two frames, of which every fourth is for nobody.
const PAUSE: Duration = Duration::from_millis(5);

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Returns the statistics of a port over a period; nothing if there are none yet.
fn statistics(taut: &Taut, port: &str, period: &str) -> Option<Value> {
    let all = taut.json(["net", "stats", "--period", period]);
    all.as_array().unwrap().iter().find(|each| each["owner"] == port).cloned()
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap()
}

/// Returns the number of drops with a reason.
fn drops(counters: &Value, reason: &str) -> u64 {
    let drops = counters["tx_drops"].as_array().unwrap();
    drops.iter().find(|drop| drop[0] == reason).map_or(0, |drop| drop[1].as_u64().unwrap())
}

/// Two ports, and what one of them has sent.
struct Rig {
    taut: Taut,
    a: RawPort,
    b: RawPort,
    /// Time of each frame, in ms since the Unix epoch.
    sent: Vec<u64>,
}

impl Rig {
    /// Sends a frame every 5 ms for a while.
    fn send_for(&mut self, time: Duration) {
        let begun = Instant::now();
        let before = self.sent.len();
        while begun.elapsed() < time {
            let due = begun.elapsed().as_millis() / PAUSE.as_millis();
            while self.sent.len() - before <= due as usize {
                let to = if self.sent.len() % 4 == 3 { [2, 0, 0, 0, 0, 0xf] } else { B };
                let mut frame = [&to[..], &A, &[0x88, 0xb5]].concat();
                frame.resize(LEN, 0);
                assert!(self.a.send(&NetHeader::default(), &frame), "there is room for it");
                self.sent.push(wall_ms());
            }
            self.a.flush();
            while self.b.receive().is_some() {}
            self.b.flush();
            std::thread::sleep(PAUSE);
        }
    }

    /// Compares rates with what was sent in the time that they cover. The daemon may have read the
    /// counters a bit later than it says.
    fn check(&self, period: &str) {
        let found = statistics(&self.taut, "external/a", period).unwrap();
        let (covered, to) = (count(&found, "covered_ms"), count(&found, "to_ms"));
        let from = to - covered;
        let sent = self.sent.iter().filter(|at| (from..to).contains(at)).count() as f64;
        let counted = count(&found["counted"], "tx_frames") as f64;
        let off = (counted - sent).abs();
        assert!(off <= 0.01 * sent + MOST_LATE, "{counted} of {sent} in {period}: {found}");
        let rate = found["rates"]["tx_frames_per_s"].as_f64().unwrap();
        assert!((rate - counted * 1000.0 / covered as f64).abs() < 1e-6, "{found}");
        let percent = found["rates"]["tx_drops_percent"].as_f64().unwrap();
        assert!((percent - 25.0).abs() < 2.0, "every fourth frame is dropped: {found}");
    }
}

#[test]
fn averages_are_those_of_a_known_load_and_a_killed_daemon_loses_nothing() {
    let taut = Taut::start().with_lan();
    let a = RawPort::attach(&taut, "a", "lan", A);
    let b = RawPort::attach(&taut, "b", "lan", B);
    let mut rig = Rig { taut, a, b, sent: Vec::new() };
    eventually("the port has samples", || {
        statistics(&rig.taut, "external/a", "1m").filter(|found| count(found, "covered_ms") > 0)
    });
    rig.send_for(Duration::from_secs(4));
    rig.check("3s");
    rig.taut.kill_daemon();
    rig.send_for(Duration::from_secs(3));
    rig.taut.restart_daemon();
    rig.send_for(Duration::from_secs(4));
    rig.check("3s");
    rig.check("1m");
    // All samples since the first one, before the load: what was sent while no daemon was there and
    // what the killed one had not written are in the averages.
    let all = rig.sent.len() as u64;
    let found = eventually("the last frames are counted", || {
        statistics(&rig.taut, "external/a", "5m").filter(|found| count(&found["counted"], "tx_frames") == all)
    });
    assert_eq!(count(&found["counted"], "tx_bytes"), all * LEN as u64);
    let ports = rig.taut.json(["port", "list"]);
    let counters =
        &ports.as_array().unwrap().iter().find(|port| port["owner"] == "external/a").unwrap()["counters"];
    assert_eq!(count(counters, "tx_frames"), all, "no frame came before the first sample");
    assert_eq!(drops(&found["counted"], "unknown-unicast"), drops(counters, "unknown-unicast"));
    // A port that is gone.
    rig.taut.ok(["port", "detach", "a"]);
    let gone = eventually("the port is gone", || {
        statistics(&rig.taut, "external/a", "5m").filter(|found| found.get("port").is_none())
    });
    assert_eq!(count(&gone["counted"], "tx_frames"), all);
    let refused = rig.taut.refused(["net", "stats", "--period", "367d"]);
    assert!(refused.contains("is not a period"), "{refused}");
}

#[test]
fn ready_times_of_foreign_vms_are_seen_without_asking_anybody() {
    let taut = Taut::start();
    let machines = ["busy1", "busy2"].map(|name| busy_machine(taut.dir(), name, 1));
    let pids = machines.each_ref().map(|machine| u64::from(machine.id()));
    let percent = |vm: &Value, key: &str| vm["vcpus"][0][key].as_f64().unwrap_or(0.0);
    let busy = |vm: &Value| percent(vm, "run_percent") + percent(vm, "ready_percent");
    let found = eventually("both were busy for ten seconds", || {
        let all = taut.json(["vm", "stats", "--period", "10s"]);
        let of = |pid: &u64| all.as_array().unwrap().iter().find(|vm| vm["pid"] == *pid).cloned();
        let both = pids.iter().map(of).collect::<Option<Vec<_>>>()?;
        both.iter().all(|vm| count(vm, "covered_ms") >= 10_000 && busy(vm) > 97.0).then_some(both)
    });
    for (vm, name) in found.iter().zip(["busy1", "busy2"]) {
        assert_eq!((vm["name"].as_str(), vm["foreign"].as_bool()), (Some(name), Some(true)));
        let (run, ready) = (percent(vm, "run_percent"), percent(vm, "ready_percent"));
        // Both want one pCPU. Others on this host take some of it, too.
        assert!(run < 65.0 && ready > 35.0, "{vm}");
        assert!((vm["run_percent"].as_f64().unwrap() - run).abs() < 0.01, "{vm}");
    }
}

/// Reads a resource of the API.
fn get(taut: &Taut, path: &str) -> Value {
    let mut stream = UnixStream::connect(taut.dir().join("run/tautd.sock")).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: taut\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn a_cpu_limit_and_the_memory_of_a_foreign_vm_are_seen() {
    if !require(Prerequisite::CgroupV1(Controller::Cpu)) {
        return;
    }
    let taut = Taut::start();
    // Fields are dropped in their order: the machine before its group.
    let machine = busy_machine(taut.dir(), "limited", 1);
    let pid = machine.id();
    let mut limited = (machine, None);
    let group = &*limited.1.insert(CpuLimit::enter(pid));
    let stats = |period: &str| {
        let all = taut.json(["vm", "stats", "--period", period]);
        all.as_array().unwrap().iter().find(|vm| vm["pid"] == u64::from(pid)).cloned()
    };
    let number = |vm: &Value, key: &str| vm[key].as_f64().unwrap_or(0.0);
    eventually("the limit is felt", || stats("2s").filter(|vm| number(vm, "throttled_percent") > 1.0));
    let (begun, before) = (Instant::now(), group.throttled_ns());
    std::thread::sleep(Duration::from_secs(12));
    let found = stats("10s").unwrap();
    let real = (group.throttled_ns() - before) / begun.elapsed().as_nanos() as f64 * 100.0;
    let throttled = number(&found, "throttled_percent");
    assert!((throttled - real).abs() < 10.0, "the kernel says {real} %: {found}");
    assert!(number(&found, "run_percent") < 36.0, "{found}");
    assert!(number(&found, "ready_percent") > 0.9 * throttled, "for the kernel it was ready: {found}");
    let host = taut.json(["host", "stats", "--period", "10s"]);
    let all = ["cpu_busy_percent", "cpu_idle_percent", "cpu_steal_percent"].map(|key| number(&host, key));
    assert!((all.iter().sum::<f64>() - 100.0).abs() < 0.1, "{host}");
    let pcpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(all[0] > 0.8 * number(&found, "run_percent") / pcpus, "the VM is a part of it: {host}");
    let memory = number(&host, "memory_used_bytes") + number(&host, "memory_available_bytes");
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let total = total.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0;
    assert!((memory / total - 1.0).abs() < 0.01, "{total} bytes: {host}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0;
    let memory = number(&found, "memory_bytes");
    assert!((memory / resident - 1.0).abs() < 0.2, "{resident} bytes now: {found}");
    assert!(found["disk_read_bytes_per_s"].is_number(), "{found}");
    let path = format!("/v1/statistics/series?subject=vm&name=limited&pid={pid}&period=1m");
    let series = get(&taut, &path);
    let at = series["columns"].as_array().unwrap().iter().position(|name| name == "throttled_percent");
    let points = series["points"].as_array().unwrap();
    let values: Vec<_> =
        points.iter().rev().take(10).filter_map(|point| point["values"][at.unwrap()].as_f64()).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    assert!((mean - throttled).abs() < 15.0, "{mean} % in points, {throttled} % in all: {series}");
}
