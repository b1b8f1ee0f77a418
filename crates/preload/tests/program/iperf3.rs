//! iperf3 by rings: an unmodified program with processes, threads and a `select` loop.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fabric::{Fabric, Trouble};
use crate::relay::Relay;
use crate::{LONGEST, LOOPBACK, built, map, run, stderr, stdout};

/// Waits until an iperf3 server listens. Returns the rest of what it prints.
fn wait_for_server(server: &mut Child) -> BufReader<ChildStdout> {
    let mut says = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(says.read_line(&mut line).unwrap() > 0);
    }
    says
}

/// Tells whether a program of this host waits for connections at a Unix socket.
fn listens(path: &Path) -> bool {
    // Address of the socket, references, protocol, flags: `SO_ACCEPTCON`.
    let all = std::fs::read_to_string("/proc/net/unix").unwrap();
    let is_it = |line: &str| line.ends_with(path.to_str().unwrap()) && line.contains(" 00010000 ");
    all.lines().any(is_it)
}

/// Runs if the machine has iperf3.
#[test]
fn iperf3_measures_by_rings() {
    let has_it = Command::new("iperf3").arg("--version").stdout(Stdio::null()).status();
    if !has_it.is_ok_and(|status| status.success()) {
        eprintln!("left out: there is no iperf3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fabric = Arc::new(Fabric::start(folder.path(), Trouble::None));
    let _relay = Relay::start_with(&folder.path().join("vm.sock"), Some(fabric.clone() as _));
    let path = map(folder.path(), LOOPBACK);
    let iperf3 = |arguments: &[&str]| {
        let mut command = Command::new("iperf3");
        command.args(arguments).env("LD_PRELOAD", built("libtaut_vmci.so"));
        command
            .env("TAUT_VMCI_MAP", &path)
            .env("TAUT_VMCI_LOG", "1")
            .env("TAUT_VMCI_RINGS", "1")
            .env("TAUT_VMCI_RINGS_TRIAL", fabric.variable());
        command
    };
    let log = folder.path().join("log");
    for more in [&[][..], &["-R"], &["--bidir"], &["-P", "3", "-l", "1000"]] {
        let before = fabric.counts().0;
        let server = ["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", "15201"];
        let mut server = iperf3(&server);
        server.stdout(Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
        let mut server = server.spawn().unwrap();
        let mut says = wait_for_server(&mut server);
        // It says so before it waits for connections. A client that comes earlier goes by TCP.
        let end = Instant::now() + LONGEST;
        while !listens(&folder.path().join("vm.sock_15201")) {
            assert!(Instant::now() < end, "it does not wait for connections");
            std::thread::sleep(Duration::from_millis(5));
        }
        let amount = ["-c", "127.0.0.1", "-p", "15201", "-n", "20M"];
        let output = run(iperf3(&[&amount[..], more].concat()));
        assert!(stdout(&output).contains("receiver"), "{more:?}: {}{}", stdout(&output), stderr(&output));
        let mut rest = String::new();
        says.read_to_string(&mut rest).unwrap();
        assert!(server.wait().unwrap().success(), "{rest}");
        let logs = [stderr(&output), std::fs::read_to_string(&log).unwrap()];
        assert!(fabric.counts().0 >= before + 3, "{more:?}: {:?} {}{}", fabric.counts(), logs[0], logs[1]);
    }
}

/// A write or a read that finds what it needs makes no system calls, and few calls of `select` do.
#[test]
fn rings_need_no_system_calls() {
    let is_there = |name: &str| {
        Command::new(name).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    if !is_there("iperf3") || !is_there("strace") {
        eprintln!("left out: there is no iperf3 or no strace");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fabric = Arc::new(Fabric::start(folder.path(), Trouble::None));
    let _relay = Relay::start_with(&folder.path().join("vm.sock"), Some(fabric.clone() as _));
    let path = map(folder.path(), LOOPBACK);
    let traced = |name: &str, arguments: &[&str]| {
        let mut command = Command::new("strace");
        command.args(["-f", "-o"]).arg(folder.path().join(name));
        let preloaded = format!("LD_PRELOAD={}", built("libtaut_vmci.so").display());
        command.args(["-E", &preloaded, "iperf3"]).args(arguments);
        command
            .env("TAUT_VMCI_MAP", &path)
            .env("TAUT_VMCI_RINGS", "1")
            .env("TAUT_VMCI_RINGS_TRIAL", fabric.variable());
        command
    };
    let server = ["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", "15202"];
    let mut server = traced("server", &server).stdout(Stdio::piped()).spawn().unwrap();
    wait_for_server(&mut server);
    // 4096 writes.
    let output = run(traced("client", &["-c", "127.0.0.1", "-p", "15202", "-n", "1M", "-l", "256"]));
    assert!(stdout(&output).contains("receiver"), "{}{}", stdout(&output), stderr(&output));
    assert!(server.wait().unwrap().success());
    for name in ["client", "server"] {
        let calls = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let count = |call: &str| calls.lines().filter(|line| line.contains(&format!(" {call}("))).count();
        let counts = ["getsockopt", "rt_sigprocmask", "fcntl", "write", "read"].map(count);
        assert!(counts.iter().all(|count| *count < 250), "{name}: {counts:?}");
        // The server waits for its listener, too, before each of as many reads.
        let waits = ["select", "pselect6", "poll", "ppoll"].map(count);
        assert!(waits.iter().sum::<usize>() < 2048, "{name}: {waits:?}");
    }
}
