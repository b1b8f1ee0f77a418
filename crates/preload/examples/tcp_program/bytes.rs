//! All ways to move bytes through a connection.

use std::io::{IoSlice, Read, Seek, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::thread;
use std::time::Duration;

use crate::calls::{
    HANDLED, Pieces, handle, pipe, poll, raw_close, recv, send, sendfile, sendmsg, sendto, splice, tcp_state,
    unread, write,
};
use crate::{Scenario, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("bulk_and_half_close", bulk_and_half_close),
    ("flags_of_recv", flags_of_recv),
    ("pieces", pieces),
    ("sendfile_and_splice", sendfile_and_splice),
    ("end_of_the_other_side", end_of_the_other_side),
    ("peeked_and_truncated", peeked_and_truncated),
    ("many_unread", many_unread),
    ("broken_pipe", broken_pipe),
];

/// A pattern whose bytes differ from their neighbours.
fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn bulk_and_half_close() {
    let (mut client, mut server) = pair();
    let sent = pattern(8 << 20);
    let echo = thread::spawn(move || {
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        // The peer has shut down only its half. This half still works.
        server.write_all(&all).unwrap();
        all.len()
    });
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    println!("write after shutdown: {:?}", client.write(b"x").map_err(|error| error.kind()));
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    println!("{} there, {} back, equal: {}", echo.join().unwrap(), back.len(), back == sent);
}

fn flags_of_recv() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    let mut buffer = [0; 8];
    println!("nothing there: {:?}", recv(fd, &mut buffer, libc::MSG_DONTWAIT));
    server.write_all(b"abcdef").unwrap();
    poll(fd, libc::POLLIN, -1);
    println!("unread: {}", unread(fd));
    println!("peeked: {:?}", recv(fd, &mut buffer[..3], libc::MSG_PEEK).map(|_| buffer));
    let rest = thread::spawn(move || server.write_all(b"ghij").map(|()| server));
    println!("waited for all: {:?}", recv(fd, &mut buffer, libc::MSG_WAITALL).map(|_| buffer));
    drop(rest.join().unwrap());
    println!("the rest: {:?} {:?}", recv(fd, &mut buffer, libc::MSG_WAITALL), &buffer[..2]);
    println!("the end: {:?}", recv(fd, &mut buffer, 0));
}

fn pieces() {
    let (mut client, mut server) = pair();
    let elsewhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let fd = client.as_raw_fd();
    println!("sendto: {:?}", sendto(fd, b"one ", elsewhere));
    println!("sendmsg: {:?}", sendmsg(fd, &[b"two ", b"", b"three "], elsewhere));
    println!(
        "writev: {:?}",
        client.write_vectored(&[IoSlice::new(b"four "), IoSlice::new(b"five")]).unwrap()
    );
    println!("there: {:#x}", poll(server.as_raw_fd(), libc::POLLIN, -1));
    for (call, fd) in [
        (Pieces::Write, fd),
        (Pieces::Send, fd),
        (Pieces::Read, server.as_raw_fd()),
        (Pieces::Receive, server.as_raw_fd()),
    ] {
        let [none, few, too_many] = [0, 3, 1025].map(|count| call.empty(fd, count));
        println!("{call:?} of empty pieces: {none:?} {few:?} {too_many:?}");
    }
    client.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    server.read_to_string(&mut all).unwrap();
    println!("{all}");
}

fn sendfile_and_splice() {
    const LEN: usize = 1 << 20;
    let (client, server) = pair();
    let sent = pattern(LEN as u32);
    let path = std::env::temp_dir().join(format!("tcp_program-{}", std::process::id()));
    let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&sent).unwrap();
    file.rewind().unwrap();
    let sender = thread::spawn(move || {
        let mut left = LEN;
        while left > 0 {
            left -= sendfile(client.as_raw_fd(), file.as_raw_fd(), left).unwrap();
        }
    });
    let (mut reading, writing) = pipe_files();
    let splicer = thread::spawn(move || {
        let mut total = 0;
        while let Ok(count @ 1..) = splice(server.as_raw_fd(), writing.as_raw_fd(), 65_536) {
            total += count;
        }
        total
    });
    let mut all = Vec::new();
    reading.read_to_end(&mut all).unwrap();
    sender.join().unwrap();
    println!("{} spliced, equal: {}", splicer.join().unwrap(), all == sent);
}

