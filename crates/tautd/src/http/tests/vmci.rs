//! VMCI devices through the API.

use taut_api::Bytes;
use taut_api::fabric::PortId;
use taut_api::fabric::config::QueuePairMemory;
use taut_plan::facts::MachineSize;

use super::*;

fn micro(vmci: &str) -> String {
    format!("kind = \"micro\"\n[vmci]\n{vmci}")
}

fn change(server: &Server, name: &str, body: &Value) -> Answer {
    server.patch(&format!("/v1/vms/{name}"), &json!({ "vmci": body }))
}

#[test]
fn context_ids_are_assigned_kept_unique_and_freed() {
    let server = Server::new();
    let cid = |name: &str| server.get(&format!("/v1/vms/{name}")).is(200)["spec"]["vmci"]["cid"].clone();
    server.create("a", &micro("")).is(201);
    server.create("b", &micro("cid = 5\n")).is(201);
    let created = server.create("c", &micro("")).is(201);
    assert_eq!([cid("a"), cid("b"), cid("c")], [3, 5, 4]);
    assert_eq!(created["vm"]["status"]["vmci"]["cid"], 4);
    server.create("d", &micro("cid = 5\n")).refuses(409, &["5 of VM `d` belongs to VM `b`", "leave `cid`"]);
    server.create("d", &micro("cid = 1\n")).refuses(400, &["context ID 1", "3 to 4294967294"]);
    server.delete("/v1/vms/a").is(204);
    server.create("d", &micro("")).is(201);
    assert_eq!([cid("d"), cid("c")], [3, 4]);

    let kept = server.app.store.state();
    let Server { dir, app, .. } = server;
    drop(app);
    assert_eq!(Store::open(dir.path()).unwrap().state(), kept);
}

#[test]
fn a_device_is_changed_added_and_removed() {
    let server = Server::new();
    server.create("a", "kind = \"micro\"\n").is(201);
    change(&server, "a", &json!({ "domains": ["x"] }))
        .refuses(409, &["no VMCI device", "taut vm set a --vmci"]);
    change(&server, "b", &json!({})).refuses(404, &["`b`"]);
    let added = change(&server, "a", &json!({ "present": true, "unrestricted": true })).is(200);
    assert_eq!(added["spec"]["vmci"], json!({ "cid": 3, "unrestricted": true }));
    let changed = change(&server, "a", &json!({ "domains": ["x", "y"], "unrestricted": false })).is(200);
    assert_eq!(changed["spec"]["vmci"], json!({ "cid": 3, "domains": ["x", "y"] }));
    let before = server.revision();
    change(&server, "a", &json!({ "domains": ["x", "x"] })).refuses(400, &["`x` is named twice"]);
    change(&server, "a", &json!({ "domains": ["x y"] })).refuses(400, &["x y"]);
    change(&server, "a", &json!({ "connections": 65537 })).refuses(400, &["connections = 65537"]);
    change(&server, "a", &json!({ "cid": 2 })).refuses(400, &["context ID 2", "3 to 4294967294"]);
    change(&server, "a", &json!({ "cdi": 7 })).refuses(400, &["cdi"]);
    change(&server, "a", &json!({ "present": false, "domains": [] }))
        .refuses(400, &["removes the VMCI device", "one of the two requests"]);
    assert_eq!(server.revision(), before);
    let removed = change(&server, "a", &json!({ "present": false })).is(200);
    assert_eq!((&removed["spec"]["vmci"], &removed["status"]["vmci"]), (&Value::Null, &Value::Null));
}

