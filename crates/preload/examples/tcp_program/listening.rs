//! All forms of listen and accept.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::thread;

use crate::calls::{
    accept4, bind, close, epoll, epoll_ctl, epoll_wait, fcntl, getsockopt, listen, poll, raw_close,
    receive_timeout, select_readable, setsockopt, shutdown, socket,
};
use crate::{Scenario, listen_at, listener, reserved};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("readiness", readiness),
    ("watched_before_it_listens", watched_before_it_listens),
    ("watched_at_edges", watched_at_edges),
    ("watched_for_nothing", watched_for_nothing),
    ("instance_is_closed_unseen", instance_is_closed_unseen),
    ("one_duplicate_is_shut_down", one_duplicate_is_shut_down),
    ("accept_that_does_not_wait", accept_that_does_not_wait),
    ("accept_with_time_limit", accept_with_time_limit),
    ("flags_of_accept", flags_of_accept),
    ("accept_from_many_threads", accept_from_many_threads),
    ("shutdown_wakes_accept", shutdown_wakes_accept),
    ("listener_is_a_tcp_socket", listener_is_a_tcp_socket),
    ("port_is_free_after_close", port_is_free_after_close),
    ("listens_again", listens_again),
];

fn wait_readable(fd: i32) {
    assert_eq!(poll(fd, libc::POLLIN, -1), libc::POLLIN);
}

fn readiness() {
    let (listener, address) = listener();
    let fd = listener.as_raw_fd();
    println!("before: poll {:#x}, select {}", poll(fd, libc::POLLIN, 0), select_readable(fd));
    let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    wait_readable(fd);
    println!("connected: poll {:#x}, select {}", poll(fd, libc::POLLIN, 0), select_readable(fd));
    for _ in &clients {
        drop(listener.accept().unwrap());
    }
    println!("accepted: poll {:#x}, select {}", poll(fd, libc::POLLIN, 0), select_readable(fd));
}

fn watched_before_it_listens() {
    let socket = socket(libc::SOCK_NONBLOCK);
    let fd = socket.as_raw_fd();
    bind(fd, "127.0.0.1:0".parse().unwrap()).unwrap();
    let epoll = epoll();
    epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 42).unwrap();
    listen(fd, 16).unwrap();
    let listener = TcpListener::from(socket);
    println!("before: {:x?}", epoll_wait(epoll.as_raw_fd(), 0));
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    println!("connected: {:x?}", epoll_wait(epoll.as_raw_fd(), -1));
    drop(listener.accept().unwrap());
    println!("accepted: {:x?}", epoll_wait(epoll.as_raw_fd(), 0));
    epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN, 43).unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    println!("connected: {:x?}", epoll_wait(epoll.as_raw_fd(), -1));
}

fn watched_at_edges() {
    let (listener, address) = listener();
    listener.set_nonblocking(true).unwrap();
    let fd = listener.as_raw_fd();
    let (edges, exclusive) = (epoll(), epoll());
    epoll_ctl(edges.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN | libc::EPOLLET, 1).unwrap();
    let asked = libc::EPOLLIN | libc::EPOLLEXCLUSIVE;
    println!("exclusively: {:?}", epoll_ctl(exclusive.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, asked, 2));
    for round in 0..3 {
        let _client = TcpStream::connect(address).unwrap();
        println!("round {round}: {:x?}", epoll_wait(edges.as_raw_fd(), -1));
        println!("no second edge: {:x?}", epoll_wait(edges.as_raw_fd(), 0));
        println!("exclusive: {:x?}", epoll_wait(exclusive.as_raw_fd(), -1));
        println!("accept: {}", listener.accept().is_ok());
        println!("accept: {:?}", listener.accept().map_err(|error| error.kind()).map(|_| ()));
    }
}

/// A server that does not want connections now.
fn watched_for_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, fd) = (listener.local_addr().unwrap(), listener.as_raw_fd());
    let epoll = epoll();
    epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, 0, 1).unwrap();
    let _client = TcpStream::connect(address).unwrap();
    println!("nothing wanted: {:x?}", epoll_wait(epoll.as_raw_fd(), 0));
    epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN, 2).unwrap();
    println!("wanted: {:x?}", epoll_wait(epoll.as_raw_fd(), -1));
    drop(listener.accept().unwrap());
    let _client = TcpStream::connect(address).unwrap();
    println!("another: {:x?}", epoll_wait(epoll.as_raw_fd(), -1));
    drop(listener.accept().unwrap());
    println!("accepted: {:x?}", epoll_wait(epoll.as_raw_fd(), 0));
    epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, fd, 0, 3).unwrap();
    let _client = TcpStream::connect(address).unwrap();
    println!("nothing wanted: {:x?}", epoll_wait(epoll.as_raw_fd(), 0));
}

/// The number of an epoll instance becomes another instance, by a system call that the library does
/// not see.
fn instance_is_closed_unseen() {
    let socket = socket(0);
    let fd = socket.as_raw_fd();
    bind(fd, "127.0.0.1:0".parse().unwrap()).unwrap();
    let first = epoll().into_raw_fd();
    epoll_ctl(first, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 42).unwrap();
    raw_close(first);
    let second = epoll();
    println!("the same number: {}", second.as_raw_fd() == first);
    listen(fd, 16).unwrap();
    println!("nobody: {:#x}", poll(fd, libc::POLLIN, 0));
    let listener = TcpListener::from(socket);
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    wait_readable(fd);
    println!("not watched: {:x?}", epoll_wait(second.as_raw_fd(), 0));
    println!("accept: {}", listener.accept().is_ok());
}

