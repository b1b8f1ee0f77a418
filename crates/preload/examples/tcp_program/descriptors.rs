//! Duplicating, moving and closing descriptors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use crate::calls::{
    accept4, close, close_range, connect, dup, dup2, dup3, fcntl, getsockopt, open_descriptors, poll,
    raw_close, socket,
};
use crate::{Scenario, listen_at, listener, pair, reserved};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("duplicates_of_a_connection", duplicates_of_a_connection),
    ("duplicates_of_a_listener", duplicates_of_a_listener),
    ("listener_put_over_a_listener", listener_put_over_a_listener),
    ("everything_else_is_closed", everything_else_is_closed),
    ("each_number_is_overwritten", each_number_is_overwritten),
    ("ranges_are_closed", ranges_are_closed),
    ("numbers_are_used_again", numbers_are_used_again),
    ("closed_by_a_system_call", closed_by_a_system_call),
    ("duplicated_before_connect", duplicated_before_connect),
];

/// A socket is duplicated, then connected, then used by its duplicates.
fn duplicated_before_connect() {
    let (listener, address) = listener();
    let socket = socket(0);
    let first = dup(socket.as_raw_fd());
    let second = fcntl(first, libc::F_DUPFD_CLOEXEC, 50).unwrap();
    println!("connect: {:?}", connect(first, address));
    let (mut server, _) = listener.accept().unwrap();
    drop(socket);
    println!("peer: {}", stream(first).peer_addr().unwrap() == address);
    println!("on exec: {:?}", fcntl(second, libc::F_GETFD, 0));
    let mut last = stream(second);
    println!("peer: {}", last.peer_addr().unwrap() == address);
    last.write_all(b"hello").unwrap();
    drop(last);
    let mut all = String::new();
    server.read_to_string(&mut all).unwrap();
    println!("{all}, and the end");
}

fn duplicates_of_a_connection() {
    let (client, mut server) = pair();
    let peer = client.peer_addr().unwrap();
    let first = dup(client.as_raw_fd());
    let second = fcntl(first, libc::F_DUPFD_CLOEXEC, 50).unwrap();
    println!("third: {:?}", dup3(second, 60, libc::O_CLOEXEC));
    drop(client);
    close(first).unwrap();
    close(second).unwrap();
    println!("family: {:?}", getsockopt(60, libc::SOL_SOCKET, libc::SO_DOMAIN));
    let mut last = stream(60);
    println!("peer: {}", last.peer_addr().unwrap() == peer);
    last.write_all(b"hello").unwrap();
    drop(last);
    let mut all = String::new();
    server.read_to_string(&mut all).unwrap();
    println!("{all}, and the end");
}

