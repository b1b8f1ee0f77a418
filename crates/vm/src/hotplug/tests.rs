//! Memory that is added to a simulated QEMU.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use super::*;

/// Timeout that only failing tests reach.
const PATIENCE: Duration = Duration::from_secs(60);

/// State and behaviour of the simulated QEMU.
#[derive(Debug, Clone, Default, PartialEq)]
struct Machine {
    /// Descriptors that it was handed.
    handed: Vec<i64>,
    memory: bool,
    device: bool,
    /// Refuses these commands.
    refuses: &'static [&'static str],
}

impl Machine {
    fn answer(&mut self, command: &str, arguments: &Value) -> Value {
        if self.refuses.contains(&command) {
            return json!({ "error": { "class": "GenericError", "desc": "no room" } });
        }
        let listed = |there: bool, name: &str| json!(there.then(|| json!({ "name": name })).as_slice());
        let value = match command {
            "add-fd" => {
                self.handed.push(40);
                json!({ "fdset-id": 0, "fd": 40 })
            }
            "query-fdsets" => {
                let fds = self.handed.iter().map(|fd| json!({ "fd": fd, "opaque": MEMORY }));
                let other = json!({ "fdset-id": 1, "fds": [{ "fd": 7 }, { "fd": 8, "opaque": "other" }] });
                json!([{ "fdset-id": 0, "fds": fds.collect::<Vec<_>>() }, other])
            }
            "remove-fd" => {
                assert_eq!(arguments["fdset-id"], 0);
                self.handed.retain(|fd| arguments["fd"] != *fd);
                json!({})
            }
            "object-add" => {
                assert_eq!(arguments["mem-path"], "/proc/self/fd/40");
                assert_eq!((&arguments["share"], &arguments["size"]), (&json!(true), &json!(18 << 20)));
                self.memory = true;
                json!({})
            }
            "object-del" => {
                assert!(self.memory && !self.device);
                self.memory = false;
                json!({})
            }
            "device_add" => {
                assert!(self.memory);
                self.device = true;
                json!({})
            }
            "qom-list" if arguments["path"] == "/objects" => listed(self.memory, MEMORY),
            "qom-list" => listed(self.device, DEVICE),
            _ => json!({}),
        };
        json!({ "return": value })
    }
}

/// Runs `work` with a monitor of the machine. Returns its result and the machine afterwards.
fn with<T>(mut machine: Machine, work: impl FnOnce(&mut Qmp) -> T) -> (T, Machine) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let monitor = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        writeln!(stream, r#"{{"QMP": {{}}}}"#).unwrap();
        for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
            let request: Value = serde_json::from_str(&line).unwrap();
            let answer = machine.answer(request["execute"].as_str().unwrap(), &request["arguments"]);
            writeln!(stream, "{answer}").unwrap();
        }
        machine
    });
    let mut qmp = Qmp::connect(&path, PATIENCE).unwrap();
    let result = work(&mut qmp);
    drop(qmp);
    (result, monitor.join().unwrap())
}

fn plugged(machine: Machine) -> (Result<(), PlugError>, Machine) {
    let file = File::open("/dev/null").unwrap();
    with(machine, |qmp| queue_pairs(qmp, file.as_fd(), Bytes::mib(18), &Tuning::default()))
}

#[test]
fn memory_is_added_and_the_handed_descriptor_closed() {
    let (result, machine) = plugged(Machine::default());
    result.unwrap();
    assert_eq!(machine, Machine { memory: true, device: true, ..Machine::default() });
}

#[test]
fn a_refusal_leaves_nothing_behind() {
    for refuses in [&["object-add"], &["device_add"]] {
        let (result, machine) = plugged(Machine { refuses, ..Machine::default() });
        let (command, error) = match result.unwrap_err() {
            PlugError::NoMemory(error) => ("object-add", error),
            PlugError::NoDevice(error) => ("device_add", error),
            PlugError::Unclear(error) => panic!("{error}"),
        };
        assert_eq!(refuses, &[command]);
        assert_eq!(error.to_string(), format!("QEMU refused {command}: no room"));
        assert_eq!(machine, Machine { refuses, ..Machine::default() });
    }
}

#[test]
fn what_is_left_behind_makes_the_result_unclear() {
    let cases: [&'static [&'static str]; 3] =
        [&["device_add", "object-del"], &["object-add", "remove-fd"], &["remove-fd"]];
    for refuses in cases {
        let (result, machine) = plugged(Machine { refuses, ..Machine::default() });
        assert!(matches!(result, Err(PlugError::Unclear(QmpError::Refused { .. }))), "{result:?}");
        assert!(machine.memory || !machine.handed.is_empty());
    }
}

#[test]
fn what_an_interrupted_attempt_has_left_is_found_or_removed() {
    let there = Machine { handed: vec![40], memory: true, device: true, ..Machine::default() };
    let (result, machine) = with(there.clone(), settle);
    assert_eq!((result.unwrap(), machine), (Plugged::There, Machine { handed: vec![], ..there }));
    for memory in [false, true] {
        let (result, machine) = with(Machine { handed: vec![40], memory, ..Machine::default() }, settle);
        assert_eq!((result.unwrap(), machine), (Plugged::Absent, Machine::default()));
    }
}

#[test]
fn the_memory_is_placed_as_the_guests() {
    let plain = memory(40, Bytes::mib(18), &Tuning::default());
    assert!(plain.get("prealloc").is_none() && plain.get("host-nodes").is_none(), "{plain}");
    let mut tuning = Tuning { locked: true, ..Tuning::default() };
    tuning.memory.host_nodes[0] = 0b101;
    let tuned = memory(40, Bytes::mib(18), &tuning);
    assert_eq!(tuned["prealloc"], true);
    assert_eq!((&tuned["host-nodes"], &tuned["policy"]), (&json!([0, 2]), &json!("preferred")));
}
