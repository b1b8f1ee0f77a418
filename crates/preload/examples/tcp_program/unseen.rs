//! Numbers that become other files, in ways that the library does not see or while it waits.
#![allow(unsafe_code, reason = "locks by fcntl")]

use std::io::Write as _;
use std::mem::zeroed;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::calls::{
    answer, close, connect, dup, epoll, epoll_ctl, epoll_wait, fcntl, in_child, owned, peer_ip, pipe, poll,
    raw_close, raw_connect, recv, socket, start_child, start_child_by_system_call, wait_child, write,
};
use crate::{Scenario, listen_at, listener, pair, reserved};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("number_of_a_locked_file", number_of_a_locked_file),
    ("number_is_watched_again", number_is_watched_again),
    ("number_of_a_lost_listener", number_of_a_lost_listener),
    ("closed_during_connect", closed_during_connect),
    ("child_closes_everything_unseen", child_closes_everything_unseen),
    ("child_writes_after_an_unseen_close", child_writes_after_an_unseen_close),
    ("child_has_a_pipe_at_the_number", child_has_a_pipe_at_the_number),
    ("child_has_a_socket_at_the_number", child_has_a_socket_at_the_number),
];

fn lock(kind: i32) -> libc::flock {
    // SAFETY: a structure of numbers, for which zero is valid.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = kind as i16;
    lock
}

/// The number of a listener becomes a file on which the program has a record lock.
fn number_of_a_locked_file() {
    let (listener, _) = listener();
    let number = listener.into_raw_fd();
    raw_close(number);
    // SAFETY: the name ends in a zero.
    let file = owned(unsafe { libc::memfd_create(c"file".as_ptr(), 0) });
    let fd = file.as_raw_fd();
    println!("the same number: {}", fd == number);
    let mine = lock(libc::F_WRLCK);
    // SAFETY: the structure is this frame's.
    answer(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const mine) }).unwrap();
    println!("flags: {:?}", fcntl(fd, libc::F_GETFL, 0).is_ok());
    let is_locked = in_child(|| {
        let mut seen = lock(libc::F_WRLCK);
        // SAFETY: as above.
        answer(unsafe { libc::fcntl(fd, libc::F_GETLK, &raw mut seen) }).unwrap();
        u8::from(seen.l_type != libc::F_UNLCK as i16)
    });
    println!("locked: {is_locked}");
}

/// The number of a connection and that of a listener become sockets that are watched.
fn number_is_watched_again() {
    let (there, address) = listener();
    let (client, _server) = pair();
    let (old, _) = listener();
    for number in [client.into_raw_fd(), old.into_raw_fd()] {
        raw_close(number);
        let socket = socket(libc::SOCK_NONBLOCK);
        println!("the same number: {}", socket.as_raw_fd() == number);
        let epoll = epoll();
        epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, number, libc::EPOLLOUT, 7).unwrap();
        println!("connect: {:?}", connect(number, address));
        println!("event: {:x?}", epoll_wait(epoll.as_raw_fd(), 5000));
        drop(there.accept().unwrap());
    }
}

/// The number of a listener becomes a connection at either end, or a duplicate. Nobody listens
/// then.
fn number_of_a_lost_listener() {
    let (there, address) = listener();
    for way in ["connect", "accept", "dup"] {
        let (_reserved, old) = reserved();
        let client = (way == "accept").then(|| TcpStream::connect(address).unwrap());
        let number = listen_at(old).into_raw_fd();
        raw_close(number);
        let next: OwnedFd = match way {
            "connect" => TcpStream::connect(address).unwrap().into(),
            "accept" => there.accept().unwrap().0.into(),
            _ => owned(dup(there.as_raw_fd())),
        };
        println!("{way}, the same number: {}", next.as_raw_fd() == number);
        println!("{way}, nobody: {}", TcpStream::connect(old).is_err());
        drop(client);
        if way == "connect" {
            drop(there.accept().unwrap());
        }
    }
}

/// A thread closes a socket while another one connects it, and the number becomes another socket.
fn closed_during_connect() {
    let (_listener, address) = listener();
    let number: RawFd = socket(0).into_raw_fd();
    let connecting = thread::spawn(move || connect(number, address).is_ok());
    thread::sleep(Duration::from_millis(100));
    close(number).unwrap();
    let other = TcpStream::from(socket(0));
    println!("the same number: {}", other.as_raw_fd() == number);
    let _ = connecting.join().unwrap();
    println!("peer: {:?}", peer_ip(number));
}

