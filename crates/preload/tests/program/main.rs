//! Runs each scenario of the example `tcp_program` over TCP and with `libtaut_vmci.so` preloaded.
//! Both runs must print the same.
//!
//! The VMCI sockets are Unix sockets, so the machine needs no `AF_VSOCK`. Between both ends is
//! [`relay::Relay`], which does what taut does for a VM's socket on the host.

mod fabric;
mod iperf3;
mod lists;
mod model;
mod relay;
mod transfers;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Fabric, Trouble};
use lists::{BY_RINGS, IN_GUESTS, NOT_BY_RINGS, ONLY_GATHERED, REFUSED, WITH_BELLS};
use relay::Relay;
use taut_tests::{Prerequisite, require};

/// A file that cargo built beside this test: the library in the folder of dependencies, or the
/// example.
fn built(path: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().parent().unwrap().join(path);
    assert!(
        path.exists(),
        "{} is missing\nhint: test the whole crate, `cargo test -p taut-preload`",
        path.display()
    );
    path
}

fn program(scenario: &str) -> Command {
    let mut command = Command::new(built("../examples/tcp_program"));
    command.arg(scenario);
    command
}

fn preloaded(scenario: &str, map: &Path) -> Command {
    let mut command = program(scenario);
    command.env("LD_PRELOAD", built("libtaut_vmci.so")).env("TAUT_VMCI_MAP", map);
    command
}

/// Longest time of a scenario.
const LONGEST: Duration = Duration::from_secs(120);

fn run(command: Command) -> Output {
    run_within(command, LONGEST)
}

fn run_within(mut command: Command, limit: Duration) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let group = format!("-{}", child.id());
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait_with_output()));
    let Ok(output) = end.recv_timeout(limit) else {
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let said = end.recv_timeout(Duration::from_secs(1));
        panic!("{command:?} did not end within {} s: {said:?}", limit.as_secs());
    };
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{}{stderr}", output.status, stdout(&output));
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A map in which the loopback addresses are a machine behind this socket.
fn map(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("vmci.map");
    std::fs::write(&path, text.replace("SOCKET", folder.join("vm.sock").to_str().unwrap())).unwrap();
    path
}

const LOOPBACK: &str = "127.0.0.1:* -> unix SOCKET\n[::1]:* -> unix SOCKET\n\
                        listen 127.0.0.1:* -> unix SOCKET\nlisten [::1]:* -> unix SOCKET\n\
                        patience 5000 ms\n";

fn same_as_tcp(scenario: &str, connections: std::ops::RangeInclusive<usize>) {
    if scenario.ends_with("ipv6") && !require(Prerequisite::Ipv6) {
        return;
    }
    let expected = stdout(&run(program(scenario)));
    assert!(!expected.is_empty());
    for way in [By::Packets, By::Gathering, By::Rings, By::SignalledRings, By::RingsWithBells] {
        let by_rings = matches!(way, By::Rings | By::SignalledRings | By::RingsWithBells);
        if way != By::Gathering && ONLY_GATHERED.contains(&scenario)
            || by_rings && NOT_BY_RINGS.contains(&scenario)
            || way == By::SignalledRings && !BY_RINGS.contains(&scenario)
            || way == By::RingsWithBells && !WITH_BELLS.contains(&scenario)
        {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let trouble = match way {
            By::SignalledRings => Trouble::Signals,
            By::RingsWithBells => Trouble::Sleeps,
            By::Packets | By::Gathering | By::Rings => Trouble::None,
        };
        let fabric = by_rings.then(|| Arc::new(Fabric::start(folder.path(), trouble)));
        let relay = Relay::start_with(&folder.path().join("vm.sock"), fabric.clone().map(|it| it as _));
        let mut command = preloaded(scenario, &map(folder.path(), LOOPBACK));
        if way == By::Gathering {
            command.env("TAUT_VMCI_GATHER", "1");
        }
        if let Some(fabric) = &fabric {
            command.env("TAUT_VMCI_RINGS", "1").env("TAUT_VMCI_RINGS_TRIAL", fabric.variable());
        }
        let output = run(command);
        assert_eq!(stdout(&output), expected, "{way:?}, {}", stderr(&output));
        assert_eq!(stderr(&output), "", "nothing to complain of");
        let relayed = relay.connections();
        assert!(connections.contains(&relayed), "{relayed} connections by VMCI, not {connections:?}");
        if let Some(fabric) = fabric {
            let (attached, _) = fabric.counts();
            let most = relayed * 2;
            assert!(attached <= most, "{attached} attached ends of {most}");
            assert_eq!(fabric.given_up(), 0);
            assert!(attached > 0 || !BY_RINGS.contains(&scenario), "{scenario} is not about rings");
        }
    }
}

/// How the bytes of VMCI connections move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Packets,
    Gathering,
    Rings,
    /// As `Rings`, with signals that have no reason.
    SignalledRings,
    /// As `Rings`, and the fabric sleeps until it is signalled.
    RingsWithBells,
}

