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
    let descriptors = end.descriptors(interest);
    let mut polled = descriptors.each_ref().map(|entry| {
        PollFd::from_borrowed_fd(entry.fd, PollFlags::from_bits_retain(entry.events.cast_unsigned()))
    });
    let count = if descriptors[1].events == 0 { 1 } else { 2 };
    let longest = end.longest_wait().unwrap_or(Duration::from_secs(60));
    let time = Timespec::try_from(longest).unwrap();
    assert!(poll(&mut polled[..count], Some(&time)).unwrap() > 0 || end.longest_wait().is_some(), "a hang");
    end.disarm(interest)
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
    assert!(!a.disarm(Interest::WRITABLE).readable);
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
    assert_eq!(a.descriptors(Interest::READABLE)[1].events, 1, "POLLIN");
    assert!(wait(&a, Interest::READABLE).readable);
    assert_eq!(a.try_read(&mut [0; 8]).unwrap(), 6);
    assert_ne!(a.descriptors(Interest::READABLE)[1].events & 0x2000, 0, "POLLRDHUP");
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
    while a.descriptors(Interest::READABLE)[1].events != 0 {
        let _ = a.disarm(Interest::READABLE);
    }
}

/// Polls what a wait polls, for so many ms, and tells whether there was an event.
fn has_event(end: &Attached, interest: Interest, ms: u64) -> bool {
    let [signals, _] = end.descriptors(interest);
    let time = Timespec::try_from(Duration::from_millis(ms)).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(signals.fd, PollFlags::IN)], Some(&time)).unwrap() > 0
}

/// Fills both rings, so that a write has to wait.
fn fill(end: &Attached) {
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(100) {
        if end.try_write(&[0; 1000]).is_ok() {
            last = Instant::now();
        }
    }
}

/// The thread that waits for reading takes the signal for the one that waits for writing, before
/// that one has polled.
#[test]
fn a_signal_that_one_direction_takes_is_not_lost_for_the_other() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    fill(&a);
    for _ in 0..3 {
        assert!(!a.arm(Interest::WRITABLE).any());
        assert!(!a.arm(Interest::READABLE).any());
        let mut got = 0;
        while got < 100_000 {
            got += b.try_read(&mut [0; 4096]).unwrap_or(0);
        }
        assert!(has_event(&a, Interest::READABLE, 10_000), "the signal for room");
        assert!(!a.disarm(Interest::READABLE).any());
        assert!(has_event(&a, Interest::WRITABLE, 10_000), "the wait for room has lost its signal");
        assert!(a.disarm(Interest::WRITABLE).writable);
        assert!(!a.arm(Interest::READABLE).any());
        assert!(!has_event(&a, Interest::READABLE, 20), "a signal that was taken is there again");
        assert!(!a.disarm(Interest::READABLE).any());
        fill(&a);
    }
}

/// The end of a wait for reading does not end the one for writing.
#[test]
fn a_disarmed_direction_leaves_the_other_one_armed() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    fill(&a);
    assert!(!a.arm(Interest::READABLE).any());
    assert!(!a.arm(Interest::WRITABLE).any());
    assert!(!a.disarm(Interest::READABLE).any());
    assert!(!has_event(&a, Interest::WRITABLE, 20));
    let mut got = 0;
    while got < 100_000 {
        got += b.try_read(&mut [0; 4096]).unwrap_or(0);
    }
    assert!(has_event(&a, Interest::WRITABLE, 10_000), "nobody signals room any more");
    assert!(a.disarm(Interest::WRITABLE).writable);
}

/// Reads until the end, by waits of its own.
fn receive(end: &Attached, receives: u64, len: u64) {
    let (mut buffer, mut got) = (vec![0; 9_000], 0);
    loop {
        match end.try_read(&mut buffer) {
            Ok(0) => return assert_eq!(got, len),
            Ok(count) => {
                check(receives, got, &buffer[..count]);
                got += count as u64;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                wait(end, Interest::READABLE);
            }
        }
    }
}

/// Writes all, by waits of its own.
fn send(end: &Attached, sends: u64, len: u64) {
    let mut sent = 0;
    while sent < len {
        let size = 7_000.min((len - sent) as usize);
        match end.try_write(bytes(sends, sent, size)) {
            Ok(count) => sent += count as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                wait(end, Interest::WRITABLE);
            }
        }
    }
    end.shutdown_write().unwrap();
}

#[test]
fn one_thread_for_each_direction_waits_by_itself() {
    const LEN: u64 = 16 << 20;
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| send(&a, 1, LEN));
        scope.spawn(|| receive(&a, 2, LEN));
        scope.spawn(|| send(&b, 2, LEN));
        scope.spawn(|| receive(&b, 1, LEN));
    });
}

/// A thread that blocks in calls beside one that waits by itself.
#[test]
fn one_thread_waits_by_itself_and_the_other_one_blocks() {
    use std::io::{Read as _, Write as _};
    const LEN: u64 = 16 << 20;
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| send(&a, 1, LEN));
        scope.spawn(|| {
            let (mut buffer, mut got) = (vec![0; 9_000], 0);
            while got < LEN {
                let count = (&a).read(&mut buffer).unwrap();
                check(2, got, &buffer[..count]);
                got += count as u64;
            }
        });
        scope.spawn(|| receive(&b, 1, LEN));
        scope.spawn(|| {
            let mut sent = 0;
            while sent < LEN {
                (&b).write_all(bytes(2, sent, 4096)).unwrap();
                sent += 4096;
            }
        });
    });
}
