//! VMCI sockets through the real daemon: reachability, sockets of the host, and deaths of daemon
//! and fabric.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use taut_tests::{RawVmci, Taut, eventually, idle_microguests, kill_9};
use taut_virtq::SocketHeader;
use taut_virtq::socket_header::{REQUEST, RESPONSE, RST, RW};
use tempfile::TempDir;

const HOST: u64 = 2;

/// Creates and starts a microguest with a VMCI device.
fn micro(taut: &Taut, name: &str, vmci: &str) {
    let file =
        taut.file(&format!("{name}.toml"), &format!("kind = \"micro\"\nmemory = \"64MiB\"\n[vmci]\n{vmci}"));
    let name = OsStr::new(name);
    taut.ok(["vm".as_ref(), "create".as_ref(), "-f".as_ref(), file.as_os_str(), "--name".as_ref(), name]);
    taut.ok(["vm".as_ref(), "start".as_ref(), name]);
}

fn device(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"]["vmci"].clone()
}

fn are_up(taut: &Taut, vms: &[&str]) {
    for vm in vms {
        eventually("the device is up", || (device(taut, vm)["link"] == "up").then_some(()));
    }
}

fn pids(taut: &Taut, vms: &[&str]) -> Vec<Value> {
    vms.iter().map(|vm| taut.json(["vm", "show", vm])["status"]["pid"].clone()).collect()
}

/// Transfers bulk data over VMCI sockets for a moment.
const STREAM: [&str; 7] = [
    "bench",
    "vsock",
    "--duration=1",
    "--message=4KiB",
    "--socket-size=64KiB",
    "--mode=stream",
    "--repeat=1",
];

fn transfers(taut: &Taut, from: &str, to: &str) {
    taut.ok(STREAM.into_iter().chain([from, to]));
}

fn is_refused(taut: &Taut, from: &str, to: &str) {
    let said = taut.refused(STREAM.into_iter().chain([from, to]));
    assert!(said.contains("refused"), "{said}");
}

#[test]
fn domains_decide_who_may_talk_and_change_at_once() {
    let mut taut = Taut::start();
    let both = &["m1", "m2"];
    for vm in both {
        micro(&taut, vm, "");
    }
    are_up(&taut, both);
    is_refused(&taut, "m1", "m2");
    assert_eq!(device(&taut, "m1")["counters"]["refused"], 1);
    transfers(&taut, "m1", "host");
    transfers(&taut, "host", "m1");

    taut.ok(["vm", "set", "m1", "--vmci-domains", "a,b"]);
    taut.ok(["vm", "set", "m2", "--vmci-domains", "b,c"]);
    eventually("a common domain lets them talk", || {
        taut.run(STREAM.into_iter().chain(["m1", "m2"])).success.then_some(())
    });
    taut.ok(["vm", "set", "m2", "--vmci-domains", "none", "--vmci-unrestricted"]);
    eventually("without one they do not", || {
        (!taut.run(STREAM.into_iter().chain(["m1", "m2"])).success).then_some(())
    });
    taut.ok(["vm", "set", "m1", "--vmci-unrestricted"]);
    eventually("two unrestricted ones do", || {
        taut.run(STREAM.into_iter().chain(["m2", "m1"])).success.then_some(())
    });
    let before = pids(&taut, both);

    // After an upgrade and a crash of the fabric the VMs can talk again.
    taut.ok(["daemon", "upgrade-fabric"]);
    transfers(&taut, "m1", "m2");
    let fabric = taut.fabric_pid();
    kill_9(fabric);
    eventually("another fabric runs", || (taut.fabric_pid() != fabric).then_some(()));
    are_up(&taut, both);
    transfers(&taut, "m1", "m2");
    transfers(&taut, "host", "m2");
    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    kill_9(fabric);
    taut.restart_daemon();
    are_up(&taut, both);
    transfers(&taut, "m1", "m2");
    transfers(&taut, "host", "m2");
    assert_eq!(pids(&taut, both), before);
}

#[test]
fn context_ids_are_configured_or_assigned_and_unique() {
    let taut = Taut::start();
    micro(&taut, "m1", "");
    micro(&taut, "m2", "cid = 77\n");
    let file = taut.file("m3.toml", "kind = \"micro\"\nmemory = \"64MiB\"\n[vmci]\ncid = 77\n");
    let create = ["vm", "create", "--name", "m3", "-f", file.to_str().unwrap()];
    let said = taut.refused(create);
    assert!(said.contains("77 of VM `m3` belongs to VM `m2`"), "{said}");
    let listed = taut.json(["vmci", "list"]);
    let cids: Vec<_> =
        listed.as_array().unwrap().iter().map(|vm| vm["status"]["vmci"]["cid"].clone()).collect();
    assert_eq!(cids, [3, 77]);
    taut.ok(["vm", "delete", "--force", "m2"]);
    taut.ok(create);
    assert_eq!(device(&taut, "m3")["cid"], 77);
}

