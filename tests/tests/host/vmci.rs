//! VMCI sockets through the real daemon: reachability, sockets of the host, and deaths of daemon
//! and fabric.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use taut_tests::{RawVmci, Taut, eventually, idle_microguests, kill_9};
use taut_virtq::SocketHeader;
use taut_virtq::socket_header::{REQUEST, RESPONSE, RST, RW};
use tempfile::TempDir;

use super::access::as_user;

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

/// Connects the guest to a port of the host, and returns the operation of the answer.
fn connect(raw: &mut RawVmci, from: u32, to: u32) -> u16 {
    raw.send(raw.request(from, (HOST, to)), &[]);
    let answers = std::iter::from_fn(|| Some(raw.receive().0));
    let answer = answers.into_iter().find(|answer| answer.dst_port == from).unwrap();
    assert_eq!((answer.src_cid, answer.src_port), (HOST, to));
    answer.op
}

#[test]
fn a_guest_reaches_programs_of_the_host_while_a_daemon_runs() {
    let (mut taut, mut raw, _libexec) = with_raw_guest("m1");
    let socket = PathBuf::from(device(&taut, "m1")["socket"].as_str().unwrap());
    let program = UnixListener::bind(socket.with_file_name("vmci.sock_77")).unwrap();

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

#[test]
fn a_group_has_the_hosts_sockets_until_they_are_taken_back() {
    const MEMBER: u32 = 61_011;
    const OTHER: u32 = 61_012;
    const GROUP: u32 = 61_010;
    let (taut, mut raw, _libexec) = with_raw_guest("m1");
    fs::set_permissions(taut.dir(), Permissions::from_mode(0o755)).unwrap();
    let before = pids(&taut, &["m1"]);
    let own = PathBuf::from(device(&taut, "m1")["socket"].as_str().unwrap());
    let said = taut.refused(["vm", "set", "m1", "--vmci-group", "no-such-group"]);
    assert!(said.contains("this host has no group `no-such-group`") && said.contains("hint: "), "{said}");
    let set = |group: &str| taut.ok(["vm", "set", "m1", "--vmci-group", group]);
    let said = set(&GROUP.to_string());
    assert!(said.contains("vmci group 61010"), "{said}");
    let socket = PathBuf::from(device(&taut, "m1")["group_socket"].as_str().unwrap());
    let shown = taut.ok(["vm", "show", "m1"]);
    assert!(shown.contains(&format!("members of group 61010 use {}", socket.display())), "{shown}");

    // Members reach the guest.
    let reach = |uid, gid| {
        let socket = socket.clone();
        as_user(uid, gid, move || UnixStream::connect(socket).map_err(|error| error.kind()))
    };
    let mut stream = eventually("a member may connect", || reach(MEMBER, GROUP).ok());
    stream.write_all(b"CONNECT 1234\n").unwrap();
    let request = std::iter::from_fn(|| Some(raw.receive().0)).find(|packet| packet.op == REQUEST).unwrap();
    assert_eq!((request.src_cid, request.dst_port), (HOST, 1234));
    assert_eq!(reach(MEMBER, OTHER).unwrap_err(), ErrorKind::PermissionDenied);

    // Members listen for the guest, each for itself.
    let listen = |gid, port: u32| {
        let path = socket.with_file_name(format!("vmci.sock_{port}"));
        as_user(MEMBER, gid, move || UnixListener::bind(path).map_err(|error| error.kind()))
    };
    assert_eq!(listen(OTHER, 77).unwrap_err(), ErrorKind::PermissionDenied);
    let program = listen(GROUP, 77).unwrap();
    assert_eq!(connect(&mut raw, 1000, 77), RESPONSE);
    let _connection = program.accept().unwrap();
    for file in ["vmci.sock", "vmci.sock_77"] {
        let path = socket.with_file_name(file);
        let removed = as_user(OTHER, GROUP, move || fs::remove_file(path).map_err(|error| error.kind()));
        assert_eq!(removed.unwrap_err(), ErrorKind::PermissionDenied, "{file}");
    }

    // A link leads nowhere.
    let private = taut.dir().join("private.sock");
    let _private = UnixListener::bind(&private).unwrap();
    let link = socket.with_file_name("vmci.sock_78");
    as_user(MEMBER, GROUP, move || symlink(private, link).unwrap());
    assert_eq!(connect(&mut raw, 1001, 78), RST);

    // Another group finds nothing of this one, and in the end there is none.
    set("61013");
    eventually("its members may no longer connect", || reach(MEMBER, GROUP).err());
    drop(eventually("those of another group may", || reach(OTHER, 61_013).ok()));
    assert_eq!(connect(&mut raw, 1002, 77), RST);
    set("none");
    eventually("the folder is gone", || (!socket.parent().unwrap().exists()).then_some(()));
    assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(device(&taut, "m1")["group_socket"], Value::Null);
    let _own = UnixListener::bind(own.with_file_name("vmci.sock_77")).unwrap();
    assert_eq!(connect(&mut raw, 1003, 77), RESPONSE);
    assert_eq!(pids(&taut, &["m1"]), before, "the VM was not restarted");
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