macro_rules! same_as_tcp {
    ($($scenario:ident $connections:expr;)*) => {
        $(#[test] fn $scenario() { same_as_tcp(stringify!($scenario), $connections) })*

        #[test]
        fn every_scenario_is_run() {
            let all = stdout(&run(program("")));
            let mut all: Vec<_> = all.lines().collect();
            let mut here = vec![$(stringify!($scenario)),*];
            here.extend(REFUSED.map(|(scenario, _)| scenario));
            here.extend(IN_GUESTS);
            all.sort_unstable();
            here.sort_unstable();
            assert_eq!(all, here);
        }
    };
}

// Number of VMCI connections of each scenario. A number above 0 shows that the library is at work.
same_as_tcp! {
    bulk_and_half_close 1..=1;
    flags_of_recv 1..=1;
    pieces 1..=1;
    sendfile_and_splice 1..=1;
    end_of_the_other_side 1..=1;
    peeked_and_truncated 1..=1;
    many_unread 1..=1;
    broken_pipe 1..=1;
    blocking_connect 1..=1;
    connect_without_waiting 1..=1;
    connect_while_watched 2..=2;
    connect_with_time_limit 1..=1;
    nobody_listens 1..=1;
    nobody_listens_and_nobody_waits 0..=0;
    names 2..=2;
    names_of_ipv6 1..=1;
    asynchronous_programs 50..=50;
    connected_to_another_peer 2..=2;
    not_looked_at 0..=0;
    readiness 3..=3;
    watched_before_it_listens 2..=2;
    watched_at_edges 3..=3;
    watched_for_nothing 2..=2;
    instance_is_closed_unseen 1..=1;
    one_duplicate_is_shut_down 0..=0;
    great_numbers 1..=1;
    select_of_all_numbers 1..=1;
    select_while_all_numbers_are_used 0..=0;
    poll_of_too_many 0..=0;
    locks_are_denied 0..=0;
    child_may_not_ask_for_options 1..=1;
    everything_else_is_closed_by_system_calls 0..=0;
    accept_is_cancelled 0..=0;
    connect_is_cancelled 0..=0;
    accept_that_does_not_wait 2..=2;
    accept_with_time_limit 1..=1;
    flags_of_accept 4..=4;
    accept_from_many_threads 40..=40;
    shutdown_wakes_accept 0..=0;
    listener_is_a_tcp_socket 0..=0;
    port_is_free_after_close 3..=3;
    listens_again 1..=1;
    usual_options 1..=1;
    options_set_before 1..=1;
    duplicates_of_a_connection 1..=1;
    duplicates_of_a_listener 5..=5;
    listener_put_over_a_listener 2..=2;
    everything_else_is_closed 1..=1;
    each_number_is_overwritten 1..=1;
    ranges_are_closed 3..=3;
    numbers_are_used_again 6..=6;
    closed_by_a_system_call 2..=2;
    duplicated_before_connect 1..=1;
    number_of_a_locked_file 0..=0;
    number_is_watched_again 3..=3;
    number_of_a_lost_listener 2..=2;
    closed_during_connect 1..=1;
    child_closes_everything_unseen 1..=1;
    child_writes_after_an_unseen_close 1..=1;
    child_has_a_pipe_at_the_number 1..=1;
    child_has_a_socket_at_the_number 1..=1;
    children_accept 3..=3;
    child_has_the_connection 1..=1;
    another_program_inherits 3..=3;
    closed_on_exec 1..=1;
    accepted_by_a_ring 0..=0;
    memory_is_shared 1..=1;
    message_is_not_sent 4..=4;
    messages_pass_a_connection 2..=2;
    one_process_listens 0..=0;
    // The first clients may come before the server has looked for them.
    processes_accept 150..=200;
    children_end_during_accept 2..=2;
    accept_is_interrupted 0..=0;
    connect_is_interrupted 0..=0;
    child_of_vfork_executes 2..=2;
    child_of_vfork_closes_the_instance 1..=1;
    child_by_a_system_call 2..=2;
    request_in_two_writes 1..=1;
    bytes_arrive_without_another_call 1..=1;
    order_of_all_kinds_of_writes 1..=1;
    order_of_processes 2..=2;
    order_of_threads_and_duplicates 2..=2;
    handler_writes_between 1..=1;
    delay_is_turned_off 1..=1;
    corked 1..=1;
    closed_after_small_writes 3..=3;
    ends_after_small_writes 8..=8;
    peer_does_not_read 3..=3;
    peer_does_not_read_for_long 1..=1;
    peer_has_gone 1..=1;
    poll_and_select_of_bytes 1..=1;
    epoll_of_bytes 1..=1;
    edges_of_bytes 1..=1;
    reads_that_wait 1..=1;
    full_without_waiting 1..=1;
    child_and_parent_take_turns 1..=1;
    two_threads_wait_for_one_connection 1..=1;
    messages_at_once 1..=1;
    one_thread_gets_the_only_event 1..=1;
    one_thread_gets_an_edge 1..=1;
    one_event_at_a_time 2..=2;
    instances_are_watched 4..=4;
    closed_entries_of_poll 1..=1;
    receives_are_interrupted 1..=1;
    unused_entries_of_poll 1..=1;
    select_beyond_its_usual_size 2..=2;
    poll_for_the_end_only 1..=1;
    shutdown_wakes_a_writer 1..=1;
    beside_a_child_that_was_killed 1..=1;
}

#[test]
fn unsupported_sockets_stay_tcp_with_a_message() {
    for (scenario, why) in REFUSED {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(&folder.path().join("vm.sock"));
        let output = run(preloaded(scenario, &map(folder.path(), LOOPBACK)));
        assert_eq!(stdout(&output), stdout(&run(program(scenario))));
        let said = stderr(&output);
        assert!(said.contains(why) && said.contains("\nhint: "), "{scenario}: {said}");
        assert_eq!(relay.connections(), 0);
    }
}

/// A read that waits fails, and is not taken for the end of the stream.
#[test]
fn a_program_whose_words_were_overwritten_is_told_of_a_reset() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = Arc::new(Fabric::start(folder.path(), Trouble::Overwrites));
    let _relay = Relay::start_with(&folder.path().join("vm.sock"), Some(Arc::clone(&fabric) as _));
    let mut command = preloaded("overwritten", &map(folder.path(), LOOPBACK));
    command.env("TAUT_VMCI_RINGS", "1").env("TAUT_VMCI_RINGS_TRIAL", fabric.variable());
    assert_eq!(
        stdout(&run(command)),
        "Err(\"Connection reset by peer (os error 104)\")\nOk(0)\nErr(\"EPIPE\")\n"
    );
    let end = Instant::now() + LONGEST;
    while fabric.given_up() == 0 {
        assert!(Instant::now() < end, "the program has not said that it gives up");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Two processes accept TCP connections from a socket, and one of them also accepts VMCI
/// connections.
#[test]
fn processes_accept_tcp_connections_from_a_shared_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = map(folder.path(), "listen 127.0.0.1:* -> unix SOCKET");
    let output = run(preloaded("processes_accept", &path));
    assert_eq!(stdout(&output), stdout(&run(program("processes_accept"))));
    assert_eq!(stderr(&output), "");
}

/// A signal ends a blocking connect to a machine that does not answer by VMCI.
#[test]
fn a_signal_ends_a_connect_that_waits_for_vmci() {
    let folder = tempfile::tempdir().unwrap();
    let _mute = std::os::unix::net::UnixListener::bind(folder.path().join("vm.sock")).unwrap();
    let text = "127.0.0.1:* -> unix SOCKET\npatience 1 ms";
    let mut command = preloaded("connect_is_interrupted", &map(folder.path(), text));
    command.env("TAUT_VMCI_LOG", "1");
    let output = run(command);
    assert_eq!(stdout(&output), stdout(&run(program("connect_is_interrupted"))));
    assert!(stderr(&output).contains("by TCP, since a signal was handled"), "{}", stderr(&output));
}

/// A thread is cancelled while it waits for a machine that does not answer by VMCI.
#[test]
fn a_thread_is_cancelled_in_a_connect_that_waits_for_vmci() {
    let folder = tempfile::tempdir().unwrap();
    let _mute = std::os::unix::net::UnixListener::bind(folder.path().join("vm.sock")).unwrap();
    let text = "127.0.0.1:* -> unix SOCKET\npatience 1 ms";
    let mut command = preloaded("connect_is_cancelled", &map(folder.path(), text));
    command.env("TAUT_VMCI_LOG", "1");
    let output = run(command);
    assert_eq!(stdout(&output), stdout(&run(program("connect_is_cancelled"))));
    assert!(stderr(&output).contains("VMCI fails"), "{}", stderr(&output));
}

/// A thread closes a socket while another one waits for a machine that answers late. The socket
/// that has its number then is not connected.
#[test]
fn a_socket_is_closed_while_its_connect_waits_for_vmci() {
    for answer in ["OK 50000\n", ""] {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join("vm.sock")).unwrap();
        let late = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            thread::sleep(Duration::from_millis(500));
            std::io::Write::write_all(&mut client, answer.as_bytes()).unwrap();
            client
        });
        let path = map(folder.path(), "127.0.0.1:* -> unix SOCKET");
        let output = run(preloaded("closed_during_connect", &path));
        assert_eq!(stdout(&output), stdout(&run(program("closed_during_connect"))), "{answer}");
        late.join().unwrap();
    }
}

