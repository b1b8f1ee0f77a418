//! The console process: logs within bounds, and what is kept when it or the daemon dies.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use taut_tests::{Taut, alive, eventually, kill_9};

/// Limit of a console's log.
const LIMIT: u64 = 4 << 20;

/// Returns the number of the recorded console process, which runs.
fn console_pid(taut: &Taut) -> Option<i32> {
    let record = fs::read(taut.dir().join("run/console.pid")).ok()?;
    let record: Value = serde_json::from_slice(&record).ok()?;
    i32::try_from(record["pid"].as_i64()?).ok().filter(|&pid| alive(pid))
}

fn running(taut: &Taut) -> i32 {
    eventually("a console process runs", || console_pid(taut))
}

/// Counts the fabrics whose first words are in the log.
fn fabrics_told(taut: &Taut) -> usize {
    let log = fs::read(taut.dir().join("log/fabric.log")).unwrap_or_default();
    String::from_utf8_lossy(&log).matches("sandboxed").count()
}

fn kill_fabric(taut: &Taut) {
    let before = taut.fabric_pid();
    kill_9(before);
    eventually("another fabric runs", || {
        let now = taut.json(["daemon", "show"])["fabric_pid"].as_i64()?;
        (now != i64::from(before)).then_some(())
    });
}

/// Resident memory of a process in KiB.
fn memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_console_process_that_is_killed_or_stands_still_is_replaced_and_output_goes_on() {
    let taut = Taut::start();
    let first = running(&taut);
    eventually("the fabric's first words are kept", || (fabrics_told(&taut) == 1).then_some(()));
    kill_9(first);
    let second = eventually("another one runs", || console_pid(&taut).filter(|&pid| pid != first));
    kill_fabric(&taut);
    eventually("the next fabric's words are kept", || (fabrics_told(&taut) == 2).then_some(()));

    kill_process(Pid::from_raw(second).unwrap(), Signal::STOP).unwrap();
    // Nobody waits for it.
    kill_fabric(&taut);
    eventually("it is replaced", || console_pid(&taut).filter(|&pid| pid != second));
    assert!(!alive(second));
    eventually("what was written meanwhile is kept", || (fabrics_told(&taut) == 3).then_some(()));
    let events = taut.json(["events"]);
    let died = events.as_array().unwrap().iter().filter(|event| event["kind"] == "console.died");
    assert_eq!(died.count(), 2, "{events}");
}

#[test]
fn the_next_daemon_adopts_the_console_process() {
    let mut taut = Taut::start();
    let pid = running(&taut);
    eventually("the fabric's first words are kept", || (fabrics_told(&taut) == 1).then_some(()));
    taut.kill_daemon();
    assert!(alive(pid));
    taut.restart_daemon();
    eventually("it is adopted", || {
        let events = taut.json(["events"]);
        let adopted = events.as_array().unwrap().iter().any(|event| event["kind"] == "console.adopted");
        adopted.then_some(())
    });
    assert_eq!(running(&taut), pid);
    kill_fabric(&taut);
    eventually("the next fabric's words are kept", || (fabrics_told(&taut) == 2).then_some(()));
}

#[test]
fn a_console_takes_a_flood_of_input_that_its_guest_does_not_read() {
    let taut = Taut::start();
    let disk = taut.file("empty.img", "");
    fs::File::options().write(true).open(&disk).unwrap().set_len(1 << 20).unwrap();
    let file = taut.file("vm.toml", "memory = \"64MiB\"\n[disk]\npath = \"empty.img\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "mute", "--start"]);
    let status = taut.json(["vm", "show", "mute"])["status"].clone();
    let path = |key: &str| PathBuf::from(status[key].as_str().unwrap());
    let log = path("console_log");
    assert_eq!(log, taut.dir().join("log/vms/mute/console.log"));
    let mut person =
        eventually("the console is connected", || UnixStream::connect(path("console_socket")).ok());
    let block = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        person.write_all(&block).unwrap();
    }
    assert!(UnixStream::connect(path("console_socket")).is_ok(), "others still get in");
    assert!(log.metadata().unwrap().len() <= LIMIT);
    let used = memory(running(&taut));
    assert!(used < 32 << 10, "{used} KiB");
    taut.ok(["vm", "delete", "--force", "mute"]);
    eventually("its logs are removed", || (!log.parent().unwrap().exists()).then_some(()));
}

/// A file system of its own that is taken away at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, size: &str) -> Self {
        let size = format!("size={size},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at).status();
        assert!(mounted.unwrap().success());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A failed test may still have files open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_of_logs_stops_nothing_and_what_waited_is_written_when_there_is_room() {
    let mut taut = Taut::start();
    taut.shut_down();
    let log = taut.dir().join("log");
    let disk = Mounted::new(&log, "256k");
    taut.restart_daemon();
    eventually("the fabric's first words are kept", || (fabrics_told(&taut) == 1).then_some(()));
    let filler = log.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write(&[b'x'; 4096]).is_ok() {}
    // The last page of the log still has room.
    let mut rest = fs::File::options().append(true).open(log.join("fabric.log")).unwrap();
    while rest.write(b".").is_ok() {}
    for _ in 0..3 {
        kill_fabric(&taut);
    }
    assert_eq!(fabrics_told(&taut), 1, "the disk is full");
    fs::remove_file(filler).unwrap();
    drop(file);
    eventually("all fabrics' words are kept", || (fabrics_told(&taut) == 4).then_some(()));
    taut.shut_down();
    drop(disk);
    taut.restart_daemon();
}