fn one_duplicate_is_shut_down() {
    let (_reserved, address) = reserved();
    let listener = listen_at(address);
    let other = listener.try_clone().unwrap();
    assert_eq!(poll(other.as_raw_fd(), libc::POLLIN, 0), 0);
    println!("shutdown: {:?}", shutdown(listener.as_raw_fd(), libc::SHUT_RDWR));
    println!("connect: {:?}", TcpStream::connect(address).map_err(|error| error.kind()).map(|_| ()));
    println!("accept: {:?}", accept4(other.as_raw_fd(), 0));
}

fn accept_that_does_not_wait() {
    let (listener, address) = listener();
    let fd = listener.as_raw_fd();
    fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK).unwrap();
    println!("nobody: {:?}", accept4(fd, 0));
    let _client = TcpStream::connect(address).unwrap();
    wait_readable(fd);
    println!("somebody: {}", accept4(fd, 0).map(close).is_ok());
    println!("nobody: {:?}", accept4(fd, 0));
    fcntl(fd, libc::F_SETFL, 0).unwrap();
    let client = thread::spawn(move || TcpStream::connect(address).unwrap());
    println!("waits again: {}", accept4(fd, 0).map(close).is_ok());
    drop(client.join().unwrap());
}

fn accept_with_time_limit() {
    let (listener, address) = listener();
    receive_timeout(listener.as_raw_fd(), 10).unwrap();
    println!("nobody: {:?}", accept4(listener.as_raw_fd(), 0));
    let _client = TcpStream::connect(address).unwrap();
    wait_readable(listener.as_raw_fd());
    println!("somebody: {}", accept4(listener.as_raw_fd(), 0).map(close).is_ok());
}

fn flags_of_accept() {
    let (listener, address) = listener();
    setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
    setsockopt(listener.as_raw_fd(), libc::SOL_TCP, libc::TCP_NODELAY, 1).unwrap();
    for flags in [0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC] {
        let _client = TcpStream::connect(address).unwrap();
        let fd = accept4(listener.as_raw_fd(), flags).unwrap();
        println!("{flags:#x}: {:?} {:?}", fcntl(fd, libc::F_GETFL, 0), fcntl(fd, libc::F_GETFD, 0));
        let options = [(libc::SOL_SOCKET, libc::SO_KEEPALIVE), (libc::SOL_TCP, libc::TCP_NODELAY)];
        println!("of the listener: {:?}", options.map(|(level, name)| getsockopt(fd, level, name)));
        close(fd).unwrap();
    }
}

fn accept_from_many_threads() {
    const CLIENTS: usize = 40;
    let (listener, address) = listener();
    let servers: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.try_clone().unwrap();
            thread::spawn(move || {
                for _ in 0..CLIENTS / 4 {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    stream.write_all(&byte).unwrap();
                }
            })
        })
        .collect();
    let clients: Vec<_> = (0..CLIENTS as u8)
        .map(|number| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(&[number]).unwrap();
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                byte == [number]
            })
        })
        .collect();
    let right = clients.into_iter().map(|client| client.join().unwrap()).filter(|right| *right).count();
    for server in servers {
        server.join().unwrap();
    }
    println!("{right} of {CLIENTS}");
}

fn shutdown_wakes_accept() {
    let (_reserved, address) = reserved();
    let listener = TcpListener::bind(address).unwrap();
    let fd = listener.as_raw_fd();
    let waiting = thread::spawn(move || accept4(fd, 0));
    println!("shutdown: {:?}", shutdown(fd, libc::SHUT_RDWR));
    println!("accept: {:?}", waiting.join().unwrap());
    println!("connect: {:?}", TcpStream::connect(address).map_err(|error| error.kind()).map(|_| ()));
}

fn listener_is_a_tcp_socket() {
    let (listener, address) = listener();
    let fd = listener.as_raw_fd();
    for name in [libc::SO_ACCEPTCONN, libc::SO_TYPE, libc::SO_DOMAIN, libc::SO_PROTOCOL, libc::SO_ERROR] {
        println!("option {name}: {:?}", getsockopt(fd, libc::SOL_SOCKET, name));
    }
    println!("set: {:?}", setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1));
    println!("name: {}", listener.local_addr().unwrap() == address);
    println!("listen again: {:?}", listen(fd, 16));
    println!("flags: {:?} {:?}", fcntl(fd, libc::F_GETFL, 0), fcntl(fd, libc::F_GETFD, 0));
    println!(
        "not connected: {:?}",
        TcpStream::from(OwnedFd::from(listener)).peer_addr().map_err(|error| error.kind())
    );
}

fn port_is_free_after_close() {
    let (_reserved, address) = reserved();
    let listener = listen_at(address);
    let before = crate::calls::open_descriptors();
    drop(listener);
    for round in 0..3 {
        let again = listen_at(address);
        let client = TcpStream::connect(address).unwrap();
        println!("round {round}: {}", again.accept().is_ok());
        println!("client: {}", client.peer_addr().unwrap() == address);
    }
    println!("nobody: {:?}", TcpStream::connect(address).map_err(|error| error.kind()).map(|_| ()));
    println!("descriptors: {}", crate::calls::open_descriptors() < before);
}

/// A server opens its listener anew and tells its client before it waits, as iperf3 does.
fn listens_again() {
    let (_reserved, address) = reserved();
    drop(listen_at(address));
    let again = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(address).unwrap();
    println!("accept: {}", again.accept().is_ok());
    println!("peer: {}", client.peer_addr().unwrap() == address);
}
