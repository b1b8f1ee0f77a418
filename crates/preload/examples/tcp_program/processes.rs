//! Sockets in more than one process.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::calls::{close, fcntl, getsockopt, in_child, in_vfork_child, setsockopt};
use crate::{Scenario, listener, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("children_accept", children_accept),
    ("child_has_the_connection", child_has_the_connection),
    ("another_program_inherits", another_program_inherits),
    ("closed_on_exec", closed_on_exec),
    ("memory_is_shared", memory_is_shared),
];

/// Several processes accept from the same listener.
fn children_accept() {
    let (listener, address) = listener();
    for child in 0..2u8 {
        let mut client = TcpStream::connect(address).unwrap();
        let code = in_child(|| {
            let (mut server, from) = listener.accept().unwrap();
            server.write_all(&[child]).unwrap();
            u8::from(from.ip() == address.ip() && server.local_addr().unwrap() == address)
        });
        let mut answer = [9];
        client.read_exact(&mut answer).unwrap();
        println!("child {child}: {code} {answer:?}");
    }
    let code = in_child(|| {
        drop(listener);
        let (again, address) = crate::listener();
        let _client = TcpStream::connect(address).unwrap();
        u8::from(again.accept().is_ok())
    });
    println!("child with a listener of its own: {code}");
}

/// A server forks for each connection.
fn child_has_the_connection() {
    let (mut client, mut server) = pair();
    let code = in_child(|| {
        let right = server.peer_addr().unwrap().ip() == server.local_addr().unwrap().ip();
        server.write_all(b"from the child").unwrap();
        u8::from(right)
    });
    println!("child: {code}, descriptor {}", server.as_raw_fd() > 2);
    drop(server);
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    println!("{all}");
}

/// A server replaces itself by exec and passes the numbers of its descriptors.
fn another_program_inherits() {
    let (listener, address) = listener();
    let _client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    for fd in [listener.as_raw_fd(), server.as_raw_fd()] {
        fcntl(fd, libc::F_SETFD, 0).unwrap();
    }
    let mut next = next_program();
    let mut next =
        next.arg(listener.as_raw_fd().to_string()).arg(server.as_raw_fd().to_string()).spawn().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"for the next").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = String::new();
    client.read_to_string(&mut back).unwrap();
    println!("{back}, {}", next.wait().unwrap());
}

/// The number that a child closes.
static CLOSED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn close_it(_: *mut c_void) -> c_int {
    close(CLOSED.load(Relaxed)).map_or(1, |_| 0)
}

/// A child of a forked child shares that one's memory, and closes its own descriptor.
fn memory_is_shared() {
    let (listener, address) = listener();
    CLOSED.store(listener.as_raw_fd(), Relaxed);
    let code = in_child(|| {
        let inner = in_vfork_child(close_it);
        let _client = TcpStream::connect(address).unwrap();
        u8::from(inner == 0 && listener.accept().is_ok())
    });
    println!("child: {code}");
}

fn next_program() -> Command {
    let mut next = Command::new(std::env::current_exe().unwrap());
    next.arg("inherited");
    next
}

fn closed_on_exec() {
    let (listener, address) = listener();
    let status = next_program().arg(listener.as_raw_fd().to_string()).arg("-1").status().unwrap();
    println!("{status}");
    let _client = TcpStream::connect(address).unwrap();
    println!("accepts: {}", listener.accept().is_ok());
}

/// The program after exec. It gets the numbers of a listener and perhaps of a connection, and shows
/// that they still work.
pub(crate) fn inherited() {
    let numbers: Vec<i32> = std::env::args().skip(2).map(|number| number.parse().unwrap()).collect();
    let [listener, connection] = numbers[..] else { panic!("two numbers, not {numbers:?}") };
    println!("listens: {:?}", getsockopt(listener, libc::SOL_SOCKET, libc::SO_ACCEPTCONN));
    println!("descriptors: {}", if connection < 0 { crate::calls::open_descriptors() } else { 0 });
    if connection < 0 {
        return;
    }
    println!("peer: {:?}", crate::calls::peer_ip(connection));
    println!("nodelay: {:?}", setsockopt(connection, libc::SOL_TCP, libc::TCP_NODELAY, 1));
    println!("nodelay: {:?}", getsockopt(connection, libc::SOL_TCP, libc::TCP_NODELAY));
    println!("protocol: {:?}", getsockopt(connection, libc::SOL_SOCKET, libc::SO_PROTOCOL));
    #[allow(unsafe_code, reason = "numbers become sockets")]
    // SAFETY: the program that started this one left these descriptors to it.
    let (listener, connection) = unsafe {
        (TcpListener::from(OwnedFd::from_raw_fd(listener)), TcpStream::from(OwnedFd::from_raw_fd(connection)))
    };
    let address = listener.local_addr().unwrap();
    println!(
        "connection: {} {}",
        connection.peer_addr().unwrap().ip(),
        connection.local_addr().unwrap() == address
    );
    let (mut server, from) = listener.accept().unwrap();
    println!("accepted: {} {}", from.ip(), server.local_addr().unwrap() == address);
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    server.write_all(&all).unwrap();
    drop(listener);
    println!("the first program still listens: {}", TcpStream::connect(address).is_ok());
}