/// Only one connect waits for a machine that does not answer.
#[test]
fn a_machine_that_does_not_answer_is_not_tried_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let _mute = std::os::unix::net::UnixListener::bind(folder.path().join("vm.sock")).unwrap();
    let mut command =
        preloaded("asynchronous_programs", &map(folder.path(), "127.0.0.1:* -> unix SOCKET\npatience 1 ms"));
    command.env("TAUT_VMCI_LOG", "1");
    let output = run(command);
    assert_eq!(stdout(&output), "50 of 50 got back what they sent\n");
    let said = stderr(&output);
    assert!(said.contains(": Connection timed out (os error 110)"), "{said}");
    assert!(said.contains("did not answer a moment ago"), "{said}");
}

#[test]
fn without_a_map_everything_is_tcp_with_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.map");
    let output = run(preloaded("numbers_are_used_again", &path));
    assert_eq!(stdout(&output), stdout(&run(program("numbers_are_used_again"))));
    let said = stderr(&output);
    assert_eq!(said.matches("libtaut_vmci:").count(), 1, "{said}");
    assert!(said.contains(&format!("TCP only: {}: No such file", path.display())), "{said}");
    assert!(said.lines().last().unwrap().starts_with("hint: "), "{said}");
}

#[test]
fn an_invalid_map_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = map(folder.path(), "127.0.0.1:* -> unix SOCKET\nlisten everything\n");
    let relay = Relay::start(&folder.path().join("vm.sock"));
    let output = run(preloaded("names", &path));
    assert_eq!(relay.connections(), 0);
    let said = stderr(&output);
    assert!(said.contains(&format!("{}:2: `everything` has no port\nhint: ", path.display())), "{said}");
}