fn stream(fd: i32) -> TcpStream {
    #[allow(unsafe_code, reason = "a number becomes a stream")]
    // SAFETY: the callers own the number.
    TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Tells whether a connection arrives at this listener.
fn accepts(fd: i32, address: std::net::SocketAddr) -> bool {
    let Ok(_client) = TcpStream::connect(address) else { return false };
    accept4(fd, 0).map(close).is_ok()
}

fn duplicates_of_a_listener() {
    let (_reserved, address) = reserved();
    let before = open_descriptors();
    let listener = listen_at(address);
    let first = dup(listener.as_raw_fd());
    let second = fcntl(first, libc::F_DUPFD, 50).unwrap();
    println!("both: {} {}", accepts(listener.as_raw_fd(), address), accepts(first, address));
    drop(listener);
    println!("one left less: {} {}", accepts(first, address), accepts(second, address));
    close(first).unwrap();
    println!("the last: {} {:#x}", accepts(second, address), poll(second, libc::POLLIN, 0));
    println!("on exec: {:?}", fcntl(second, libc::F_GETFD, 0));
    close(second).unwrap();
    println!("none: {}", accepts(second, address));
    println!("descriptors: {}", open_descriptors() == before);
}

fn listener_put_over_a_listener() {
    let (_reserved, there) = reserved();
    let before = open_descriptors();
    let one = listen_at(there);
    let (other, here) = listener();
    let number = one.into_raw_fd();
    println!("over: {}", dup2(other.as_raw_fd(), number) == Ok(number));
    drop(other);
    println!("the other's: {}", accepts(number, here));
    println!("the one's: {}", TcpStream::connect(there).is_ok());
    println!("itself: {}", dup2(number, number) == Ok(number));
    println!("still: {}", accepts(number, here));
    close(number).unwrap();
    println!("descriptors: {}", open_descriptors() == before);
}

/// Closes every number except the known ones, as daemons do.
fn everything_else_is_closed() {
    let (listener, address) = listener();
    for fd in 3..2048 {
        if fd != listener.as_raw_fd() {
            let _ = close(fd);
        }
    }
    println!("accepts: {}", accepts(listener.as_raw_fd(), address));
}

fn each_number_is_overwritten() {
    // Nearly all numbers of a process with the usual limit.
    const FIRST: i32 = 3;
    const LAST: i32 = 1000;
    let (listener, address) = listener();
    let null = std::fs::File::open("/dev/null").unwrap();
    for fd in FIRST..LAST {
        if fd != listener.as_raw_fd() && fd != null.as_raw_fd() {
            assert_eq!(dup2(null.as_raw_fd(), fd), Ok(fd));
        }
    }
    for fd in FIRST..LAST {
        if fd != listener.as_raw_fd() && fd != null.as_raw_fd() {
            close(fd).unwrap();
        }
    }
    println!("accepts: {}", accepts(listener.as_raw_fd(), address));
}

fn ranges_are_closed() {
    let (_reserved, address) = reserved();
    let before = open_descriptors();
    let listener = listen_at(address);
    let kept = dup3(listener.as_raw_fd(), 40, 0).unwrap();
    let number = listener.into_raw_fd() as u32;
    println!("below and above: {:?} {:?}", close_range(number, 39, 0), close_range(41, u32::MAX, 0));
    println!("accepts: {}", accepts(kept, address));
    println!("unknown flag: {:?}", close_range(3, u32::MAX, 1 << 20));
    println!("accepts: {}", accepts(kept, address));
    println!("on exec only: {:?}", close_range(30, 50, libc::CLOSE_RANGE_CLOEXEC.cast_signed()));
    println!("flag: {:?}", fcntl(kept, libc::F_GETFD, 0));
    println!("accepts: {}", accepts(kept, address));
    println!("the rest: {:?}", close_range(number, u32::MAX, 0));
    println!("accepts: {}", accepts(kept, address));
    println!("descriptors: {}", open_descriptors() == before);
}

/// A number is used again for another socket.
fn numbers_are_used_again() {
    let (listener, address) = listener();
    for round in 0..3 {
        let (client, server) = pair();
        println!("round {round}: {}", client.peer_addr().unwrap() == server.local_addr().unwrap());
        drop((client, server));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        println!(
            "udp: {:?} {:?}",
            udp.peer_addr().is_err(),
            getsockopt(udp.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PROTOCOL)
        );
        println!("listener: {}", accepts(listener.as_raw_fd(), address));
    }
}

/// Closes a descriptor by a system call, as `fclose` does. The library cannot see that, and another
/// socket soon has the number.
fn closed_by_a_system_call() {
    let (_reserved, old) = reserved();
    let first = listen_at(old);
    let number = first.into_raw_fd();
    raw_close(number);
    let (second, address) = listener();
    println!("the same number: {}", second.as_raw_fd() == number);
    println!("accepts: {}", accepts(number, address));
    println!("nobody: {}", accepts(number, old));
    let (client, _server) = pair();
    let number = client.into_raw_fd();
    raw_close(number);
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    println!("the same number: {}", udp.as_raw_fd() == number);
    println!("udp: {:?}", getsockopt(number, libc::SOL_SOCKET, libc::SO_TYPE));
    println!("no peer: {:?}", udp.peer_addr().map_err(|error| error.kind()));
}