#[test]
fn members_name_a_group_and_the_answer_has_its_socket() {
    let server = Server::new();
    server.create("a", &micro("")).is(201);
    let of = |uid, group: &str| {
        let body = json!({ "vmci": { "group": group } }).to_string();
        server.ask_as(uid, Request::patch("/v1/vms/a").body(Body::from(body)).unwrap())
    };
    of(DEFINER, "0").refuses(403, &["user 60003 is not a member of the group `0`", "administrator"]);
    of(0, "no-such-group").refuses(400, &["this host has no group `no-such-group`", "getent group"]);
    of(0, "a/b").refuses(400, &["a/b"]);
    // The user's first group has its number.
    let named = of(DEFINER, "60003").is(200);
    assert_eq!(named["spec"]["vmci"]["group"], "60003");
    let socket = server.dir.path().join("vmci/a/vmci.sock");
    assert_eq!(named["status"]["vmci"]["group_socket"], socket.to_str().unwrap());
    // A group without the socket is not told of one.
    let problem = || ("vm/a/vmci/group".to_owned(), "no room".to_owned());
    server.app.board.lock().problems.extend([problem()]);
    let status = server.get("/v1/vms/a").is(200)["status"]["vmci"].clone();
    assert_eq!((&status["group_socket"], &status["reason"]), (&Value::Null, &"no room".into()));
    server.app.board.lock().forget_group_problems(&["vm/a/vmci/group".to_owned()].into());
    assert_eq!(server.app.board.lock().problems.len(), 1);
    server.app.board.lock().forget_group_problems(&["vm/b/vmci/group".to_owned()].into());
    assert!(server.app.board.lock().problems.is_empty(), "the VM of the problem is gone");
    let unnamed = of(DEFINER, "none").is(200);
    assert_eq!(unnamed["spec"]["vmci"], json!({ "cid": 3 }));
    assert_eq!(unnamed["status"]["vmci"]["group_socket"], Value::Null);
}

#[test]
fn a_device_gets_the_context_id_that_is_asked_for() {
    let server = Server::new();
    server.create("a", "kind = \"micro\"\n").is(201);
    server.create("b", &micro("")).is(201);
    let restored = json!({ "present": true, "cid": 7, "domains": ["shop"] });
    let added = change(&server, "a", &restored).is(200);
    assert_eq!(added["spec"]["vmci"], json!({ "cid": 7, "domains": ["shop"] }));
    change(&server, "b", &json!({ "cid": 7 })).refuses(409, &["7 of VM `b` belongs to VM `a`", "--vmci-cid"]);
    let moved = change(&server, "b", &json!({ "cid": 9 })).is(200);
    assert_eq!(moved["spec"]["vmci"], json!({ "cid": 9 }));
    let free = change(&server, "a", &json!({ "cid": 0 })).is(200);
    assert_eq!(free["spec"]["vmci"], json!({ "cid": 3, "domains": ["shop"] }));
}

#[test]
fn queue_pairs_are_a_size_that_only_qemus_vms_have() {
    let server = Server::new();
    std::fs::write(server.dir.path().join("disk"), "x").unwrap();
    let qemu = "[disk]\npath = \"disk\"\n[vmci]\n";
    let created = server.create("q", &format!("{qemu}queue_pairs = \"4MiB\"\n")).is(201);
    assert_eq!(created["vm"]["spec"]["vmci"], json!({ "cid": 3, "queue_pairs": "4MiB" }));
    let set = |size: &str| change(&server, "q", &json!({ "queue_pairs": size }));
    let before = server.revision();
    set("3MiB").refuses(400, &["queue_pairs = 3MiB is no power of two from 4MiB to 1GiB", "use 4MiB"]);
    set("2GiB").refuses(400, &["queue_pairs = 2GiB", "use 1GiB"]);
    set("much").refuses(400, &["`much` is not a size"]);
    server.create("m", &micro("")).is(201);
    change(&server, "m", &json!({ "queue_pairs": "16MiB" }))
        .refuses(400, &["a micro VM has no queue pairs", "remove `queue_pairs`"]);
    change(&server, "m", &json!({ "queue_pairs": "0" })).is(200);
    change(&server, "m", &json!({ "queue_pairs_room": "16MiB" }))
        .refuses(400, &["queue_pairs_room = 16MiB", "remove `queue_pairs_room`"]);
    change(&server, "q", &json!({ "queue_pairs_room": "3MiB" })).refuses(400, &["queue_pairs_room = 3MiB"]);
    assert_eq!(server.get("/v1/vms/q").is(200)["revision"], json!(before));
    assert_eq!(set("1GiB").is(200)["spec"]["vmci"], json!({ "cid": 3, "queue_pairs": "1GiB" }));
    assert_eq!(set("0").is(200)["spec"]["vmci"], json!({ "cid": 3 }));
    assert_eq!(set("16MiB").is(200)["status"]["vmci"]["queue_pairs"], Value::Null, "it is off");

    let memory = QueuePairMemory { inode: 7, offset: Bytes::mib(2), size: Bytes::mib(8), ring: None };
    let mut process = process(VmKind::Qemu, VmAccelerator::Tcg);
    (process.vmci, process.queue_pairs) = (true, Some(memory));
    let seen = VmSeen { process: Some(process), ..VmSeen::default() };
    let name: Name = "q".parse().unwrap();
    server.app.board.lock().observed.vms.insert(name.clone(), seen);
    let problem = (crate::board::queue_pairs_document(&name), "their memory is gone".to_owned());
    server.app.board.lock().problems.extend([problem]);
    let status = server.get("/v1/vms/q").is(200)["status"]["vmci"].clone();
    assert_eq!((&status["queue_pairs"], &status["reason"]), (&json!("8MiB"), &json!("their memory is gone")));
    let port = PortId(status["port"].as_u64().unwrap() as u16);
    server.app.board.lock().observed.fabric.ports.entry(port).or_default().unused_queue_pairs =
        Some("the fabric refuses".to_owned());
    let status = &server.get("/v1/vms/q").is(200)["status"]["vmci"];
    assert_eq!(status["reason"], json!("their memory is gone; the fabric refuses"));
    server.app.board.lock().forget_problems_of_process(&name);
    assert!(server.app.board.lock().problems.is_empty());
}

