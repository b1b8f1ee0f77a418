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

/// Two ends of a connection: the connecting and the accepted one.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}
