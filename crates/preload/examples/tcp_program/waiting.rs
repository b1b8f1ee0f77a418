//! All ways to wait for bytes and for room.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::calls::{
    block, epoll, epoll_ctl, epoll_wait, handle, in_child, is_asleep, kill, poll, receive_timeout, recv,
    recvmmsg, select_readable, send, send_timeout, sendmmsg, start_child, unread, wait_child, with_alarms,
};
use crate::{Scenario, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("poll_and_select_of_bytes", poll_and_select_of_bytes),
    ("epoll_of_bytes", epoll_of_bytes),
    ("edges_of_bytes", edges_of_bytes),
    ("reads_that_wait", reads_that_wait),
    ("full_without_waiting", full_without_waiting),
    ("child_and_parent_take_turns", child_and_parent_take_turns),
    ("two_threads_wait_for_one_connection", two_threads_wait_for_one_connection),
    ("messages_at_once", messages_at_once),
    ("poll_for_the_end_only", poll_for_the_end_only),
    ("shutdown_wakes_a_writer", shutdown_wakes_a_writer),
    ("beside_a_child_that_was_killed", beside_a_child_that_was_killed),
];

const ALL: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

fn poll_and_select_of_bytes() {
    let (mut client, mut server) = pair();
    let fd = client.as_raw_fd();
    println!("at first: {:#x} {}", poll(fd, ALL, 0), select_readable(fd));
    server.write_all(b"abc").unwrap();
    println!("bytes: {:#x}", poll(fd, libc::POLLIN, -1));
    println!("bytes: {:#x} {} {}", poll(fd, ALL, -1), select_readable(fd), unread(fd));
    client.read_exact(&mut [0; 2]).unwrap();
    println!("one left: {:#x} {} {}", poll(fd, ALL, 0), select_readable(fd), unread(fd));
    client.read_exact(&mut [0; 1]).unwrap();
    println!("none left: {:#x} {} {}", poll(fd, ALL, 0), select_readable(fd), unread(fd));
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        server.write_all(b"late").unwrap();
        thread::sleep(Duration::from_millis(30));
        server
    });
    println!("later: {:#x}", poll(fd, libc::POLLIN, 10_000));
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    println!("not in time: {:#x}", poll(fd, libc::POLLIN, 5));
    let server = late.join().unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    println!("the end: {:#x}", poll(fd, libc::POLLIN | libc::POLLRDHUP, -1));
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    client.shutdown(Shutdown::Write).unwrap();
    println!("both ends: {:#x}", poll(fd, libc::POLLIN | libc::POLLRDHUP, -1) & !libc::POLLERR);
}

/// Processor time that this thread has used.
fn used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn poll_for_the_end_only() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"unread").unwrap();
    println!("bytes: {:#x}", poll(fd, libc::POLLIN, -1));
    for events in [libc::POLLRDHUP, 0] {
        let before = used();
        println!("not in time: {:#x}", poll(fd, events, 300));
        println!("sleeps: {}", used() < before + Duration::from_millis(100));
    }
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    server.shutdown(Shutdown::Write).unwrap();
    println!("the end: {:#x}", poll(fd, libc::POLLRDHUP, 10_000));
}

/// Waits for bytes that do not come, of a connection whose channel another program overwrites.
pub(crate) fn overwritten() {
    let (client, _server) = pair();
    let fd = client.as_raw_fd();
    println!("{:?}", recv(fd, &mut [0; 8], 0));
    println!("{:?}", recv(fd, &mut [0; 8], 0));
    println!("{:?}", send(fd, b"x", libc::MSG_NOSIGNAL));
}

fn epoll_of_bytes() {
    let (client, mut server) = pair();
    let (instance, fd) = (epoll(), client.as_raw_fd());
    let instance = instance.as_raw_fd();
    let control = |operation, events, data| epoll_ctl(instance, operation, fd, events, data);
    println!("not watched: {:?}", control(libc::EPOLL_CTL_MOD, libc::EPOLLIN, 1).is_err());
    println!("watched: {:?}", control(libc::EPOLL_CTL_ADD, libc::EPOLLIN, 7));
    // The refused watch changes nothing.
    println!("watched again: {:?}", control(libc::EPOLL_CTL_ADD, libc::EPOLLOUT, 6).is_err());
    println!("nothing: {:x?}", epoll_wait(instance, 0));
    server.write_all(b"abc").unwrap();
    println!("bytes: {:x?}", epoll_wait(instance, -1));
    println!("still: {:x?}", epoll_wait(instance, -1));
    println!("other events: {:?}", control(libc::EPOLL_CTL_MOD, libc::EPOLLOUT, 8));
    println!("room: {:x?}", epoll_wait(instance, -1));
    let once = libc::EPOLLIN | libc::EPOLLONESHOT;
    println!("once: {:?}", control(libc::EPOLL_CTL_MOD, once, 9));
    println!("once: {:x?} {:x?}", epoll_wait(instance, -1), epoll_wait(instance, 20));
    println!("watched again: {:?}", control(libc::EPOLL_CTL_ADD, libc::EPOLLIN, 6).is_err());
    println!("no second one: {:x?}", epoll_wait(instance, 20));
    println!("once more: {:?} {:x?}", control(libc::EPOLL_CTL_MOD, once, 10), epoll_wait(instance, -1));
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    control(libc::EPOLL_CTL_MOD, libc::EPOLLIN | libc::EPOLLRDHUP, 11).unwrap();
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        server.write_all(b"late").unwrap();
        server
    });
    println!("later: {:x?}", epoll_wait(instance, 10_000));
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    drop(late.join().unwrap());
    println!("the end: {:x?}", epoll_wait(instance, 10_000));
    println!("not watched: {:?}", control(libc::EPOLL_CTL_DEL, 0, 0));
    println!("nothing: {:x?}", epoll_wait(instance, 20));
    println!("not watched: {:?}", control(libc::EPOLL_CTL_DEL, 0, 0).is_err());
}

