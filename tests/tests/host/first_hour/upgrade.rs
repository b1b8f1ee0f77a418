//! An upgrade of taut, as the guide describes it: the VMs keep their processes and their links.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

use serde_json::json;
use taut_tests::{Background, Netns, Taut, eventually, kill_9};

#[test]
fn vms_and_traffic_go_on_while_daemon_and_fabric_are_replaced() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m", &crate::micro::micro("10.71.0.1"));
    let probe = Netns::attach(&taut, "probe", "lan", "10.71.0.9");
    let vm = || taut.json(["vm", "show", "m"])["status"]["pid"].clone();
    let before = (vm(), taut.fabric_pid());
    let mut pings = probe.pinging("10.71.0.1", 300, "0.05");
    taut.ok(["shutdown"]);
    taut.kill_daemon();
    taut.restart_daemon();
    let vm = || taut.json(["vm", "show", "m"])["status"]["pid"].clone();
    assert_eq!((vm(), taut.fabric_pid()), before);
    taut.ok(["daemon", "upgrade-fabric"]);
    // Otherwise no echo request would have shown that nothing is lost.
    assert!(pings.are_under_way(), "the upgrade took longer than the pings");
    pings.all_come_back();
    assert_eq!(vm(), before.0);
    assert_eq!(taut.ok(["events"]).matches("netns.attached").count(), 1, "the interface is the same one");
    let daemon = taut.json(["daemon", "show"]);
    assert_eq!(daemon["fabric_version"], daemon["version"], "{daemon}");
    assert_ne!(daemon["fabric_pid"], before.1);
    let version = daemon["version"].as_str().unwrap();
    assert!(taut.ok(["daemon", "show"]).contains(&format!("fabric version  {version}\n")));
}

/// Time at which a process started, in clock ticks after boot.
fn start_time(pid: i64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
}

#[test]
fn a_fabric_with_another_protocol_is_replaced_at_once_and_traffic_comes_back() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m", &crate::micro::micro("10.71.0.1"));
    let probe = Netns::attach(&taut, "probe", "lan", "10.71.0.9");
    probe.reaches("10.71.0.1", 1);
    taut.ok(["shutdown"]);
    taut.kill_daemon();

    // The old fabric gives way to a process that stands for one of another version.
    let (record, socket) = (taut.dir().join("run/fabric.pid"), taut.dir().join("run/fabric.sock"));
    let old: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    kill_9(i32::try_from(old["pid"].as_i64().unwrap()).unwrap());
    let (stand_in, pid) = {
        let mut sleep = Command::new("sh");
        let name = taut.dir().join("stand-in.pid");
        sleep.arg("-c").arg(format!("echo $$ >{}; exec sleep 600", name.display()));
        let stand_in = Background::start(&mut sleep);
        let pid =
            eventually("it says its number", || fs::read_to_string(&name).ok()?.trim().parse::<i64>().ok());
        (stand_in, pid)
    };
    fs::write(&record, json!({ "pid": pid, "start_time": start_time(pid) }).to_string()).unwrap();
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let answers = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut hello = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut hello).unwrap();
        let welcome = json!({ "type": "welcome", "protocol": 99, "pid": pid, "revision": 1 }).to_string();
        stream.write_all(&(welcome.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(welcome.as_bytes()).unwrap();
        String::from_utf8(hello).unwrap()
    });
    taut.restart_daemon();
    assert!(answers.join().unwrap().contains("hello"));
    eventually("another fabric serves", || {
        let now = taut.json(["daemon", "show"])["fabric_pid"].as_i64()?;
        (now != pid).then_some(())
    });
    eventually("traffic is back", || (probe.pings("10.71.0.1", 1) == 1).then_some(()));
    let events = taut.json(["events"]);
    let told = events.as_array().unwrap().iter().find(|event| event["kind"] == "fabric.died").unwrap();
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("the fabric's protocol version is 99, the daemon's "), "{message}");
    drop(stand_in);
}
