//! The client against a scripted monitor.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{self, JoinHandle};

use taut_api::fabric::ClosingQueue;
use taut_api::fabric::closing::MOST_WAITING;

use super::*;

const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;

/// A monitor that sends a greeting and then answers each line that it reads with the next of
/// `answers`. Returns the lines that it read.
fn monitor(greeting: &str, answers: &[&str]) -> (tempfile::TempDir, JoinHandle<Vec<String>>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("qmp")).unwrap();
    let greeting = greeting.to_owned();
    let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut read = Vec::new();
        writeln!(stream, "{greeting}").unwrap();
        for answer in answers {
            let Some(Ok(line)) = lines.next() else { break };
            read.push(line);
            writeln!(stream, "{answer}").unwrap();
        }
        read
    });
    (dir, thread)
}

fn connect(dir: &tempfile::TempDir) -> Result<Qmp, QmpError> {
    Qmp::connect(&dir.path().join("qmp"), Duration::from_secs(30))
}

#[test]
fn commands_are_answered_and_events_kept() {
    let events = "{\"event\": \"RESUME\"}\n{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true}}";
    let status = format!("{events}\n{}", r#"{"return": {"status": "running"}}"#);
    let cpus = r#"{"return": [{"cpu-index": 1, "thread-id": 12}, {"cpu-index": 0, "thread-id": 11}]}"#;
    let empty = r#"{"return": {}}"#;
    let (dir, thread) = monitor(GREETING, &[empty, &status, cpus, empty, empty]);
    let mut qmp = connect(&dir).unwrap();
    assert_eq!(qmp.status().unwrap(), "running");
    assert_eq!(qmp.vcpu_threads().unwrap(), [(0, 11), (1, 12)]);
    qmp.powerdown().unwrap();
    qmp.quit().unwrap();
    let names: Vec<_> = qmp.take_events().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["RESUME", "SHUTDOWN"]);
    let sent = thread.join().unwrap();
    let commands = ["qmp_capabilities", "query-status", "query-cpus-fast", "system_powerdown", "quit"];
    assert_eq!(sent, commands.map(|command| format!("{{\"execute\":\"{command}\"}}")));
}

