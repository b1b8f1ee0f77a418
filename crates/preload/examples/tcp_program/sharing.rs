//! A socket that processes have shared since before it listened.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use crate::Scenario;
use crate::calls::{
    accept4, bind, fcntl, kill, listen, pass, pass_at_once, pipe, poll, receive_descriptor, recv, socket,
    start_child, wait_child, write,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("one_process_listens", one_process_listens),
    ("processes_accept", processes_accept),
    ("message_is_not_sent", message_is_not_sent),
    ("messages_pass_a_connection", messages_pass_a_connection),
];

fn bound() -> (OwnedFd, SocketAddr) {
    let socket = socket(0);
    bind(socket.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let copy = TcpListener::from(socket.try_clone().unwrap());
    (socket, copy.local_addr().unwrap())
}

/// One process listens, another one accepts.
fn one_process_listens() {
    let (socket, address) = bound();
    let (begin, begun) = pipe();
    let child = start_child(|| {
        let _ = std::fs::File::from(begin).read(&mut [0]);
        u8::from(accept4(socket.as_raw_fd(), 0).is_ok())
    });
    listen(socket.as_raw_fd(), 16).unwrap();
    write(begun.as_raw_fd(), b"x").unwrap();
    thread::sleep(Duration::from_millis(50));
    let client = TcpStream::connect(address);
    println!("client: {}, accepted: {}", client.is_ok(), wait_child(child));
    println!("flags: {:?}", fcntl(socket.as_raw_fd(), libc::F_GETFL, 0));
}

/// Two processes accept from a blocking socket at the same time, each in two threads.
fn processes_accept() {
    const CLIENTS: usize = 200;
    let (socket, address) = bound();
    let (begin, begun) = pipe();
    let child = start_child(|| {
        let _ = std::fs::File::from(begin).read(&mut [0]);
        serve(&socket);
        9
    });
    listen(socket.as_raw_fd(), 128).unwrap();
    let listener = socket.try_clone().unwrap();
    thread::spawn(move || {
        serve(&listener);
        // An accept has failed.
        std::process::exit(9);
    });
    write(begun.as_raw_fd(), b"x").unwrap();
    let answered = |_: &usize| {
        let mut client = TcpStream::connect(address).unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).is_ok() && byte == [b'x']
    };
    println!("{} of {CLIENTS}", (0..CLIENTS).filter(answered).count());
    kill(child, libc::SIGKILL);
    println!("child: {}", wait_child(child));
    println!("flags: {:?}", fcntl(socket.as_raw_fd(), libc::F_GETFL, 0));
}

/// A listener is passed in a message that cannot be sent.
fn message_is_not_sent() {
    for pass in [pass, pass_at_once] {
        let (listener, address) = crate::listener();
        let other = listener.try_clone().unwrap();
        let nowhere = UnixDatagram::unbound().unwrap();
        println!("pass: {:?}", pass(nowhere.as_raw_fd(), listener.as_raw_fd()));
        for listener in [listener, other] {
            println!("nobody: {:#x}", poll(listener.as_raw_fd(), libc::POLLIN, 0));
            let _client = TcpStream::connect(address).unwrap();
            println!("accept: {}", listener.accept().is_ok());
        }
    }
}

/// A connection that has moved bytes is passed, and its receiver goes on.
fn messages_pass_a_connection() {
    for pass in [pass, pass_at_once] {
        let (client, mut server) = crate::pair();
        server.write_all(b"1").unwrap();
        println!("read: {:?}", recv(client.as_raw_fd(), &mut [0; 8], 0));
        let (here, there) = UnixDatagram::pair().unwrap();
        println!("pass: {:?}", pass(here.as_raw_fd(), client.as_raw_fd()));
        let received = receive_descriptor(there.as_raw_fd()).unwrap();
        server.write_all(b"for the receiver").unwrap();
        println!("bytes: {:#x}", poll(received.as_raw_fd(), libc::POLLIN, 10_000));
        println!("read: {:?}", recv(received.as_raw_fd(), &mut [0; 16], 0));
    }
}

/// Greets clients in two threads until an accept fails.
fn serve(socket: &OwnedFd) {
    let greet = || {
        let listener = TcpListener::from(socket.try_clone().unwrap());
        while let Ok((mut client, _)) = listener.accept() {
            let _ = client.write_all(b"x");
        }
    };
    thread::scope(|scope| {
        scope.spawn(greet);
        greet();
    });
}
