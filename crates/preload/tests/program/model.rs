//! Random operations on two connections, one by TCP and one with the library (`model` of the
//! example `tcp_program`).

use std::sync::Arc;
use std::time::Duration;

use crate::fabric::{Fabric, Trouble};
use crate::relay::Relay;
use crate::{LONGEST, built, program, run_within, stderr, stdout};

/// Operations, unless `TAUT_MODEL_OPERATIONS` says another number.
const OPERATIONS: u64 = 10_000;

/// Takes a number out of a line of the program.
fn number(line: &str, before: &str, after: &str) -> u64 {
    let rest = line.split_once(before).unwrap_or_else(|| panic!("{line}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("{line}")).0.parse().unwrap()
}

fn compare(rings: Option<Trouble>, operations: u64, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let fabric = rings.map(|trouble| Arc::new(Fabric::start(folder.path(), trouble)));
    let relay = Relay::start_with(&folder.path().join("vm.sock"), fabric.clone().map(|it| it as _));
    let text = "127.0.0.1:* -> unix SOCKET\nlisten 127.0.0.1:* -> unix SOCKET\npatience 5000 ms\n";
    let mut command = program("model");
    command.args(["both", &operations.to_string(), &seed.to_string()]);
    command.env("LD_PRELOAD", built("libtaut_vmci.so")).env("TAUT_VMCI_MAP", crate::map(folder.path(), text));
    command.env("TAUT_VMCI_LOG", "1");
    match &fabric {
        Some(fabric) => command.env("TAUT_VMCI_RINGS_TRIAL", fabric.variable()),
        None => command.env("TAUT_VMCI_RINGS", "0"),
    };
    let limit = LONGEST + Duration::from_millis(5 * operations);
    let output = run_within(command, limit);
    let said = stdout(&output);
    let summary = said.lines().find(|line| line.starts_with("model: ")).unwrap_or_else(|| panic!("{said}"));
    println!("{}: {summary}", if rings.is_some() { "rings" } else { "packets" });
    assert_eq!(number(summary, " connections, ", " differences"), 0, "{said}");
    assert!(number(summary, "model: ", " operations") >= operations, "{summary}");
    assert!(!said.contains(": differs."), "{said}");
    let log = stderr(&output);
    assert!(!log.contains("hint: "), "nothing to complain of: {log}");
    // Each connection was the library's, and with queue pairs both of its ends were attached.
    let connections = number(summary, " scenarios, ", " connections") as usize;
    assert_eq!(relay.connections(), connections);
    if let Some(fabric) = fabric {
        let (attached, left) = (fabric.counts().0, log.matches(": by packets again, after channel ").count());
        println!("rings: {attached} ends attached, {left} have left.");
        assert!(attached > connections && attached <= 2 * connections, "{attached} of {connections}");
        assert!(left > 0, "no connection has left its queue pair");
    }
}

fn operations() -> u64 {
    std::env::var("TAUT_MODEL_OPERATIONS").map_or(OPERATIONS, |count| count.parse().unwrap())
}

#[test]
fn operations_are_the_same_by_rings_and_by_tcp() {
    compare(Some(Trouble::None), operations(), 1);
}

#[test]
fn signals_without_a_reason_change_nothing() {
    compare(Some(Trouble::Signals), OPERATIONS.min(operations()), 4);
}

#[test]
fn operations_are_the_same_by_packets_and_by_tcp() {
    compare(None, OPERATIONS.min(operations()), 2);
}

/// The comparison itself: by TCP, both are the same.
#[test]
fn operations_are_the_same_by_tcp_twice() {
    let mut command = program("model");
    command.args(["both", "3000", "3"]);
    let said = stdout(&run_within(command, LONGEST));
    assert!(
        said.contains(" 0 differences, 0 resets as ends, 0 times not writable, 0 short reads, "),
        "{said}"
    );
}