fn pipe_files() -> (std::fs::File, std::fs::File) {
    let (reading, writing) = pipe();
    (reading.into(), writing.into())
}

fn end_of_the_other_side() {
    let (mut client, server) = pair();
    let fd = client.as_raw_fd();
    println!("at first: state {}, events {:#x}", tcp_state(fd), poll(fd, libc::POLLIN | libc::POLLRDHUP, 0));
    server.shutdown(Shutdown::Write).unwrap();
    println!("shut down: events {:#x}", poll(fd, libc::POLLRDHUP, -1));
    println!("shut down: state {}", tcp_state(fd));
    println!("read: {:?}", client.read(&mut [0; 4]).unwrap());
    drop(server);
    // TCP learns only from its next segments that the peer has gone.
    let gone = (0..1000).find_map(|_| {
        thread::sleep(std::time::Duration::from_millis(5));
        client.write(b"x").err()
    });
    println!("write after close fails: {}", gone.is_some());
}

fn peeked_and_truncated() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"abc").unwrap();
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        server.write_all(b"defgh").map(|()| server)
    });
    let mut buffer = [0; 6];
    let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
    println!("peeked all: {:?} {buffer:?}", recv(fd, &mut buffer, flags));
    println!("peeked all: {buffer:?}");
    let server = late.join().unwrap().unwrap();
    let mut buffer = [0; 6];
    println!("discarded: {:?}", recv(fd, &mut buffer[..2], libc::MSG_TRUNC));
    println!("untouched: {buffer:?}");
    println!("counted: {:?}", recv(fd, &mut buffer, libc::MSG_TRUNC | libc::MSG_PEEK));
    println!("received: {:?} {buffer:?}", recv(fd, &mut buffer[..4], 0));
    println!("received: {buffer:?}");
    println!("none: {:?}", recv(fd, &mut buffer, libc::MSG_TRUNC | libc::MSG_DONTWAIT));
    drop(server);
    println!("peeked all: {:?} {buffer:?}", recv(fd, &mut buffer, flags));
    println!("discarded: {:?}", recv(fd, &mut buffer, libc::MSG_TRUNC));
    println!("discarded: {:?}", recv(fd, &mut buffer, libc::MSG_TRUNC));
}

fn many_unread() {
    const LEN: usize = 60_000;
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(&pattern(LEN as u32)).unwrap();
    let all_there = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        usize::try_from(unread(fd)) == Ok(LEN)
    });
    println!("all are counted: {all_there}");
    let mut buffer = vec![0; 2 * LEN];
    println!("peeked: {:?}", recv(fd, &mut buffer, libc::MSG_TRUNC | libc::MSG_PEEK));
    println!("peeked: {:?}", recv(fd, &mut buffer[..LEN - 7], libc::MSG_TRUNC | libc::MSG_PEEK));
    println!("received: {:?} {}", recv(fd, &mut buffer, 0), buffer[..LEN] == pattern(LEN as u32));
    println!("left: {}", unread(fd));
}

fn broken_pipe() {
    let (client, _server) = pair();
    let fd = client.as_raw_fd();
    handle(libc::SIGPIPE, libc::SA_RESTART);
    client.shutdown(Shutdown::Write).unwrap();
    let handled = || HANDLED.load(std::sync::atomic::Ordering::Relaxed);
    println!("write: {:?} {}", write(fd, b"x"), handled());
    println!("writev: {:?} {}", (&client).write_vectored(&[IoSlice::new(b"x")]).is_err(), handled());
    println!("send: {:?} {}", send(fd, b"x", 0), handled());
    println!("without a signal: {:?} {}", send(fd, b"x", libc::MSG_NOSIGNAL), handled());
    println!("no bytes: {:?} {:?} {}", write(fd, b""), send(fd, b"", 0), handled());
    for call in [Pieces::Write, Pieces::Send] {
        println!("{call:?} of empty pieces: {:?} {:?} {}", call.empty(fd, 0), call.empty(fd, 3), handled());
    }
    // The number becomes a pipe, which the library does not see.
    let (reading, writing) = pipe();
    raw_close(client.into_raw_fd());
    let path = format!("/proc/self/fd/{}", writing.as_raw_fd());
    let other = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    drop((reading, writing));
    println!("a pipe: {} {:?} {}", other.as_raw_fd() == fd, write(fd, b"x"), handled());
}