fn edges_of_bytes() {
    let (client, mut server) = pair();
    client.set_nonblocking(true).unwrap();
    let (instance, fd) = (epoll(), client.as_raw_fd());
    let instance = instance.as_raw_fd();
    let events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
    epoll_ctl(instance, libc::EPOLL_CTL_ADD, fd, events, 1).unwrap();
    println!("nothing: {:x?}", epoll_wait(instance, 0));
    for round in 0..20 {
        server.write_all(&[round; 10]).unwrap();
        println!("edge: {:x?}", epoll_wait(instance, -1));
        println!("no second one: {:x?}", epoll_wait(instance, 5));
        println!("read: {:?} {:?}", recv(fd, &mut [0; 20], 0), recv(fd, &mut [0; 20], 0));
    }
    server.write_all(b"unread").unwrap();
    println!("edge: {:x?}", epoll_wait(instance, -1));
    epoll_ctl(instance, libc::EPOLL_CTL_MOD, fd, events, 2).unwrap();
    println!("set again: {:x?}", epoll_wait(instance, -1));
    println!("no second one: {:x?}", epoll_wait(instance, 5));
    drop(server);
    println!("the end: {:x?}", epoll_wait(instance, -1));
    println!("read: {:?} {:?}", recv(fd, &mut [0; 20], 0), recv(fd, &mut [0; 20], 0));
}

fn reads_that_wait() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    receive_timeout(fd, 20).unwrap();
    println!("in time: {:?}", recv(fd, &mut [0; 8], 0));
    server.write_all(b"abc").unwrap();
    println!("a part: {:?}", recv(fd, &mut [0; 8], libc::MSG_WAITALL));
    receive_timeout(fd, 0).unwrap();
    handle(libc::SIGALRM, 0);
    println!("interrupted: {:?}", with_alarms(|| recv(fd, &mut [0; 8], 0)));
    handle(libc::SIGALRM, libc::SA_RESTART);
    let late = thread::spawn(move || {
        // The thread that reads gets the signals.
        block(libc::SIGALRM);
        thread::sleep(Duration::from_millis(100));
        server.write_all(b"late").unwrap();
        server
    });
    println!("goes on: {:?}", with_alarms(|| recv(fd, &mut [0; 8], 0)));
    drop(late.join().unwrap());
    println!("the end: {:?}", recv(fd, &mut [0; 8], 0));
}

fn full_without_waiting() {
    let (mut client, mut server) = pair();
    let fd = client.as_raw_fd();
    client.set_nonblocking(true).unwrap();
    let piece: Vec<u8> = (0..10_000u32).map(|place| (place % 251) as u8).collect();
    let (mut sent, mut vain) = (0, 0);
    // Buffers between both ends fill up with delay.
    while vain < 10 {
        match client.write(&piece[sent % piece.len()..]) {
            Ok(count) => (sent, vain) = (sent + count, 0),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                vain += 1;
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
    println!("no room: {:#x}", poll(fd, libc::POLLOUT, 20));
    let reader = thread::spawn(move || {
        let mut all = vec![0; sent];
        server.read_exact(&mut all).unwrap();
        let is_right = all.iter().enumerate().all(|(place, byte)| *byte == (place % 10_000 % 251) as u8);
        (is_right, server)
    });
    println!("room: {:#x}", poll(fd, libc::POLLOUT, -1));
    let (is_right, _server) = reader.join().unwrap();
    println!("all bytes: {is_right}");
    println!("room: {:?}", client.write(b"more").is_ok());
    client.set_nonblocking(false).unwrap();
    send_timeout(fd, 50);
    let full = (0..100_000).find_map(|_| client.write(&piece).err());
    println!("in time: {:?}", full.map(|error| error.kind()));
}

/// A child and its parent read from and write to one connection.
fn child_and_parent_take_turns() {
    let (mut client, mut server) = pair();
    for round in 0..5u8 {
        client.write_all(&[round; 100]).unwrap();
        println!(
            "child: {}",
            in_child(|| {
                let mut got = [0; 50];
                u8::from(
                    (&server).read_exact(&mut got).is_err()
                        || (&client).write_all(&[round + 100; 10]).is_err(),
                )
            })
        );
        let mut got = [0; 60];
        server.read_exact(&mut got).unwrap();
        println!("parent: {:?} {:?}", got[..50] == [round; 50], got[50..] == [round + 100; 10]);
    }
    // Each process waits for what the other one sends.
    let child = start_child(|| {
        let mut byte = [0];
        for _ in 0..500 {
            if (&server).read_exact(&mut byte).is_err() || (&server).write_all(&byte).is_err() {
                return 1;
            }
        }
        0
    });
    drop(server);
    for round in 0..500u32 {
        client.write_all(&[round as u8]).unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], round as u8);
    }
    println!("child: {}", wait_child(child));
    println!("the end: {:?}", client.read(&mut [0; 1]).unwrap());
}

