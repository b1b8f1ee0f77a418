//! All forms of connect.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::calls::{
    bind, connect, disconnect, epoll, epoll_ctl, epoll_wait, fcntl, getsockopt, listen, poll,
    receive_timeout, setsockopt, socket, tcp_state,
};
use crate::{Scenario, listen_at, listener, reserved};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("watched_twice", watched_twice),
    ("signals_wanted", signals_wanted),
    ("blocking_connect", blocking_connect),
    ("connect_without_waiting", connect_without_waiting),
    ("connect_while_watched", connect_while_watched),
    ("connect_with_time_limit", connect_with_time_limit),
    ("nobody_listens", nobody_listens),
    ("nobody_listens_and_nobody_waits", nobody_listens_and_nobody_waits),
    ("names", names),
    ("names_of_ipv6", names_of_ipv6),
    ("asynchronous_programs", asynchronous_programs),
    ("connected_to_another_peer", connected_to_another_peer),
    ("not_looked_at", not_looked_at),
    ("source_ports", source_ports),
    ("families", families),
];

fn blocking_connect() {
    let (listener, address) = listener();
    let socket = socket(libc::SOCK_CLOEXEC);
    let fd = socket.as_raw_fd();
    receive_timeout(fd, 10).unwrap();
    println!("connect: {:?}", connect(fd, address));
    println!("again: {:?}", connect(fd, address));
    println!("closed on exec: {:?}", fcntl(fd, libc::F_GETFD, 0));
    println!("blocking: {:?}", fcntl(fd, libc::F_GETFL, 0));
    let _other = listener.accept().unwrap();
    let mut buffer = [0; 4];
    println!("the time limit set before: {:?}", crate::calls::recv(fd, &mut buffer, 0));
    println!("listen: {:?}", listen(fd, 16));
}

fn connect_without_waiting() {
    let (listener, address) = listener();
    let socket = socket(libc::SOCK_NONBLOCK);
    let fd = socket.as_raw_fd();
    println!("connect: {:?}", connect(fd, address));
    println!("writable: {:#x}", poll(fd, libc::POLLOUT, -1));
    println!("error: {:?}", getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR));
    println!("again: {:?}", connect(fd, address));
    println!("and again: {:?}", connect(fd, address));
    println!("state: {}", tcp_state(fd));
    println!("not waiting: {:?}", fcntl(fd, libc::F_GETFL, 0));
    let _other = listener.accept().unwrap();
    println!("nothing to read: {:#x}", poll(fd, libc::POLLIN, 0));
}

fn connect_while_watched() {
    const IN_OUT: i32 = libc::EPOLLIN | libc::EPOLLOUT;
    let (listener, address) = listener();
    for edge in [0, libc::EPOLLET] {
        let epoll = epoll();
        let socket = socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let (instance, fd) = (epoll.as_raw_fd(), socket.as_raw_fd());
        epoll_ctl(instance, libc::EPOLL_CTL_ADD, fd, IN_OUT | edge, 0xfeed_0000_0000_0001).unwrap();
        println!("connect: {:?}", connect(fd, address));
        println!("event: {:x?}", epoll_wait(instance, -1));
        println!("error: {:?}", getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR));
        let (server, _) = listener.accept().unwrap();
        epoll_ctl(instance, libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN, 7).unwrap();
        println!("nothing to read: {:x?}", epoll_wait(instance, 0));
        drop(server);
        println!("the end: {:x?}", epoll_wait(instance, -1));
        epoll_ctl(instance, libc::EPOLL_CTL_DEL, fd, 0, 0).unwrap();
        println!("not watched: {:x?}", epoll_wait(instance, 0));
    }
}

/// Two epoll instances watch the socket before it is connected.
fn watched_twice() {
    let (_listener, address) = listener();
    let (one, other) = (epoll(), epoll());
    let socket = socket(libc::SOCK_NONBLOCK);
    let fd = socket.as_raw_fd();
    for instance in [&one, &other] {
        epoll_ctl(instance.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, libc::EPOLLOUT, 5).unwrap();
    }
    println!("connect: {:?}", connect(fd, address));
    for instance in [&one, &other] {
        println!("event: {:x?}", epoll_wait(instance.as_raw_fd(), -1));
    }
}

fn signals_wanted() {
    let (_listener, address) = listener();
    let socket = socket(0);
    fcntl(socket.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC).unwrap();
    println!("connect: {:?}", connect(socket.as_raw_fd(), address));
    println!("flags: {:?}", fcntl(socket.as_raw_fd(), libc::F_GETFL, 0));
}

fn connect_with_time_limit() {
    let (listener, address) = listener();
    let client = TcpStream::connect_timeout(&address, Duration::from_secs(20)).unwrap();
    let (_server, from) = listener.accept().unwrap();
    println!("peer: {}", client.peer_addr().unwrap() == address);
    println!("from: {}", from.ip());
    println!("blocking: {:?}", fcntl(client.as_raw_fd(), libc::F_GETFL, 0));
}

fn nobody_listens() {
    let socket = socket(0);
    let (_reserved, closed) = reserved();
    println!("connect: {:?}", connect(socket.as_raw_fd(), closed));
    let (listener, address) = listener();
    println!("with the same socket: {:?}", connect(socket.as_raw_fd(), address));
    drop(listener);
}