/// The target in the map does not answer, and TCP reaches the address.
#[test]
fn a_wrong_target_falls_back_to_tcp() {
    let expected = stdout(&run(program("names")));
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(&folder.path().join("vm.sock"));
    for target in ["unix /nonexistent/vm.sock", "unix SOCKET", "cid 4000000000", "host"] {
        let output = run(preloaded("names", &map(folder.path(), &format!("127.0.0.1:* -> {target}"))));
        assert_eq!(stdout(&output), expected, "{target}");
        // A machine without a VMCI device prints a hint.
        let said = stderr(&output);
        assert!(said.is_empty() || (!target.contains('/') && said.contains("\nhint: ")), "{target}: {said}");
    }
    assert_eq!(relay.connections(), 0);
}

#[test]
fn a_socket_that_is_not_a_vms_is_reported_once() {
    let expected = stdout(&run(program("numbers_are_used_again")));
    let folder = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("vm.sock")).unwrap();
    thread::spawn(move || {
        let mut streams: Vec<_> = Vec::new();
        for mut stream in listener.incoming().flatten() {
            std::io::Write::write_all(&mut stream, b"220 mail.example ESMTP\r\n").unwrap();
            streams.push(stream);
        }
    });
    let output = run(preloaded(
        "numbers_are_used_again",
        &map(folder.path(), "127.0.0.1:* -> unix SOCKET\npatience 5000 ms"),
    ));
    assert_eq!(stdout(&output), expected);
    let said = stderr(&output);
    assert_eq!(said.matches("libtaut_vmci:").count(), 1, "{said}");
    assert!(said.contains("name the VMCI socket of a VM"), "{said}");
}

/// Small writes are gathered on request only.
#[test]
fn gathering_saves_system_calls() {
    let calls = |scenario: &str, gathers: &str| -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(&folder.path().join("vm.sock"));
        let mut command = preloaded(scenario, &map(folder.path(), LOOPBACK));
        command.env("TAUT_VMCI_GATHER", gathers);
        let output = run(command);
        assert_eq!((relay.connections(), stderr(&output).as_str()), (1, ""));
        stdout(&output).trim().parse().unwrap()
    };
    for scenario in ["writes", "writes_of_child"] {
        assert_eq!(calls(scenario, "0"), 1000, "{scenario}");
        // A thread that does not get a processor in time writes to an idle connection.
        let gathered = calls(scenario, "1");
        assert!(gathered < 500, "{scenario}: {gathered} writes of 1000 went alone");
    }
}