/// Closes all descriptors but 0, 1 and 2, without the C library's function.
fn close_everything() {
    // SAFETY: takes numbers. The caller uses none of them as open ones.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Puts a file over another number, without the C library's function.
fn raw_dup3(fd: RawFd, to: RawFd) {
    // SAFETY: takes numbers; the caller owns both.
    answer(unsafe { libc::syscall(libc::SYS_dup3, fd, to, 0) } as i32).unwrap();
}

/// A child closes its descriptors by a system call, and waits for one of them. Its parent goes on.
fn child_closes_everything_unseen() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    let code = in_child(|| {
        close_everything();
        let events = poll(fd, libc::POLLIN, 10_000);
        u8::from(events == libc::POLLNVAL && recv(fd, &mut [0; 8], 0) == Err("EBADF".to_owned()))
    });
    println!("child: {code}");
    server.write_all(b"later").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    println!("write: {:?}", write(fd, b"back"));
    println!("read: {:?}", recv(server.as_raw_fd(), &mut [0; 8], 0));
}

/// A child uses a connection, closes its descriptors by a system call, and writes to the number.
/// The next bytes of its parent arrive soon.
///
/// With the library, which does not see this close, the child's bytes may go to the connection.
fn child_writes_after_an_unseen_close() {
    /// Less than the time after which the real fabric looks at a channel without a signal.
    const SOON: i32 = 5_000;
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    server.write_all(b"2").unwrap();
    let code = in_child(|| {
        let is_read = recv(fd, &mut [0; 8], 0) == Ok(1);
        close_everything();
        let _ = write(fd, b"child");
        u8::from(!is_read)
    });
    println!("child: {code}");
    println!("write: {:?}", write(fd, b"parent"));
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16]);
    while !bytes.ends_with(b"parent") && poll(server.as_raw_fd(), libc::POLLIN, SOON) == libc::POLLIN {
        let count = recv(server.as_raw_fd(), &mut buffer, 0).unwrap();
        assert_ne!(count, 0, "the end of the stream behind {bytes:?}");
        bytes.extend_from_slice(&buffer[..count]);
    }
    println!("arrived: {}", bytes.ends_with(b"parent"));
}

/// Children put a pipe over the number of a connection by a system call, and use it. Their parent
/// goes on with the connection.
fn child_has_a_pipe_at_the_number() {
    const DATA: u64 = 7;
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    for first in ["write", "poll", "epoll"] {
        let code = in_child(|| {
            let (reading, writing) = pipe();
            raw_dup3(writing.as_raw_fd(), fd);
            let has_room = match first {
                "poll" => poll(fd, libc::POLLOUT, 10_000) == libc::POLLOUT,
                "epoll" => {
                    let instance = epoll();
                    let instance = instance.as_raw_fd();
                    epoll_ctl(instance, libc::EPOLL_CTL_ADD, fd, libc::EPOLLOUT, DATA).unwrap();
                    epoll_wait(instance, 10_000) == Some((libc::EPOLLOUT as u32, DATA))
                }
                _ => true,
            };
            let is_sent = write(fd, b"child") == Ok(5);
            u8::from(!has_room || !is_sent || poll(reading.as_raw_fd(), libc::POLLIN, 0) != libc::POLLIN)
        });
        println!("{first}: {code}");
    }
    println!("write: {:?}", write(fd, b"parent"));
    let mut bytes = [0; 16];
    let count = recv(server.as_raw_fd(), &mut bytes, 0).unwrap();
    println!("read: {:?}", String::from_utf8_lossy(&bytes[..count]));
}

/// The two ends of a connection, of which the library does not see the connecting one: TCP.
fn raw_pair() -> (OwnedFd, TcpStream) {
    let (listener, address) = listener();
    let client = socket(0);
    raw_connect(client.as_raw_fd(), address).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Children put another connected socket over the number of a connection by a system call, and use
/// it. Some are made without the C library's fork. Their parent goes on with the connection.
fn child_has_a_socket_at_the_number() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    let (unix, tcp) = (UnixStream::pair().unwrap(), raw_pair());
    let others =
        [("unix", unix.0.as_raw_fd(), unix.1.as_raw_fd()), ("tcp", tcp.0.as_raw_fd(), tcp.1.as_raw_fd())];
    for (name, other, peer) in others {
        for by_system_call in [false, true] {
            // Without memory of the C library, which a thread of the parent may just have locked.
            let child = || {
                raw_dup3(other, fd);
                let mut bytes = [0; 16];
                let is_sent = write(fd, b"child") == Ok(5);
                let has_arrived = is_sent && poll(peer, libc::POLLIN, 10_000) == libc::POLLIN;
                let is_there =
                    has_arrived && recv(peer, &mut bytes, 0) == Ok(5) && bytes.starts_with(b"child");
                let is_answered = is_there && write(peer, b"answer") == Ok(6);
                let has_answer = is_answered && poll(fd, libc::POLLIN, 10_000) == libc::POLLIN;
                u8::from(!has_answer || recv(fd, &mut bytes, 0) != Ok(6))
            };
            let pid = if by_system_call { start_child_by_system_call(child) } else { start_child(child) };
            println!("{name}, by a system call: {by_system_call}: {}", wait_child(pid));
        }
    }
    println!("write: {:?}", write(fd, b"parent"));
    let mut bytes = [0; 16];
    let count = recv(server.as_raw_fd(), &mut bytes, 0).unwrap();
    println!("read: {:?}", String::from_utf8_lossy(&bytes[..count]));
}