fn nobody_listens_and_nobody_waits() {
    let socket = socket(libc::SOCK_NONBLOCK);
    let fd = socket.as_raw_fd();
    let (_reserved, closed) = reserved();
    println!("connect: {:?}", connect(fd, closed));
    println!("events: {:#x}", poll(fd, libc::POLLOUT, -1));
    println!("error: {:?}", getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR) == Ok(libc::ECONNREFUSED));
}

/// A socket is disconnected and connected again.
fn connected_to_another_peer() {
    let (listener, address) = listener();
    let stream = TcpStream::from(socket(0));
    let fd = stream.as_raw_fd();
    println!("connect: {:?}", connect(fd, address));
    let (server, _) = listener.accept().unwrap();
    println!("disconnect: {:?}", disconnect(fd));
    println!("peer: {:?}", stream.peer_addr().map_err(|error| error.kind()));
    println!("state: {}", tcp_state(fd));
    drop(server);
    println!("connect: {:?}", connect(fd, address));
    println!("accept: {}", listener.accept().is_ok());
    println!("peer: {}", stream.peer_addr().unwrap() == address);
}

/// The server sees the source ports of its clients, chosen by them or by the kernel.
fn source_ports() {
    let (listener, address) = listener();
    let (other, elsewhere) = crate::listener();
    let (one, second) = (socket(0), socket(0));
    for socket in [&one, &second] {
        setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).unwrap();
    }
    bind(one.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let one = TcpStream::from(one);
    let chosen = one.local_addr().unwrap();
    bind(second.as_raw_fd(), chosen).unwrap();
    println!("connect: {:?}", connect(one.as_raw_fd(), address));
    println!("from the same port: {:?}", connect(second.as_raw_fd(), elsewhere));
    let (_server, from) = listener.accept().unwrap();
    println!("chosen: {}", from == chosen);
    println!("chosen: {}", other.accept().unwrap().1 == chosen);
    let unbound = TcpStream::connect(address).unwrap();
    let (_server, from) = listener.accept().unwrap();
    println!("any: {} {}", from == unbound.local_addr().unwrap(), from.port() >= 32_768);
}

/// A listener for both families, and one for IPv6 only.
fn families() {
    let listener = listen_at("[::]:0".parse().unwrap());
    let port = listener.local_addr().unwrap().port();
    for ip in ["127.0.0.1", "::1"] {
        let client = TcpStream::connect((ip, port)).unwrap();
        let (server, from) = listener.accept().unwrap();
        println!("from: {} {}", from.ip(), server.peer_addr().unwrap() == from);
        println!("own: {}", server.local_addr().unwrap().ip());
        println!("client: {}", client.local_addr().unwrap().ip());
    }
}

/// A client comes before the server has ever looked for clients.
fn not_looked_at() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, from) = listener.accept().unwrap();
    println!("same: {}", from == client.local_addr().unwrap());
    println!("same: {}", server.peer_addr().unwrap() == from);
}

fn names() {
    let (listener, address) = listener();
    let bound = socket(0);
    crate::calls::bind(bound.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let client = TcpStream::from(bound);
    let chosen = client.local_addr().unwrap();
    connect(client.as_raw_fd(), address).unwrap();
    let (server, from) = listener.accept().unwrap();
    println!("client's peer: {}", client.peer_addr().unwrap() == address);
    println!("client's own: {}", client.local_addr().unwrap() == chosen);
    println!("server's peer: {} {}", from.ip(), server.peer_addr().unwrap() == from);
    println!("server's own: {}", server.local_addr().unwrap() == address);
    println!("listener's own: {}", listener.local_addr().unwrap() == address);
    let unbound = TcpStream::connect(address).unwrap();
    println!("unbound: {} {}", unbound.local_addr().unwrap().ip(), unbound.local_addr().unwrap().port() > 0);
}

fn names_of_ipv6() {
    let listener = listen_at("[::1]:0".parse().unwrap());
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let (server, from) = listener.accept().unwrap();
    println!("client: {} {}", client.peer_addr().unwrap() == address, client.local_addr().unwrap().ip());
    println!(
        "server: {} {} {}",
        from.ip(),
        server.peer_addr().unwrap() == from,
        server.local_addr().unwrap() == address
    );
    println!("family: {:?}", getsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN));
}

/// A tokio program: non-blocking sockets, edge-triggered epoll, connections from many threads.
fn asynchronous_programs() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reading, mut writing) = stream.split();
                    tokio::io::copy(&mut reading, &mut writing).await
                });
            }
        });
        let clients: Vec<_> = (0..50u8)
            .map(|number| {
                tokio::spawn(async move {
                    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    let sent = vec![number; 100_000];
                    let mut back = Vec::new();
                    let (mut reading, mut writing) = stream.split();
                    let send = async {
                        writing.write_all(&sent).await.unwrap();
                        writing.shutdown().await.unwrap();
                    };
                    let ((), received) = tokio::join!(send, reading.read_to_end(&mut back));
                    received.unwrap();
                    back == sent
                })
            })
            .collect();
        let mut right = 0;
        for client in clients {
            right += usize::from(client.await.unwrap());
        }
        println!("{right} of 50 got back what they sent");
    });
}