/// Starts a daemon whose microguests leave their VMCI devices to the test. The returned folder has
/// to live as long.
fn with_raw_guest(vm: &str) -> (Taut, RawVmci, TempDir) {
    let dir = taut_tests::directory();
    let libexec = idle_microguests(dir.path()).into_os_string().into_string().unwrap();
    let args: Vec<&'static str> = vec!["--libexec", Box::leak(libexec.into_boxed_str())];
    let taut = Taut::start_with(Box::leak(args.into_boxed_slice()));
    micro(&taut, vm, "");
    let raw = RawVmci::start(&taut, vm);
    (taut, raw, dir)
}

#[test]
fn a_forged_context_id_causes_an_event() {
    let (taut, mut raw, _libexec) = with_raw_guest("m1");
    assert_eq!(raw.cid, 3);
    let forged = SocketHeader { src_cid: 4, ..raw.request(1000, (HOST, 77)) };
    raw.send(forged, &[]);
    let event = eventually("it is an event", || {
        let events = taut.json(["events"]);
        events.as_array()?.iter().find(|event| event["kind"] == "vmci.violation").cloned()
    });
    assert_eq!((&event["subject"], &event["level"]), (&"vm/m1/vmci".into(), &"warning".into()));
    assert!(event["message"].as_str().unwrap().contains("context ID 4"), "{event}");
    assert_eq!(device(&taut, "m1")["counters"]["forged"], 1);
}

#[test]
fn a_guest_reaches_programs_of_the_host_while_a_daemon_runs() {
    let (mut taut, mut raw, _libexec) = with_raw_guest("m1");
    let socket = PathBuf::from(device(&taut, "m1")["socket"].as_str().unwrap());
    let program = UnixListener::bind(socket.with_file_name("vmci.sock_77")).unwrap();

    let connect = |raw: &mut RawVmci, from: u32, to: u32| {
        raw.send(raw.request(from, (HOST, to)), &[]);
        let (answer, _) = raw.receive();
        assert_eq!((answer.src_cid, answer.src_port, answer.dst_port), (HOST, to, from));
        answer.op
    };
    assert_eq!(connect(&mut raw, 1000, 77), RESPONSE);
    let (mut stream, _) = program.accept().unwrap();
    assert_eq!(connect(&mut raw, 1001, 78), RST, "nobody listens there");

    // The connection survives the daemon, and a new one is possible after its restart.
    taut.kill_daemon();
    raw.send(SocketHeader { op: RW, ..raw.request(1000, (HOST, 77)) }, b"still here");
    let mut heard = [0; 10];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
    assert_eq!(connect(&mut raw, 1002, 77), RST, "nobody opens the socket");
    taut.restart_daemon();
    eventually("the next daemon answers", || (connect(&mut raw, 1003, 77) == RESPONSE).then_some(()));
}

fn signal(pid: i32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn programs_of_the_host_reach_the_guest_after_a_new_daemon_and_fabric() {
    let (mut taut, mut raw, _libexec) = with_raw_guest("m1");
    let socket = PathBuf::from(device(&taut, "m1")["socket"].as_str().unwrap());
    let reach = |raw: &mut RawVmci| {
        assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(b"CONNECT 1234\n").unwrap();
        // The previous connection may still be ending.
        let request =
            std::iter::from_fn(|| Some(raw.receive().0)).find(|packet| packet.op == REQUEST).unwrap();
        assert_eq!((request.src_cid, request.dst_cid, request.dst_port), (HOST, raw.cid, 1234));
        let connection = raw.request(1234, (HOST, request.src_port));
        raw.send(SocketHeader { op: RESPONSE, ..connection }, &[]);
        let mut said = [0; 3];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"OK ");
        (stream, connection)
    };
    reach(&mut raw);
    taut.kill_daemon();
    reach(&mut raw);
    taut.restart_daemon();
    are_up(&taut, &["m1"]);
    let (mut stream, connection) = reach(&mut raw);

    // A connection continues in the next fabric, which receives its socket.
    taut.ok(["daemon", "upgrade-fabric"]);
    raw.send(SocketHeader { op: RW, ..connection }, b"after");
    let mut heard = String::new();
    eventually("the rest of the greeting and the bytes arrive", || {
        let mut some = [0; 64];
        let got = stream.read(&mut some).unwrap();
        assert!(got > 0, "the connection has ended after {heard:?}");
        heard.push_str(std::str::from_utf8(&some[..got]).unwrap());
        heard.ends_with("\nafter").then_some(())
    });
    stream.write_all(b"and back").unwrap();
    let packet = std::iter::from_fn(|| Some(raw.receive())).find(|(header, _)| header.op == RW).unwrap();
    assert_eq!((packet.0.dst_port, &packet.1[..]), (1234, &b"and back"[..]));

    // The same holds if the old fabric gets no CPU for a while before it can stop.
    let (last, next) = (taut.fabric_pid(), taut.dir().join("run/fabric.next.sock"));
    signal(last, "STOP");
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| taut.ok(["daemon", "upgrade-fabric"]));
        eventually("the next one is there", || next.exists().then_some(()));
        std::thread::sleep(Duration::from_millis(1500));
        signal(last, "CONT");
        upgrade.join().unwrap();
    });
    raw.send(SocketHeader { op: RW, ..connection }, b"again");
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"again");
    reach(&mut raw);
}
