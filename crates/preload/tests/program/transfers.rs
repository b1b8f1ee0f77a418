//! Transfers of the example `tcp_transfer`, whose sender does something with its socket that rings
//! cannot follow, in the middle. Every byte is compared.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::fabric::{Fabric, Trouble};
use crate::relay::Relay;
use crate::{built, run, stderr, stdout};

/// Ways of the sender that keep its queue pair.
const STAYING: [&str; 2] = ["stay", "fork"];
/// Ways by which it leaves it.
const LEAVING: [&str; 9] =
    ["fdopen", "sendfile", "splice", "pass", "exec", "spawn", "stdin", "stdout", "stderr"];

/// A server, which ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Line of the log of a program that leaves a queue pair.
const LEFT: &str = ": by packets again, after channel ";

/// Transfers, and tells for client and server whether the end has left its queue pair. Nobody can
/// tell if a sender uses the standard error: the library's log would go to its socket.
fn transfer(way: &str, peer_way: &str) -> Option<[bool; 2]> {
    let is_logged = ![way, peer_way].contains(&"stderr");
    let log = if is_logged { "1" } else { "0" };
    let folder = tempfile::tempdir().unwrap();
    let fabric = Arc::new(Fabric::start(folder.path(), Trouble::None));
    let _relay = Relay::start_with(&folder.path().join("vm.sock"), Some(fabric.clone() as _));
    let map = crate::map(folder.path(), crate::LOOPBACK);
    let command = |words: &[&str]| {
        let mut command = Command::new(built("../examples/tcp_transfer"));
        command.args(words).env("LD_PRELOAD", built("libtaut_vmci.so")).env("TAUT_VMCI_MAP", &map);
        command.env("TAUT_VMCI_RINGS", "1").env("TAUT_VMCI_RINGS_TRIAL", fabric.variable());
        command.env("TAUT_VMCI_LOG", log);
        command
    };
    // A port that nobody has, which the server gets in a moment.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let said = folder.path().join("said");
    let mut serve = command(&["serve", &address]);
    serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&said).unwrap());
    let mut server = Server(serve.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "serves");
    // The server waits for clients in the next moment, and only then takes VMCI connections.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let words = ["connect", &address, "--bytes", "6000001", "--way", way, "--peer-way", peer_way];
    let output = run(command(&words));
    let result = stdout(&output);
    assert!(result.contains("transfers: 1 exact, 0 wrong, 0 failed"), "{way}, {peer_way}: {result}");
    assert_eq!(fabric.counts().0, 2, "both ends have had queue pairs");
    let logs = [stderr(&output), std::fs::read_to_string(&said).unwrap()];
    is_logged.then(|| logs.map(|log| log.contains(LEFT)))
}

/// Requires that exactly these ends have left their queue pairs.
fn check(way: &str, peer_way: &str, left: [bool; 2]) {
    let found = transfer(way, peer_way);
    assert!(found.is_none_or(|found| found == left), "{way}, {peer_way}: {found:?}");
}

#[test]
fn transfers_are_exact_when_the_client_leaves_its_queue_pair() {
    for way in LEAVING {
        check(way, "stay", [true, false]);
    }
}

#[test]
fn transfers_are_exact_when_the_server_leaves_its_queue_pair() {
    for way in LEAVING {
        check("stay", way, [false, true]);
    }
}

#[test]
fn transfers_are_exact_when_both_leave_or_stay() {
    for way in STAYING {
        check(way, way, [false, false]);
    }
    for way in LEAVING {
        check(way, way, [true, true]);
    }
}