#[test]
fn a_running_vm_with_room_is_told_to_get_queue_pairs_now() {
    let server = Server::new();
    std::fs::write(server.dir.path().join("disk"), "x").unwrap();
    let room = "[disk]\npath = \"disk\"\n[vmci]\nqueue_pairs_room = \"64MiB\"\n";
    let created = server.create("q", room).is(201);
    assert_eq!(created["vm"]["spec"]["vmci"], json!({ "cid": 3, "queue_pairs_room": "64MiB" }));
    let mut process = process(VmKind::Qemu, VmAccelerator::Tcg);
    (process.vmci, process.queue_pairs_room) = (true, Bytes::mib(64));
    process.machine.size =
        Some(MachineSize { vcpus: 1, memory: Bytes::mib(256), queue_pairs: Bytes::default() });
    let seen = VmSeen { process: Some(process), ..VmSeen::default() };
    let name: Name = "q".parse().unwrap();
    let problem = (crate::board::queue_pairs_document(&name), "taut tries again".to_owned());
    let mut board = server.app.board.lock();
    board.observed.vms.insert(name, seen);
    board.problems.extend([problem]);
    drop(board);

    let now = change(&server, "q", &json!({ "queue_pairs": "16MiB" })).is(200)["status"].clone();
    assert_eq!(
        (&now["vmci"]["queue_pairs"], &now["vmci"]["queue_pairs_room"]),
        (&Value::Null, &json!("64MiB"))
    );
    assert_eq!(now["vmci"]["reason"], "taut tries again");
    assert_eq!(
        now["machine"]["missing"],
        json!(["its memory for queue pairs is not there yet: QEMU has not confirmed it"])
    );
    let later = change(&server, "q", &json!({ "queue_pairs": "128MiB" })).is(200)["status"].clone();
    let told = later["machine"]["decisions"].to_string();
    assert!(
        told.contains("128MiB from its next start on") && later["machine"]["missing"].is_null(),
        "{told}"
    );
    assert_eq!(later["vmci"]["reason"], Value::Null, "nothing is tried");
}

