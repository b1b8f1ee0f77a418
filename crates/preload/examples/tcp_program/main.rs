//! A TCP program as there are many, which knows nothing of VMCI sockets. Each scenario prints what it sees; it has to see the same with
//! `libtaut_vmci.so` preloaded as without.
//!
//! `tcp_program SCENARIO` runs one of them, between two ends in this process (at the loopback address) or, if it says so, in another.

mod bytes;
mod calls;
mod connecting;
mod descriptors;
mod listening;
mod options;
mod processes;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

/// A scenario's name and what it does.
type Scenario = (&'static str, fn());

const SCENARIOS: &[&[Scenario]] = &[
    bytes::SCENARIOS,
    connecting::SCENARIOS,
    descriptors::SCENARIOS,
    listening::SCENARIOS,
    options::SCENARIOS,
    processes::SCENARIOS,
];

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let all = SCENARIOS.iter().flat_map(|list| list.iter());
    if name == "inherited" {
        processes::inherited();
    } else if let Some((_, scenario)) = all.clone().find(|(known, _)| *known == name) {
        scenario();
    } else {
        all.for_each(|(name, _)| println!("{name}"));
        std::process::exit(if name.is_empty() { 0 } else { 2 });
    }
}

/// A listening socket at a free port of the loopback address.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A free port of the loopback address that stays this program's while nobody listens there: the kernel gives it to no other program
/// that asks for any port, and does not connect from it. Whoever reuses addresses, as `TcpListener` does, can listen there.
fn reserved() -> (OwnedFd, SocketAddr) {
    let socket = calls::socket(0);
    calls::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    calls::bind(socket.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let socket = TcpListener::from(socket);
    let address = socket.local_addr().unwrap();
    (socket.into(), address)
}

/// Two ends of a connection: the connecting and the accepted one.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}
