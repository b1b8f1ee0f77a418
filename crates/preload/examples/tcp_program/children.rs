//! Children that the C library's `fork` does not make. If small writes of the parent wait
//! (`TCP_CORK`), the bytes arrive once, and before those of the child.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use crate::calls::{
    become_echo, become_true, close, dup2, epoll, epoll_ctl, epoll_wait, exit, in_vfork_child, recv,
    setsockopt, start_child_by_system_call, wait_child,
};
use crate::{Scenario, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("child_of_vfork_executes", child_of_vfork_executes),
    ("child_of_vfork_closes_the_instance", child_of_vfork_closes_the_instance),
    ("child_by_a_system_call", child_by_a_system_call),
];

/// The connection of the child.
static FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn close_and_execute(_: *mut c_void) -> c_int {
    let _ = close(FD.load(Relaxed));
    become_true(false)
}

extern "C" fn execute_with_it(_: *mut c_void) -> c_int {
    let _ = dup2(FD.load(Relaxed), 1);
    become_echo(c"child")
}

/// A connection on which "parent " waits.
fn waiting_pair() -> (TcpStream, TcpStream) {
    let (client, server) = pair();
    setsockopt(client.as_raw_fd(), libc::SOL_TCP, libc::TCP_CORK, 1).unwrap();
    (&client).write_all(b"parent ").unwrap();
    FD.store(client.as_raw_fd(), Relaxed);
    (client, server)
}

/// Ends the connection, and prints what has arrived.
fn finish(client: TcpStream, mut server: TcpStream) {
    setsockopt(client.as_raw_fd(), libc::SOL_TCP, libc::TCP_CORK, 0).unwrap();
    drop(client);
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    println!("{text:?}");
}

fn child_of_vfork_executes() {
    for child in [close_and_execute, execute_with_it] {
        let (client, server) = waiting_pair();
        println!("child: {}", in_vfork_child(child));
        finish(client, server);
    }
}

/// The epoll instance of the parent.
static INSTANCE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn close_the_instance_and_execute(_: *mut c_void) -> c_int {
    let _ = close(INSTANCE.load(Relaxed));
    let _ = dup2(FD.load(Relaxed), 0);
    become_true(false)
}

/// The next program inherits a connection that its parent watches, but not the epoll instance.
fn child_of_vfork_closes_the_instance() {
    let (client, mut server) = pair();
    let (fd, instance) = (client.as_raw_fd(), epoll());
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    epoll_ctl(instance.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 7).unwrap();
    println!("nothing: {:x?}", epoll_wait(instance.as_raw_fd(), 0));
    FD.store(fd, Relaxed);
    INSTANCE.store(instance.as_raw_fd(), Relaxed);
    println!("child: {}", in_vfork_child(close_the_instance_and_execute));
    for round in 0..3 {
        server.write_all(b"later").unwrap();
        println!("{round}: {:x?}", epoll_wait(instance.as_raw_fd(), 10_000));
        println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    }
}

fn child_by_a_system_call() {
    let ends: [fn() -> u8; 2] = [|| exit(0), || become_true(false)];
    for end in ends {
        let (client, server) = waiting_pair();
        println!("child: {}", wait_child(start_child_by_system_call(end)));
        finish(client, server);
    }
}
