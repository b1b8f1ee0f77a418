//! Acts of a front end or another user that reach nobody else, and a fabric that stands still.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use taut_tests::{Netns, RawPort, Taut, alive, eventually, kill_9};

use crate::micro::micro;

const MAC: [u8; 6] = [0x02, 0x66, 0, 0, 0, 1];

/// Returns the events of a kind.
fn events(taut: &Taut, kind: &str) -> Vec<Value> {
    let events = taut.json(["events"]);
    events.as_array().unwrap().iter().filter(|event| event["kind"] == kind).cloned().collect()
}

#[test]
fn a_port_whose_front_end_stops_a_worker_is_in_quarantine_until_its_user_detaches_it() {
    let taut = Taut::start().with_lan();
    let hostile = RawPort::attach(&taut, "hostile", "lan", MAC);
    hostile.block_interrupts();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    a.reaches(&b.ip, 5);
    let quarantined = || {
        let reason = hostile.info(&taut)["reason"].as_str()?.to_owned();
        reason.contains("in quarantine").then_some(())
    };
    eventually("the port is in quarantine", quarantined);
    let told = events(&taut, "port.quarantined");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["subject"], "external/hostile");

    let fabric = taut.fabric_pid();
    kill_9(fabric);
    eventually("another fabric runs", || (taut.fabric_pid() != fabric).then_some(()));
    a.reaches(&b.ip, 5);
    eventually("it is in quarantine with the next fabric, too", quarantined);

    taut.ok(["port", "detach", "hostile"]);
    let again = RawPort::attach(&taut, "hostile", "lan", MAC);
    assert_eq!(again.info(&taut)["link"], "up");
}

#[test]
fn a_fabric_that_stands_still_is_replaced() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.3"));
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    a.reaches("10.71.0.3", 1);
    let before = taut.fabric_pid();
    kill_process(Pid::from_raw(before).unwrap(), Signal::STOP).unwrap();
    eventually("another fabric runs", || {
        let pid = taut.json(["daemon", "show"])["fabric_pid"].as_i64()?;
        (pid != i64::from(before)).then_some(())
    });
    assert!(!alive(before));
    eventually("traffic is back", || (a.pings("10.71.0.3", 1) == 1).then_some(()));
    let died = events(&taut, "fabric.died");
    assert_eq!(died.len(), 1, "{died:?}");
    assert!(died[0]["message"].as_str().unwrap().contains("it has not answered for 5s"), "{died:?}");
}

#[test]
fn other_users_can_neither_lock_nor_read_nor_connect() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.3"));
    let [state, run, log] = ["state", "run", "log"].map(|folder| taut.dir().join(folder));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&run), mode(&log)), (0o700, 0o711, 0o700));
    let mut open = Vec::new();
    let mut folders = vec![state, run.clone(), log];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_dir() {
                folders.push(path);
            } else if (kind.is_file() || kind.is_socket()) && mode(&path) & 0o077 != 0 {
                open.push((mode(&path), path));
            }
        }
    }
    open.sort();
    let sockets = ["page.sock", "tautd.sock"].map(|name| (0o660, run.join(name)));
    assert_eq!(open, sockets, "only the sockets of the page and the API have a group");
}