/// A write that waits goes on with its own connection, or not at all.
#[test]
fn a_write_that_waits_does_not_go_to_another_connection() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = Relay::start(&folder.path().join("vm.sock"));
    let mut command = preloaded("replaced", &map(folder.path(), LOOPBACK));
    command.env("TAUT_VMCI_GATHER", "1");
    assert_eq!(stdout(&run(command)), "read: true\nErr(\"EBADF\")\nevents: 0x0\n");
}

/// A handler of the fault in a write ends the program by `exit`, which sends gathered bytes.
#[test]
fn a_fault_in_a_write_can_end_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = Relay::start(&folder.path().join("vm.sock"));
    let mut command = preloaded("unreadable", &map(folder.path(), LOOPBACK));
    command.env("TAUT_VMCI_GATHER", "1");
    assert_eq!(stdout(&run(command)), "small writes\nhandled\n");
}

/// Only the first program that is started waits for a peer that takes nothing.
#[test]
fn a_peer_that_takes_nothing_delays_one_spawn() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = Relay::start(&folder.path().join("vm.sock"));
    let mut command = preloaded("spawns", &map(folder.path(), LOOPBACK));
    command.env("TAUT_VMCI_GATHER", "1");
    let output = run(command);
    assert_eq!(stdout(&output), "true\nfalse\nfalse\nfalse\n");
    let said = stderr(&output);
    assert!(said.contains("are lost") && said.contains("\nhint: "), "{said}");
}

/// A library that is preloaded behind this one replaces the same function.
#[test]
fn the_next_library_sees_the_end_of_a_process() {
    const SOURCE: &str = "#define _GNU_SOURCE\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        void _exit(int status) { write(2, \"next\\n\", 5); for (;;) syscall(SYS_exit_group, status); }\n";
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("next.c"), folder.path().join("next.so"));
    std::fs::write(&source, SOURCE).unwrap();
    // Rust's own linker.
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(status.unwrap().success());
    for gathers in ["0", "1"] {
        let folder = tempfile::tempdir().unwrap();
        let _relay = Relay::start(&folder.path().join("vm.sock"));
        let mut command = preloaded("child_has_the_connection", &map(folder.path(), LOOPBACK));
        let both = [built("libtaut_vmci.so"), library.clone()].map(|path| path.display().to_string());
        command.env("LD_PRELOAD", both.join(":")).env("TAUT_VMCI_GATHER", gathers);
        assert_eq!(stderr(&run(command)), "next\n", "{gathers}");
    }
}

/// One listener accepts clients of both kinds.
#[test]
fn a_listener_accepts_connections_of_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(&folder.path().join("vm.sock"));
    // Only listening sockets are mapped, so the program's own connects are TCP.
    let path = map(folder.path(), "listen 127.0.0.1:* -> unix SOCKET");
    let output = run(preloaded("accept_from_many_threads", &path));
    assert_eq!(stdout(&output), "40 of 40\n");
    assert_eq!(relay.connections(), 0);
    let half =
        map(folder.path(), "127.0.0.1:* -> unix SOCKET\nlisten 127.0.0.1:* -> unix SOCKET\npatience 5000 ms");
    let output = run(preloaded("accept_from_many_threads", &half));
    assert_eq!(stdout(&output), "40 of 40\n");
    assert_eq!(relay.connections(), 40);
}

#[test]
fn decisions_are_logged_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = Relay::start(&folder.path().join("vm.sock"));
    let mut command = preloaded("names", &map(folder.path(), LOOPBACK));
    command.env("TAUT_VMCI_LOG", "1");
    let said = stderr(&run(command));
    assert!(said.contains(": TCP and VMCI"), "{said}");
    assert!(said.contains("vm.sock port "), "{said}");
    assert!(said.contains(": unix "), "{said}");
}

/// A machine without memory for queue pairs says so on request, and only then.
#[test]
fn the_log_says_why_there_are_no_queue_pairs() {
    for (log, times) in [("1", 1), ("0", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let _relay = Relay::start(&folder.path().join("vm.sock"));
        let mut command = preloaded("names", &map(folder.path(), &format!("rings on\n{LOOPBACK}")));
        command.env("TAUT_VMCI_LOG", log);
        let said = stderr(&run(command));
        assert_eq!(said.matches("libtaut_vmci: no queue pairs: ").count(), times, "{said}");
    }
}
