//! Redis: an event loop on epoll, non-blocking clients, replicas that are servers and clients.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use taut_tests::{Background, eventually};

use super::{MACHINE, Machine, checked, free_port};

/// Returns the server program. Debian's package of the tools has it as `redis-check-rdb`, without a
/// service that starts by itself.
fn server_program(folder: &Path) -> std::path::PathBuf {
    let name = folder.join("redis-server");
    if !name.exists() {
        symlink("/usr/bin/redis-check-rdb", &name).unwrap();
    }
    name
}

fn server(machine: &Machine, port: u16, more: &[&str]) -> Background {
    let mut command = machine.program(server_program(machine.path()));
    let port_word = port.to_string();
    command.args(["--port", &port_word, "--protected-mode", "no", "--save", "", "--dbfilename"]);
    command.arg(format!("{port}.rdb")).args(more);
    machine.serve(&mut command, port)
}

fn cli(machine: &Machine, port: u16, words: &[&str]) -> String {
    let port = port.to_string();
    let args: Vec<&str> = ["-h", MACHINE, "-p", &port].into_iter().chain(words.iter().copied()).collect();
    machine.run("redis-cli", &args)
}

#[test]
fn redis_serves_clients_of_both_kinds() {
    let machine = Machine::new();
    let port = free_port();
    let _server = server(&machine, port, &[]);
    assert_eq!(cli(&machine, port, &["set", "key", "value"]), "OK\n");
    let client = cli(&machine, port, &["client", "list"]);
    assert!(client.contains(&format!(" addr={MACHINE}:")), "{client}");
    assert!(client.contains(&format!(" laddr={MACHINE}:{port} ")), "{client}");
    assert_eq!(machine.connections(), 2);

    let tcp = Command::new("redis-cli").args(["-p", &port.to_string(), "get", "key"]).output().unwrap();
    assert_eq!(checked(tcp, "redis-cli without the library"), "value\n");
    assert_eq!(machine.connections(), 2, "that one was TCP");

    let words = [
        "-h",
        MACHINE,
        "-p",
        &port.to_string(),
        "-n",
        "5000",
        "-c",
        "30",
        "-t",
        "set,get,lrange_100",
        "--csv",
    ];
    let report = machine.run("redis-benchmark", &words);
    assert_eq!(report.lines().count(), 5, "a head, SET, GET, LPUSH and LRANGE: {report}");
    assert!(machine.connections() >= 32, "{}", machine.connections());
}

#[test]
fn a_replica_follows_its_master() {
    let machine = Machine::new();
    let (master_port, replica_port) = (free_port(), free_port());
    let _master = server(&machine, master_port, &[]);
    let value = "x".repeat(100_000);
    for key in 0..20 {
        assert_eq!(cli(&machine, master_port, &["set", &format!("before{key}"), &value]), "OK\n");
    }
    let before = machine.connections();
    let _replica = server(&machine, replica_port, &["--replicaof", &format!("{MACHINE} {master_port}")]);
    eventually("the replica has everything", || {
        let info = cli(&machine, replica_port, &["info", "replication"]);
        (info.contains("master_link_status:up") && info.contains("master_sync_in_progress:0")).then_some(())
    });
    assert_eq!(cli(&machine, replica_port, &["strlen", "before19"]), "100000\n");
    assert_eq!(cli(&machine, master_port, &["set", "after", "1"]), "OK\n");
    eventually("a new key arrives", || {
        (cli(&machine, replica_port, &["get", "after"]) == "1\n").then_some(())
    });
    assert!(machine.connections() > before);
}

/// The user reads "connection refused" if neither VMCI nor TCP reaches the server.
#[test]
fn a_missing_server_gives_connection_refused() {
    let machine = Machine::new();
    let output = machine
        .program("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &free_port().to_string(), "ping"])
        .output();
    let output = output.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Connection refused"), "{said}");
    let unreachable = Command::new("unshare")
        .args(["--net", "redis-cli", "-h", MACHINE, "-p", &free_port().to_string(), "ping"])
        .env("LD_PRELOAD", taut_tests::bin_dir().join("libtaut_vmci.so"))
        .env("TAUT_VMCI_MAP", machine.path().join("vmci.map"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&unreachable.stderr).into_owned();
    assert!(said.contains("Connection refused"), "not `Network is unreachable`: {said}");
    assert_eq!(machine.connections(), 0);
}