#[test]
fn status_shows_the_observed_device() {
    let server = Server::new();
    server.create("a", &micro("domains = [\"x\"]\n")).is(201);
    server.post("/v1/vms/a/power", &json!({ "power": "on" })).is(200);
    let vmci = |server: &Server| server.get("/v1/vms/a").is(200)["status"]["vmci"].clone();
    let socket = server.dir.path().join("vms/a/vmci.sock");
    assert_eq!(vmci(&server)["socket"], socket.to_str().unwrap());
    assert_eq!((&vmci(&server)["link"], &vmci(&server)["port"]), (&json!("down"), &json!(0)));

    let mut board = server.app.board.lock();
    let port = board.observed.fabric.ports.entry(PortId(0)).or_default();
    port.reason = Some("no front end has connected".into());
    let process = Process { vmci: true, ..process(VmKind::Micro, VmAccelerator::Native) };
    let name: Name = "a".parse().unwrap();
    board.observed.vms.insert(name.clone(), VmSeen { process: Some(process), ..VmSeen::default() });
    drop(board);
    assert_eq!(vmci(&server)["reason"], "no front end has connected");
    let mut board = server.app.board.lock();
    board.observed.vms.get_mut(&name).unwrap().process.as_mut().unwrap().vmci = false;
    drop(board);
    assert!(vmci(&server)["reason"].as_str().unwrap().contains("next start"));
}

#[test]
fn adding_or_removing_the_device_of_a_running_vm_needs_a_restart() {
    let server = Server::new();
    server.create("a", "kind = \"micro\"\n").is(201);
    server.post("/v1/vms/a/power", &json!({ "power": "on" })).is(200);
    let name: Name = "a".parse().unwrap();
    let runs_with = |vmci| {
        let process = Process { vmci, ..process(VmKind::Micro, VmAccelerator::Native) };
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        server.app.board.lock().observed.vms.insert(name.clone(), seen);
    };
    let restart = |answer: Value| answer["status"]["machine"]["decisions"][0].clone();
    runs_with(false);
    let added = restart(change(&server, "a", &json!({ "present": true })).is(200));
    assert_eq!((&added["restart"], added["decision"].to_string().contains("added")), (&json!(true), true));
    runs_with(true);
    assert_eq!(restart(server.get("/v1/vms/a").is(200)), Value::Null, "the guest has it");
    let removed = restart(change(&server, "a", &json!({ "present": false })).is(200));
    assert!(removed["decision"].to_string().contains("removed"), "{removed}");
    runs_with(false);
    assert_eq!(restart(server.get("/v1/vms/a").is(200)), Value::Null, "it is gone");
}

#[test]
fn qemu_waits_until_its_vmci_socket_is_served() {
    let server = Server::new();
    std::fs::write(server.dir.path().join("disk"), "x").unwrap();
    server.create("q", "[disk]\npath = \"disk\"\n[vmci]\n").is(201);
    server.app.board.lock().observed.host.probed = true;
    server.post("/v1/vms/q/power", &json!({ "power": "on" })).is(200);
    server.app.board.lock().refused_ports.insert(PortId(0), "too many devices".into());
    let status = server.get("/v1/vms/q").is(200)["status"].clone();
    assert_eq!(status["phase"], "starting");
    assert_eq!(status["reason"], "the fabric does not listen for its VMCI device yet: too many devices");
    assert_eq!(status["vmci"]["reason"], "too many devices");
}

#[test]
fn counters_are_read_by_their_names() {
    use std::os::unix::fs::FileExt as _;
    use taut_api::fabric::counters::{SocketWord, port_base};

    let server = Server::new();
    server.create("a", &micro("")).is(201);
    let file = std::fs::OpenOptions::new().write(true).open(server.dir.path().join("counters")).unwrap();
    for (word, value) in
        [(SocketWord::Connections, 2_u64), (SocketWord::RxBytes, 70), (SocketWord::Forged, 9)]
    {
        let at = (port_base(PortId(0)) + word as usize) * 8;
        file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
    }
    let counters = server.get("/v1/vms/a").is(200)["status"]["vmci"]["counters"].clone();
    assert_eq!(
        (&counters["connections"], &counters["rx_bytes"], &counters["forged"], &counters["resets"]),
        (&json!(2), &json!(70), &json!(9), &json!(0))
    );
    let metrics = server.get("/metrics").text;
    for line in [
        "taut_vmci_connections{vm=\"a\",cid=\"3\"} 2",
        "taut_vmci_rx_bytes_total{vm=\"a\",cid=\"3\"} 70",
        "taut_vmci_packets_forged_total{vm=\"a\",cid=\"3\"} 9",
        "taut_vmci_up{vm=\"a\",cid=\"3\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[test]
fn connections_are_listed() {
    let server = Server::new();
    assert_eq!(server.get("/v1/vmci/connections").is(200), json!([]));
}
