//! An ordinary TCP program that knows nothing of VMCI sockets. Each scenario prints its
//! observations, which must be the same with and without `libtaut_vmci.so`.
//!
//! `tcp_program SCENARIO` runs one scenario, between two ends in this process at the loopback
//! address or, for some scenarios, in several processes. `tcp_program speed` measures small writes
//! (`speed.rs`), `tcp_program writes` and `tcp_program writes_of_child` count their system calls.
//! `tcp_program model` compares operations on two connections (`model/mod.rs`).
//! `tcp_program unreadable`, `tcp_program replaced`, `tcp_program overwritten` and `tcp_program
//! spawns` do what differs from TCP.

mod bytes;
mod calls;
mod cancelled;
mod children;
mod connecting;
mod descriptors;
mod gathering;
mod limits;
mod listening;
mod model;
mod options;
mod processes;
mod rings;
mod sharing;
mod signals;
mod speed;
mod unseen;
mod waiting;
mod watching;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

/// The name of a scenario, and its function.
type Scenario = (&'static str, fn());

const SCENARIOS: &[&[Scenario]] = &[
    bytes::SCENARIOS,
    cancelled::SCENARIOS,
    children::SCENARIOS,
    connecting::SCENARIOS,
    descriptors::SCENARIOS,
    gathering::SCENARIOS,
    limits::SCENARIOS,
    listening::SCENARIOS,
    options::SCENARIOS,
    processes::SCENARIOS,
    rings::SCENARIOS,
    sharing::SCENARIOS,
    signals::SCENARIOS,
    unseen::SCENARIOS,
    waiting::SCENARIOS,
    watching::SCENARIOS,
];

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let all = SCENARIOS.iter().flat_map(|list| list.iter());
    if name == "inherited" {
        processes::inherited();
    } else if name == "model" {
        model::run();
    } else if name == "speed" {
        speed::run();
    } else if name == "overwritten" {
        waiting::overwritten();
    } else if name == "writes" {
        gathering::count_writes();
    } else if name == "writes_of_child" {
        gathering::count_writes_of_child();
    } else if name == "replaced" {
        gathering::replaced();
    } else if name == "unreadable" {
        gathering::unreadable();
    } else if name == "spawns" {
        gathering::spawns();
    } else if let Some((_, scenario)) = all.clone().find(|(known, _)| *known == name) {
        scenario();
    } else {
        all.for_each(|(name, _)| println!("{name}"));
        std::process::exit(if name.is_empty() { 0 } else { 2 });
    }
}

/// A socket that listens on a free port of the loopback address.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = listen_at("127.0.0.1:0".parse().unwrap());
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A socket that listens at this address and is looked at once, as servers do. From then on the
/// library accepts VMCI connections for it.
fn listen_at(address: SocketAddr) -> TcpListener {
    let listener = TcpListener::bind(address).unwrap();
    assert_eq!(calls::poll(listener.as_raw_fd(), libc::POLLIN, 0), 0);
    listener
}

/// A free port of the loopback address on which nobody listens. It is reserved for this program:
/// the kernel does not assign it to other programs or to outgoing connections. A listener that
/// reuses addresses, as `TcpListener` does, can listen there.
fn reserved() -> (OwnedFd, SocketAddr) {
    let socket = calls::socket(0);
    calls::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    calls::bind(socket.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let socket = TcpListener::from(socket);
    let address = socket.local_addr().unwrap();
    (socket.into(), address)
}

/// The two ends of a connection: the connecting and the accepted one.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}
