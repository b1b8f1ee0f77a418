//! Replacement in a simulated QEMU.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use super::*;

/// Timeout that only failing tests reach.
const PATIENCE: Duration = Duration::from_secs(60);

/// State and behaviour of the simulated QEMU.
#[derive(Clone)]
struct Machine {
    device: bool,
    /// `filename` of the character device.
    chardev: Option<&'static str>,
    /// True if the guest releases the device at once.
    lets_go: bool,
    major: u64,
}

impl Machine {
    /// The answer to one command, preceded by events.
    fn answer(&mut self, command: &str, arguments: &Value) -> Vec<Value> {
        let returned = |value: Value| vec![json!({ "return": value })];
        let empty = || returned(json!({}));
        match command {
            "query-chardev" => {
                let ours = self.chardev.map(|filename| json!({ "label": "vmci0", "filename": filename }));
                let other = json!({ "label": "qmp", "filename": "disconnected:unix:/qmp" });
                returned(json!(ours.into_iter().chain([other]).collect::<Vec<_>>()))
            }
            "qom-list" => {
                let device = self.device.then(|| json!({ "name": "vmci0", "type": "child<x>" }));
                returned(json!(device.into_iter().collect::<Vec<_>>()))
            }
            "query-version" => returned(json!({ "qemu": { "major": self.major, "minor": 0, "micro": 2 } })),
            "query-kvm" => returned(json!({ "enabled": false, "present": true })),
            "device_del" if !self.lets_go => empty(),
            "device_del" => {
                self.device = false;
                let gone = |data: Value| json!({ "event": "DEVICE_DELETED", "data": data });
                let child = gone(json!({ "path": "/machine/peripheral/vmci0/virtio-backend" }));
                [vec![child], empty(), vec![gone(json!({ "device": "vmci0" }))]].concat()
            }
            "chardev-remove" => {
                assert!(!self.device, "QEMU refuses while it is in use");
                self.chardev = None;
                empty()
            }
            "chardev-add" => {
                assert_eq!(
                    arguments["backend"]["data"]["addr"],
                    json!({ "type": "fd", "data": { "str": "vmci0" } })
                );
                self.chardev = Some("fd:vmci0");
                empty()
            }
            "device_add" => {
                self.device = true;
                empty()
            }
            _ => empty(),
        }
    }
}

/// Replaces the device once. Returns the result, the machine afterwards and the commands that
/// changed it.
fn replugged(machine: Machine) -> (Result<Replug, QmpError>, Machine, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    // Whoever lets go is waited for, however busy this machine is; for the other there is no need
    // to.
    let patience = if machine.lets_go { PATIENCE } else { Duration::ZERO };
    let monitor = serve(UnixListener::bind(&path).unwrap(), machine);
    let mut qmp = Qmp::connect(&path, PATIENCE).unwrap();
    let front = dir.path().join("front");
    let _back_end = UnixListener::bind(&front).unwrap();
    let result = vmci(&mut qmp, &front, patience);
    drop(qmp);
    let (machine, commands) = monitor.join().unwrap();
    (result, machine, commands)
}

fn serve(listener: UnixListener, mut machine: Machine) -> JoinHandle<(Machine, Vec<Value>)> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        writeln!(stream, r#"{{"QMP": {{}}}}"#).unwrap();
        let mut changing = Vec::new();
        for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
            let request: Value = serde_json::from_str(&line).unwrap();
            let command = request["execute"].as_str().unwrap();
            if !command.starts_with('q') {
                changing.push(request.clone());
            }
            for answer in machine.answer(command, &request["arguments"]) {
                writeln!(stream, "{answer}").unwrap();
            }
        }
        (machine, changing)
    })
}

fn names(commands: &[Value]) -> Vec<&str> {
    commands.iter().map(|command| command["execute"].as_str().unwrap()).collect()
}

const LOST: Machine =
    Machine { device: true, chardev: Some("disconnected:unix:/run/front"), lets_go: true, major: 10 };

#[test]
fn a_connected_device_is_left_alone() {
    let (result, _, commands) = replugged(Machine { chardev: Some("unix:/run/front"), ..LOST });
    assert_eq!(result.unwrap(), Replug::Connected);
    assert_eq!(names(&commands), [] as [&str; 0]);
}

#[test]
fn a_device_that_lost_its_peer_is_replaced() {
    let (result, machine, commands) = replugged(LOST);
    assert_eq!(result.unwrap(), Replug::Done);
    assert!(machine.device && machine.chardev == Some("fd:vmci0"));
    assert_eq!(names(&commands), ["device_del", "chardev-remove", "getfd", "chardev-add", "device_add"]);
    let wanted =
        json!({ "driver": "vhost-user-vsock-pci", "id": "vmci0", "chardev": "vmci0", "bus": "vmciport" });
    assert_eq!(commands[4]["arguments"], wanted);
}

#[test]
fn a_guest_that_holds_the_device_is_asked_again_later() {
    let (result, machine, commands) = replugged(Machine { lets_go: false, ..LOST });
    assert_eq!(result.unwrap(), Replug::Held);
    assert_eq!(names(&commands), ["device_del"]);
    // The guest released the device while no client was connected.
    let (result, ..) = replugged(Machine { device: false, ..machine });
    assert_eq!(result.unwrap(), Replug::Done);
    let (result, ..) = replugged(Machine { device: false, chardev: None, ..LOST });
    assert_eq!(result.unwrap(), Replug::Done, "an earlier attempt ended in between");
}

#[test]
fn an_old_qemu_gets_a_device_without_msix() {
    let (_, _, commands) = replugged(Machine { major: 7, ..LOST });
    assert_eq!(commands.last().unwrap()["arguments"]["vectors"], 0);
}