#[test]
fn refusals_contain_the_reason_of_qemu() {
    let refusal = r#"{"error": {"class": "GenericError", "desc": "not now"}}"#;
    let (dir, _thread) = monitor(GREETING, &[r#"{"return": {}}"#, refusal]);
    let error = connect(&dir).unwrap().powerdown().unwrap_err();
    assert_eq!(error.to_string(), "QEMU refused system_powerdown: not now");
}

#[test]
fn a_peer_that_is_not_a_monitor_is_an_error() {
    for greeting in ["HTTP/1.1 400 Bad Request", "{}", "[1]", "17", &"x".repeat(300)] {
        let (dir, _thread) = monitor(greeting, &[]);
        assert!(matches!(connect(&dir), Err(QmpError::Protocol(_))), "{greeting}");
    }
}

#[test]
fn malformed_answers_are_errors() {
    let empty = r#"{"return": {}}"#;
    for answer in [r#"{"return": {"status": 5}}"#, r#"{"nothing": 1}"#, "garbage"] {
        let (dir, _thread) = monitor(GREETING, &[empty, answer]);
        assert!(matches!(connect(&dir).unwrap().status(), Err(QmpError::Protocol(_))), "{answer}");
    }
    let (dir, _thread) =
        monitor(GREETING, &[empty, r#"{"return": [{"cpu-index": 0, "thread-id": 99999999999}]}"#]);
    assert!(matches!(connect(&dir).unwrap().vcpu_threads(), Err(QmpError::Protocol(_))));
}

const TWO_CPUS: &str = r#"{"return": [{"cpu-index": 1, "qom-path": "/b", "thread-id": 12},
    {"cpu-index": 0, "qom-path": "/a", "thread-id": 11}]}"#;

/// Counters read from QEMU's answers to the two commands.
fn kvm_counters(stats: &str, cpus: &str) -> Result<Vec<taut_api::kvm::KvmVcpu>, QmpError> {
    let line = |text: &str| text.replace('\n', " ");
    let (dir, _thread) = monitor(GREETING, &[r#"{"return": {}}"#, &line(stats), &line(cpus)]);
    connect(&dir).unwrap().kvm_counters()
}

#[test]
fn kvm_counters_are_ordered_by_vcpu() {
    let stats = r#"{"return": [
        {"provider": "kvm", "qom-path": "/b", "stats": [{"name": "exits", "value": 7}]},
        {"provider": "kvm", "qom-path": "/a", "stats": [{"name": "halt_exits", "value": 18446744073709551615},
            {"name": "halt_wait_hist", "value": [1, 2]}, {"name": "guest_mode", "value": false}]},
        {"provider": "kvm", "qom-path": "/gone", "stats": []},
        {"provider": "cryptodev", "qom-path": "/a", "stats": [{"name": "exits", "value": 1}]}]}"#;
    let vcpus = kvm_counters(stats, TWO_CPUS).unwrap();
    let shown: Vec<_> = vcpus.iter().map(|of| (of.vcpu, of.counters.iter().collect::<Vec<_>>())).collect();
    assert_eq!(shown[0], (0, vec![(&"halt_exits".to_owned(), &u64::MAX)]));
    assert_eq!(shown[1], (1, vec![(&"exits".to_owned(), &7)]));
    assert_eq!(shown.len(), 2);
    assert_eq!(kvm_counters(r#"{"return": []}"#, TWO_CPUS).unwrap(), [], "as under emulation");
}

#[test]
fn malformed_counters_are_errors() {
    let entry =
        |stats: &str| format!(r#"{{"return": [{{"provider": "kvm", "qom-path": "/a", "stats": {stats}}}]}}"#);
    let counter = |value: &str| entry(&format!(r#"[{{"name": "exits", "value": {value}}}]"#));
    let fine = counter("5");
    assert!(kvm_counters(&fine, TWO_CPUS).is_ok());
    let broken = [
        entry("{}"),
        entry("[1]"),
        counter("-1"),
        counter("1.5"),
        counter("\"5\""),
        counter("[5]"),
        r#"{"return": {}}"#.to_owned(),
        r#"{"return": [{"provider": 5}]}"#.to_owned(),
    ];
    for stats in broken {
        assert!(matches!(kvm_counters(&stats, TWO_CPUS), Err(QmpError::Protocol(_))), "{stats}");
    }
    for cpus in [r#"{"return": 1}"#, r#"{"return": [{"cpu-index": 99999999999, "qom-path": "/a"}]}"#] {
        assert!(matches!(kvm_counters(&fine, cpus), Err(QmpError::Protocol(_))), "{cpus}");
    }
    let unknown = r#"{"error": {"class": "CommandNotFound", "desc": "no such command"}}"#;
    assert!(matches!(kvm_counters(unknown, TWO_CPUS), Err(QmpError::Refused { .. })));
}

#[test]
fn a_closed_connection_or_an_endless_line_is_an_error() {
    let (dir, _thread) = monitor(GREETING, &[r#"{"return": {}}"#]);
    assert!(matches!(connect(&dir).unwrap().status(), Err(QmpError::Io(_))), "it ended");
    let endless = " ".repeat(2 << 20);
    let (dir, _thread) = monitor(&endless, &[]);
    assert!(matches!(connect(&dir), Err(QmpError::Protocol(_))));
    let missing = Qmp::connect(Path::new("/nonexistent/qmp"), Duration::from_secs(1));
    assert!(matches!(missing, Err(QmpError::Io(_))));
}

#[test]
fn events_without_end_are_an_error() {
    let event = format!("{{\"event\": \"E\", \"data\": \"{}\"}}\n", "x".repeat(100_000));
    let answer = [&event.repeat(11), r#"{"return": {"status": "running"}}"#].concat();
    let (dir, _thread) = monitor(GREETING, &[r#"{"return": {}}"#, &answer]);
    let mut qmp = connect(&dir).unwrap();
    assert!(matches!(qmp.status(), Err(QmpError::Protocol(_))));
    assert_eq!(qmp.take_events().len(), 10);
}

#[test]
fn silence_ends_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("qmp")).unwrap();
    let silent = Qmp::connect(&dir.path().join("qmp"), Duration::from_millis(20));
    assert!(matches!(silent, Err(QmpError::Io(_))));
    drop(listener);
}

#[test]
fn limits_go_to_the_drive_only_if_there_is_no_group() {
    let limits = taut_api::machine::DiskLimits { bandwidth: None, iops: Some(7) };
    let empty = r#"{"return": {}}"#;
    let refusal = |class: &str| format!(r#"{{"error": {{"class": "{class}", "desc": "no"}}}}"#);
    let set = |answers: &[&str]| {
        let (dir, thread) = monitor(GREETING, answers);
        let done = crate::launch::throttle::set(&mut connect(&dir).unwrap(), limits);
        (done.map_err(|error| error.to_string()), thread.join().unwrap())
    };
    let (done, sent) = set(&[empty, &refusal("DeviceNotFound"), empty]);
    assert!(done.is_ok() && sent[2].contains("block_set_io_throttle"), "{sent:?}");
    let (done, sent) = set(&[empty, &refusal("GenericError")]);
    assert_eq!((done.unwrap_err().as_str(), sent.len()), ("QEMU refused qom-set: no", 2));
}

/// Answers each line on a connection.
fn serve(stream: &UnixStream) {
    for _ in BufReader::new(stream).lines().map_while(Result::ok) {
        if (&*stream).write_all(b"{\"return\": {\"status\": \"running\"}}\n").is_err() {
            return;
        }
    }
}

#[test]
fn a_descriptor_that_does_not_close_holds_up_no_command_until_too_many_wait_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let patience = Duration::from_secs(30);
    let listener = UnixListener::bind(&path).unwrap();
    let socket = MonitorSocket::connect(&path, patience).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let (slow, peer) = taut_tests::lingering().unwrap();
    let greeting = format!("{GREETING}\n");
    let monitor = MonitorSocket::new(stream.try_clone().unwrap(), &ClosingQueue::unreported());
    monitor.send_with(greeting.as_bytes(), slow.as_fd()).unwrap();
    // The receiver's close is the last one.
    drop((slow, monitor));
    // Each connection has a thread: the first one ends only when the descriptor is closed.
    thread::spawn(move || serve(&stream));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            writeln!(&stream, "{GREETING}").unwrap();
            thread::spawn(move || serve(&stream));
        }
    });
    assert_eq!(Qmp::over(socket, patience).unwrap().status().unwrap(), "running");

    // One socket waits to be closed already. The last of these connects while 255 wait, one fewer
    // than make the queue full, however long the loop takes.
    for _ in 1..MOST_WAITING {
        assert_eq!(Qmp::connect(&path, patience).unwrap().status().unwrap(), "running");
    }
    let began = Instant::now();
    let full = loop {
        // The queue is full when the first close has lasted long.
        thread::sleep(Duration::from_millis(50));
        match Qmp::connect(&path, patience) {
            Ok(mut qmp) => assert_eq!(qmp.status().unwrap(), "running"),
            Err(error) => break error,
        }
        assert!(began.elapsed() < patience, "the queue never fills");
    };
    assert!(
        matches!(&full, QmpError::Io(error) if error.kind() == io::ErrorKind::ConnectionAborted),
        "{full:?}"
    );
    drop(peer);
    while Qmp::connect(&path, patience).is_err() {
        assert!(began.elapsed() < 2 * patience, "the queue never empties");
        thread::yield_now();
    }
}
