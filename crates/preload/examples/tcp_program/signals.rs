//! Signals during blocking calls.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::calls::{
    HANDLED, accept4, bind, close, connect, handle, listen, pipe, poll, receive_timeout, recv, socket,
    start_child, wait_child, with_alarms, write,
};
use crate::{Scenario, listener, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("children_end_during_accept", children_end_during_accept),
    ("accept_is_interrupted", accept_is_interrupted),
    ("connect_is_interrupted", connect_is_interrupted),
    ("receives_are_interrupted", receives_are_interrupted),
];

/// A forking server handles `SIGCHLD` with `SA_RESTART`, and other signals without.
fn children_end_during_accept() {
    for others in [0, libc::SIGUSR1] {
        let (listener, address) = listener();
        handle(libc::SIGCHLD, libc::SA_RESTART);
        if others != 0 {
            handle(others, 0);
        }
        HANDLED.store(0, Relaxed);
        let (ended, alive) = pipe();
        let child = start_child(|| {
            std::thread::sleep(Duration::from_millis(30));
            0
        });
        drop(alive);
        let (end, begin) = pipe();
        // The other child has ended, and the signal was sent.
        let client = start_child(|| {
            let _ = File::from(ended).read(&mut [0]);
            std::thread::sleep(Duration::from_millis(100));
            let connected = TcpStream::connect(address);
            let _ = File::from(end).read(&mut [0]);
            u8::from(connected.is_err())
        });
        println!("accept: {}", accept4(listener.as_raw_fd(), 0).map(close).is_ok());
        println!("handled: {}, child: {}", HANDLED.load(Relaxed), wait_child(child));
        write(begin.as_raw_fd(), b"x").unwrap();
        println!("client: {}", wait_child(client));
    }
}

fn accept_is_interrupted() {
    let (listener, _) = listener();
    let fd = listener.as_raw_fd();
    handle(libc::SIGALRM, 0);
    println!("alone: {:?}", with_alarms(|| accept4(fd, 0)));
    handle(libc::SIGCHLD, libc::SA_RESTART);
    println!("among others: {:?}", with_alarms(|| accept4(fd, 0)));
    handle(libc::SIGALRM, libc::SA_RESTART);
    receive_timeout(fd, 10_000).unwrap();
    println!("with a time limit: {:?}", with_alarms(|| accept4(fd, 0)));
    println!("handled: {}", HANDLED.load(Relaxed) >= 3);
}

/// A signal ends a receive that waits, and one that has got a part, whatever its handler's flags.
fn receives_are_interrupted() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    for flags in [0, libc::SA_RESTART] {
        handle(libc::SIGALRM, flags);
        server.write_all(b"part").unwrap();
        println!("bytes: {:#x}", poll(fd, libc::POLLIN, -1));
        for more in [libc::MSG_PEEK, 0] {
            let flags = libc::MSG_WAITALL | more;
            println!("a part: {:?}", with_alarms(|| recv(fd, &mut [0; 8], flags)));
        }
    }
    handle(libc::SIGALRM, 0);
    println!("nothing: {:?}", with_alarms(|| recv(fd, &mut [0; 8], 0)));
    println!("handled: {}", HANDLED.load(Relaxed) >= 3);
}

/// A listener whose queue is full does not answer.
fn connect_is_interrupted() {
    let listener = socket(0);
    bind(listener.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    listen(listener.as_raw_fd(), 0).unwrap();
    let listener = std::net::TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let waiting: Vec<_> = (0..4).map(|_| socket(libc::SOCK_NONBLOCK)).collect();
    for socket in &waiting {
        let _ = connect(socket.as_raw_fd(), address);
    }
    // A machine that did not answer by VMCI is tried again after a second.
    std::thread::sleep(Duration::from_millis(1100));
    handle(libc::SIGALRM, 0);
    let last = socket(0);
    println!("connect: {:?}", with_alarms(|| connect(last.as_raw_fd(), address)));
    println!("handled: {}", HANDLED.load(Relaxed) >= 1);
    println!("connected: {:#x}", poll(last.as_raw_fd(), libc::POLLOUT, 0));
}
