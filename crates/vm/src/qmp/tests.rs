//! Against a monitor that says what the test wants.

use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use super::*;

const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;

/// A monitor that greets, then answers each line that it reads with the next of `answers`; returns what it read.
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
fn refusals_carry_qemus_words() {
    let refusal = r#"{"error": {"class": "GenericError", "desc": "not now"}}"#;
    let (dir, _thread) = monitor(GREETING, &[r#"{"return": {}}"#, refusal]);
    let error = connect(&dir).unwrap().powerdown().unwrap_err();
    assert_eq!(error.to_string(), "QEMU refused system_powerdown: not now");
}

#[test]
fn what_is_no_monitor_is_said_to_be_none() {
    for greeting in ["HTTP/1.1 400 Bad Request", "{}", "[1]", "17", &"x".repeat(300)] {
        let (dir, _thread) = monitor(greeting, &[]);
        assert!(matches!(connect(&dir), Err(QmpError::Protocol(_))), "{greeting}");
    }
}

#[test]
fn answers_of_another_shape_are_errors() {
    let empty = r#"{"return": {}}"#;
    for answer in [r#"{"return": {"status": 5}}"#, r#"{"nothing": 1}"#, "garbage"] {
        let (dir, _thread) = monitor(GREETING, &[empty, answer]);
        assert!(matches!(connect(&dir).unwrap().status(), Err(QmpError::Protocol(_))), "{answer}");
    }
    let (dir, _thread) =
        monitor(GREETING, &[empty, r#"{"return": [{"cpu-index": 0, "thread-id": 99999999999}]}"#]);
    assert!(matches!(connect(&dir).unwrap().vcpu_threads(), Err(QmpError::Protocol(_))));
}

#[test]
fn a_monitor_that_goes_away_or_talks_without_end_is_an_error() {
    let (dir, _thread) = monitor(GREETING, &[r#"{"return": {}}"#]);
    assert!(matches!(connect(&dir).unwrap().status(), Err(QmpError::Io(_))), "it ended");
    let endless = " ".repeat(2 << 20);
    let (dir, _thread) = monitor(&endless, &[]);
    assert!(matches!(connect(&dir), Err(QmpError::Protocol(_))));
    let missing = Qmp::connect(Path::new("/nonexistent/qmp"), Duration::from_secs(1));
    assert!(matches!(missing, Err(QmpError::Io(_))));
}

#[test]
fn silence_ends_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("qmp")).unwrap();
    let silent = Qmp::connect(&dir.path().join("qmp"), Duration::from_millis(20));
    assert!(matches!(silent, Err(QmpError::Io(_))));
    drop(listener);
}
