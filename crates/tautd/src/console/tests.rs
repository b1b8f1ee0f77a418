//! The daemon's side with the real loop of the console process, on a thread of the test.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use rustix::net::SocketType;
use taut_console::engine::Engine;

use super::supervisor::Supervisor;
use super::*;
use crate::listen::listen_at;

/// A daemon's folders.
struct Folders {
    dir: tempfile::TempDir,
    store: Store,
    console: Console,
}

impl Folders {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state")).unwrap();
        let console = Console::new(
            dir.path(),
            dir.path(),
            LogFolder::at(dir.path().join("log")),
            None,
            Confiner::without_walls(),
        )
        .unwrap();
        Self { dir, store, console }
    }

    /// Starts the loop of another process; earlier ones get no further requests.
    fn start_engine(&self) {
        *self.console.0.caller() = None;
        let listener = listen_at(&self.console.0.places.control(), SocketType::SEQPACKET).unwrap();
        thread::spawn(move || Engine::new(listener).unwrap().run().unwrap());
    }

    fn settle(&self) -> bool {
        Supervisor::new(&self.console.0, &self.store, None).settle().unwrap()
    }

    fn paths(&self, vm: &str) -> RunPaths {
        let paths = RunPaths::new(self.dir.path().join("vms").join(vm));
        fs::create_dir_all(paths.dir()).unwrap();
        paths
    }

    fn names(&self) -> Vec<String> {
        let mut caller = self.console.0.caller();
        let ids = caller.as_mut().unwrap().list(PATIENCE).unwrap();
        ids.into_iter().map(|id| id.to_string()).collect()
    }
}

fn name() -> Name {
    "db1".parse().unwrap()
}

#[test]
fn the_output_of_a_vm_is_kept_with_and_without_a_process() {
    let folders = Folders::new();
    let (vm, paths) = (name(), folders.paths("db1"));
    let log = folders.console.logs().vm(&vm).process();
    folders.console.begin_output(&vm, &paths).unwrap();
    let mut output = Console::output(&paths).unwrap();
    output.write_all(b"alone\n").unwrap();
    folders.console.flush_output(&vm, &paths);
    assert_eq!(fs::read(&log).unwrap(), b"alone\n", "the daemon reads it itself");
    output.write_all(b"waits\n").unwrap();
    for text in ["first\n", "second\n"] {
        folders.start_engine();
        assert!(folders.settle());
        assert_eq!(folders.names(), ["fabric", "vm/db1/output"]);
        output.write_all(text.as_bytes()).unwrap();
        folders.console.flush_output(&vm, &paths);
    }
    assert_eq!(fs::read(&log).unwrap(), b"alone\nwaits\nfirst\nsecond\n");

    // The next start begins a new log, and its end forgets the source.
    folders.console.begin_output(&vm, &paths).unwrap();
    let mut output = Console::output(&paths).unwrap();
    output.write_all(b"new\n").unwrap();
    folders.console.forget(&vm, &paths);
    assert_eq!(fs::read(&log).unwrap(), b"new\n");
    assert_eq!(folders.names(), ["fabric"]);
    assert!(!paths.pipe().exists());
}

#[test]
fn a_source_of_the_last_start_does_not_replace_that_of_the_next() {
    let folders = Folders::new();
    let (vm, paths) = (name(), folders.paths("db1"));
    folders.start_engine();
    folders.console.begin_output(&vm, &paths).unwrap();
    let _last = Console::output(&paths).unwrap();
    // The supervisor is about to give it when the VM is started again.
    let id = wanted::output_of(&vm);
    let late = folders.console.0.wanted()[&id].clone();
    assert!(folders.settle());
    folders.console.forget(&vm, &paths);
    folders.console.begin_output(&vm, &paths).unwrap();
    let mut next = Console::output(&paths).unwrap();
    folders.console.0.give(&id, &late).unwrap();
    next.write_all(b"said\n").unwrap();
    folders.console.flush_output(&vm, &paths);
    assert_eq!(fs::read(folders.console.logs().vm(&vm).process()).unwrap(), b"said\n");
}

#[test]
fn a_console_is_connected_when_qemu_listens_and_again_to_the_next_process() {
    let folders = Folders::new();
    let (vm, paths) = (name(), folders.paths("db1"));
    let log = folders.console.logs().vm(&vm).console();
    folders.start_engine();
    folders.console.connect_serial(&vm, &paths);
    assert!(log.exists(), "it is there before anything is in it");
    assert!(!folders.settle(), "QEMU does not listen yet");
    assert!(!paths.console().exists());
    let qemu = UnixListener::bind(paths.serial()).unwrap();
    let mut expected = Vec::new();
    for text in ["login: ", "again: "] {
        assert!(folders.settle());
        let (mut guest, _) = qemu.accept().unwrap();
        let mut person = UnixStream::connect(paths.console()).unwrap();
        person.write_all(b"root").unwrap();
        let mut typed = [0; 4];
        guest.read_exact(&mut typed).unwrap();
        assert_eq!(&typed, b"root");
        guest.write_all(text.as_bytes()).unwrap();
        let mut shown = vec![0; text.len()];
        person.read_exact(&mut shown).unwrap();
        expected.extend(shown);
        assert_eq!(fs::read(&log).unwrap(), expected);
        // QEMU drops its client, as it does when the process dies.
        drop(guest);
        assert_eq!(person.read(&mut [0; 1]).unwrap(), 0);
        folders.start_engine();
    }
}

#[test]
fn sources_of_an_earlier_daemon_are_kept_or_forgotten() {
    let folders = Folders::new();
    folders.start_engine();
    let (gone, stays) = (folders.paths("gone"), folders.paths("stays"));
    folders.console.begin_output(&"stays".parse().unwrap(), &stays).unwrap();
    folders.console.begin_output(&"gone".parse().unwrap(), &gone).unwrap();
    let mut output = Console::output(&stays).unwrap();
    let _ended = Console::output(&gone).unwrap();
    assert!(folders.settle());
    assert_eq!(folders.names(), ["fabric", "vm/gone/output", "vm/stays/output"]);

    let dir = folders.dir.path();
    let next =
        Console::new(dir, dir, LogFolder::at(dir.join("log")), None, Confiner::without_walls()).unwrap();
    next.adopt(&"stays".parse().unwrap(), &stays);
    let folders = Folders { console: next, ..folders };
    assert!(folders.settle());
    assert_eq!(folders.names(), ["fabric", "vm/stays/output"]);
    output.write_all(b"on and on\n").unwrap();
    folders.console.flush_output(&"stays".parse().unwrap(), &stays);
    let log = folders.console.logs().vm(&"stays".parse().unwrap()).process();
    assert_eq!(fs::read(log).unwrap(), b"on and on\n");
}

#[test]
fn a_vm_of_an_earlier_version_has_its_logs_in_the_run_directory() {
    let folders = Folders::new();
    let (vm, paths) = (name(), folders.paths("db1"));
    let logs = folders.console.logs().vm(&vm);
    folders.console.adopt(&vm, &paths);
    assert_eq!(folders.console.0.wanted().len(), 1, "only the fabric's log is wanted");
    assert_eq!(Console::console_log(&logs, &paths), logs.console());
    fs::write(paths.console_log(), "old").unwrap();
    fs::write(paths.log(), "old").unwrap();
    assert_eq!(Console::console_log(&logs, &paths), paths.console_log());
    assert_eq!(Console::process_log(&logs, &paths), paths.log());
}
