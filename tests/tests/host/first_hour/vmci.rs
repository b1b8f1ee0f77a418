//! A VMCI device that is removed: what it gave up is told with the command that restores it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use taut_tests::{Taut, eventually};

/// Asserts that the guest returns what a program on the host sends to its echo service.
fn answers(socket: &Path) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"CONNECT 7\nhello\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut line = || lines.next().expect("the connection is open").unwrap();
    let accepted = line();
    assert!(accepted.starts_with("OK "), "{accepted}");
    assert_eq!(line(), "hello");
}

#[test]
fn what_a_removed_device_gave_up_comes_back_by_the_command_that_was_printed() {
    let taut = Taut::start();
    let file = "kind = \"micro\"\nmemory = \"64MiB\"\n[vmci]\ncid = 7\ndomains = [\"shop\", \"office\"]\n";
    taut.boot("db1", file);
    let device = || taut.json(["vm", "show", "db1"])["spec"]["vmci"].clone();
    let before = device();
    let is_up = || {
        eventually("the device is up", || {
            (taut.json(["vm", "show", "db1"])["status"]["vmci"]["link"] == "up").then_some(())
        });
    };
    is_up();
    let said = taut.ok(["vm", "set", "db1", "--vmci", "off"]);
    let restore = "taut vm set db1 --vmci on --vmci-cid 7 --vmci-domains shop,office";
    let line = format!("db1: given up: context ID 7; domains shop, office; `{restore}` restores them\n");
    assert!(said.contains(&line), "{said}");
    assert!(device().is_null());
    taut.ok(restore.split(' ').skip(1));
    assert_eq!(device(), before);
    is_up();

    let socket = taut.dir().join("run/vms/db1/vmci.sock");
    answers(&socket);

    // The device of a running VM is replaced by one with another context ID.
    taut.ok(["vm", "set", "db1", "--vmci-cid", "9"]);
    is_up();
    assert_eq!(taut.json(["vmci", "show", "db1"])["status"]["vmci"]["cid"], 9);
    answers(&socket);
}
