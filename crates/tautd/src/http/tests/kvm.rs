//! KVM's counters, from simulated monitors.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

/// Creates a running VM with this accelerator.
fn running(accelerator: VmAccelerator) -> Server {
    let server = Server::with_lan();
    server.create("m", MICRO).is(201);
    let seen = VmSeen { process: Some(process(VmKind::Qemu, accelerator)), ..VmSeen::default() };
    server.app.board.lock().observed.vms.insert("m".parse().unwrap(), seen);
    server
}

/// Starts a monitor for the VM that gives these answers to `query-stats` and `query-cpus-fast`.
fn monitor(server: &Server, stats: &'static str, cpus: &'static str) {
    let folder = server.dir.path().join("vms/m");
    std::fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("qmp.sock")).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        writeln!(stream, r#"{{"QMP": {{}}}}"#).unwrap();
        for answer in [r#"{"return": {}}"#, stats, cpus] {
            if lines.next().is_none() {
                return;
            }
            writeln!(stream, "{answer}").unwrap();
        }
    });
}

const CPUS: &str = r#"{"return": [{"cpu-index": 0, "qom-path": "/a", "thread-id": 1}]}"#;

#[test]
fn counters_come_from_the_vms_monitor() {
    let server = running(VmAccelerator::Kvm);
    let stats = r#"{"return": [{"provider": "kvm", "qom-path": "/a", "stats": [{"name": "halt_exits", "value": 3}]}]}"#;
    monitor(&server, stats, CPUS);
    let counters = server.get("/v1/vms/m/kvm").is(200);
    assert_eq!(counters, json!({ "vcpus": [{ "vcpu": 0, "counters": { "halt_exits": 3 } }] }));
}

#[test]
fn missing_counters_are_explained() {
    let because = |server: &Server| {
        let answer = server.get("/v1/vms/m/kvm").is(200);
        assert_eq!(answer["vcpus"], json!([]));
        answer["none_because"].as_str().unwrap().to_owned()
    };
    assert!(because(&running(VmAccelerator::Tcg)).contains("emulation"));
    assert!(because(&running(VmAccelerator::Native)).contains("microguest"));
    let old_kernel = running(VmAccelerator::Kvm);
    monitor(&old_kernel, r#"{"return": []}"#, CPUS);
    assert!(because(&old_kernel).contains("5.14"));
    let old_qemu = running(VmAccelerator::Kvm);
    monitor(&old_qemu, r#"{"error": {"class": "CommandNotFound", "desc": "what is query-stats?"}}"#, CPUS);
    assert!(because(&old_qemu).ends_with("7.1 and later has): what is query-stats?"));
}

#[test]
fn an_invalid_monitor_answer_is_an_error_with_a_hint() {
    let server = running(VmAccelerator::Kvm);
    server.get("/v1/vms/m/kvm").refuses(503, &["the monitor of m", "qmp.sock"]);
    monitor(&server, r#"{"return": [{"provider": "kvm", "qom-path": "/a", "stats": 5}]}"#, CPUS);
    server.get("/v1/vms/m/kvm").refuses(503, &["not QMP", "close other programs"]);
    server.get("/v1/vms/nobody/kvm").refuses(404, &["nobody"]);
    server.app.board.lock().observed.vms.clear();
    server.get("/v1/vms/m/kvm").refuses(409, &["taut vm start m"]);
}
