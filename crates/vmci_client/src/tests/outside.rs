//! Programs that wait by themselves.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::fabric::Fabric;
use super::{NEVER, Random, bytes, check};
use crate::{Attached, Interest, Ready};

/// Waits for an end as a program does that has many of them. Returns what is ready.
fn wait(end: &Attached, interest: Interest) -> Ready {
    let ready = end.arm(interest);
    if ready.any() {
        return ready;
    }
    let descriptors = end.descriptors();
    let mut polled = descriptors.each_ref().map(|entry| {
        PollFd::from_borrowed_fd(entry.fd, PollFlags::from_bits_retain(entry.events.cast_unsigned()))
    });
    let count = if descriptors[1].events == 0 { 1 } else { 2 };
    let longest = end.longest_wait().unwrap_or(Duration::from_secs(60));
    let time = Timespec::try_from(longest).unwrap();
    assert!(poll(&mut polled[..count], Some(&time)).unwrap() > 0 || end.longest_wait().is_some(), "a hang");
    end.disarm()
}

/// One thread of a program that sends and receives without ever blocking in a call.
fn transfer(end: &Attached, [sends, receives]: [u64; 2], len: u64) {
    let mut random = Random(sends + 5);
    let mut buffer = vec![0; 50_000];
    let (mut sent, mut got) = (0, 0);
    let mut is_over = false;
    while !is_over || sent < len {
        let mut progress = false;
        if sent < len {
            let size = random.len(buffer.len()).min((len - sent) as usize);
            match end.try_write(bytes(sends, sent, size)) {
                Ok(count) => (sent, progress) = (sent + count as u64, true),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if sent == len {
                end.shutdown_write().unwrap();
            }
        }
        if !is_over {
            let size = random.len(buffer.len());
            match end.try_read(&mut buffer[..size]) {
                Ok(0) => (is_over, progress) = (true, true),
                Ok(count) => {
                    check(receives, got, &buffer[..count]);
                    (got, progress) = (got + count as u64, true);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        if !progress {
            wait(end, Interest { readable: !is_over, writable: sent < len });
        }
    }
    assert_eq!(got, len);
}

#[test]
fn two_programs_that_never_block_exchange_bytes() {
    const LEN: u64 = 64 << 20;
    for looks in [0, 8] {
        let (fabric, [a, b]) = Fabric::start(looks);
        let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| transfer(&a, [1, 2], LEN));
            scope.spawn(|| transfer(&b, [2, 1], LEN));
        });
    }
}

#[test]
fn what_is_ready_is_known_without_a_call() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    assert_eq!(a.ready(), Ready { readable: false, writable: true });
    assert_eq!(a.arm(Interest::BOTH), Ready { readable: false, writable: true });
    b.try_write(b"x").unwrap();
    assert!(wait(&a, Interest::READABLE).readable);
    // Level, not edge: it stays.
    assert!(a.arm(Interest::READABLE).readable);
    assert_eq!(a.try_read(&mut [0; 8]).unwrap(), 1);
    assert!(!a.ready().readable);
    // Both rings are full once nothing more was written for a while, in which the fabric moves
    // bytes from one to the other.
    let (begin, mut last) = (Instant::now(), Instant::now());
    while last.elapsed() < Duration::from_millis(100) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        if a.try_write(&[0; 1000]).is_ok() {
            last = Instant::now();
        }
    }
    assert!(!a.arm(Interest::WRITABLE).any());
    let mut got = 0;
    while got < 100_000 {
        got += b.try_read(&mut [0; 4096]).unwrap_or(0);
    }
    assert!(!a.disarm().readable);
    assert!(wait(&a, Interest::WRITABLE).writable);
}

/// While bytes still come by packets, the stream's own socket tells of them.
#[test]
fn the_descriptors_include_the_socket_while_packets_are_to_come() {
    use std::io::Write as _;
    let (fabric, [a, b]) = Fabric::start(0);
    (&b).write_all(b"packet").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let a = fabric.attach(0, &a, NEVER).unwrap();
    assert_eq!(a.by_packets(), 6);
    assert_eq!(a.descriptors()[1].events, 1, "POLLIN");
    assert!(wait(&a, Interest::READABLE).readable);
    assert_eq!(a.try_read(&mut [0; 8]).unwrap(), 6);
    assert_ne!(a.descriptors()[1].events & 0x2000, 0, "POLLRDHUP");
    drop(b);
    let begin = Instant::now();
    let mut buffer = [0; 8];
    loop {
        match a.try_read(&mut buffer) {
            Ok(count) => break assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begin.elapsed() < Duration::from_secs(60));
        wait(&a, Interest::READABLE);
    }
    while a.descriptors()[1].events != 0 {
        let _ = a.disarm();
    }
}