fn two_threads_wait_for_one_connection() {
    const LEN: usize = 3 << 20;
    let (client, server) = pair();
    let echo = thread::spawn(move || {
        let mut buffer = vec![0; 30_000];
        while let Ok(count @ 1..) = (&server).read(&mut buffer) {
            (&server).write_all(&buffer[..count]).unwrap();
        }
        server.shutdown(Shutdown::Write).unwrap();
    });
    thread::scope(|scope| {
        let client = &client;
        scope.spawn(move || {
            let mut client = client;
            client.write_all(&vec![9; LEN]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut all = Vec::new();
        let mut reading = client;
        reading.read_to_end(&mut all).unwrap();
        println!("{} bytes, right: {}", all.len(), all.iter().all(|byte| *byte == 9));
    });
    echo.join().unwrap();
}

/// A thread waits for room, and another one shuts down the same direction.
fn shutdown_wakes_a_writer() {
    let (client, _server) = pair();
    let written = AtomicUsize::new(0);
    let (mut writing, written) = (&client, &written);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            loop {
                match writing.write(&[7; 10_000]) {
                    Ok(count) => written.fetch_add(count, Relaxed),
                    Err(error) => return error.kind(),
                };
            }
        });
        let (task, mut before) = (told.recv().unwrap(), 0);
        // Buffers between both ends fill up with delay. A writer that only lacks a processor does
        // not count.
        let waits = (0..200).any(|_| {
            thread::sleep(Duration::from_millis(200));
            let now = written.load(Relaxed);
            std::mem::replace(&mut before, now) == now && now > 0 && is_asleep(task)
        });
        println!("shut down: {:?}", client.shutdown(Shutdown::Write));
        println!("woken: {:?}", writer.join().unwrap());
        assert!(waits, "not tested: the writer has never waited for room");
    });
}

/// A child is killed while it waits for bytes. Its parent waits for room.
fn beside_a_child_that_was_killed() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    let child = start_child(|| u8::from(recv(fd, &mut [0; 8], 0).is_ok()));
    let waits = (0..10_000).any(|_| is_asleep(child));
    kill(child, libc::SIGKILL);
    println!("child: {}", wait_child(child));
    assert!(waits, "not tested: the child has never waited for bytes");
    server.write_all(b"unread").unwrap();
    println!("bytes: {:#x}", poll(fd, libc::POLLIN, -1));
    send_timeout(fd, 300);
    let full = (0..100_000).find_map(|_| (&client).write(&[7; 10_000]).err());
    println!("in time: {:?}", full.map(|error| error.kind()));
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
}

fn messages_at_once() {
    let (client, server) = pair();
    println!("sent: {}", sendmmsg(client.as_raw_fd(), &[b"one", b"two", b"three"]));
    let fd = server.as_raw_fd();
    println!("waits: {:#x}", poll(fd, libc::POLLIN, -1));
    while unread(fd) < 11 {
        thread::sleep(Duration::from_millis(1));
    }
    println!("received: {:?}", recvmmsg(fd, [3, 4, 8], libc::MSG_DONTWAIT, None));
    println!("none: {:?}", recvmmsg(fd, [3, 4, 8], libc::MSG_DONTWAIT, None));
    println!("sent: {}", sendmmsg(client.as_raw_fd(), &[b"four"]));
    println!("in long: {:?}", recvmmsg(fd, [8, 8, 8], libc::MSG_WAITFORONE, Some(i64::MAX)));
    drop(client);
    println!("the end: {:?}", recvmmsg(fd, [1, 1, 1], 0, None).map(|lens| lens.first().copied()));
}
