//! How connections end.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::fabric::Fabric;
use super::{NEVER, USUAL};
use crate::link::Link;
use crate::{Attached, Interest, Wait};

/// Longest time that something which has to happen may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn read(attached: &Attached) -> Result<Vec<u8>, ErrorKind> {
    let mut buffer = vec![0; 4096];
    let deadline = Instant::now() + PATIENCE;
    let count = attached.read_until(&mut buffer, deadline).map_err(|error| error.kind())?;
    buffer.truncate(count);
    Ok(buffer)
}

/// Writes until that fails.
fn write_on(attached: &Attached) -> ErrorKind {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Err(error) = attached.write_until(&[0; 4096], deadline) {
            return error.kind();
        }
    }
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    for (looks, poll) in [(0, NEVER), (8, USUAL)] {
        let (fabric, [a, b]) = Fabric::start(looks);
        let (a, b) = (fabric.attach(0, &a, poll).unwrap(), fabric.attach(1, &b, poll).unwrap());
        (&a).write_all(b"question").unwrap();
        a.shutdown_write().unwrap();
        a.shutdown_write().unwrap();
        assert_eq!(a.try_write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut text = String::new();
        (&b).read_to_string(&mut text).unwrap();
        assert_eq!(text, "question");
        assert_eq!(read(&b).unwrap(), b"", "the end stays");
        assert!(b.ready().readable);
        let answer = vec![9; 300_000];
        thread::scope(|scope| {
            scope.spawn(|| {
                (&b).write_all(&answer).unwrap();
                b.shutdown_write().unwrap();
            });
            let mut got = Vec::new();
            (&a).read_to_end(&mut got).unwrap();
            assert!(got == answer);
        });
    }
}

#[test]
fn a_reset_comes_after_the_bytes_and_ends_both_directions() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, USUAL).unwrap(), fabric.attach(1, &b, USUAL).unwrap());
    (&b).write_all(b"last").unwrap();
    while !a.ready().readable {
        thread::yield_now();
    }
    fabric.reset();
    assert_eq!(read(&a).unwrap(), b"last");
    assert_eq!(read(&a), Err(ErrorKind::ConnectionReset));
    assert_eq!(read(&a), Err(ErrorKind::ConnectionReset));
    assert_eq!(a.try_write(b"x").unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(read(&b), Err(ErrorKind::ConnectionReset));
    assert!(b.ready().readable && b.ready().writable);
}

#[test]
fn calls_that_wait_end_with_a_reset() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&a));
        let writer = scope.spawn(|| write_on(&a));
        while !b.ready().readable {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        fabric.reset();
        assert_eq!(reader.join().unwrap(), Err(ErrorKind::ConnectionReset));
        assert_eq!(writer.join().unwrap(), ErrorKind::ConnectionReset);
    });
}

/// The peer's program is attached and dies, so both of its sockets are closed.
#[test]
fn the_bytes_of_a_peer_that_died_arrive_and_writes_fail() {
    for (looks, poll) in [(0, NEVER), (8, USUAL)] {
        let (fabric, [a, b]) = Fabric::start(looks);
        let (a, peer) = (fabric.attach(0, &a, poll).unwrap(), fabric.attach(1, &b, poll).unwrap());
        (&peer).write_all(b"last").unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| write_on(&a));
            thread::sleep(Duration::from_millis(20));
            drop((peer, b));
            assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);
        });
        assert_eq!(read(&a).unwrap(), b"last");
        assert_eq!(read(&a).unwrap(), b"");
    }
}

/// The peer has ended its own direction long before it closes.
#[test]
fn a_writer_notices_a_close_after_a_shutdown() {
    let (fabric, [a, b]) = Fabric::start(0);
    let a = fabric.attach(0, &a, NEVER).unwrap();
    b.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read(&a).unwrap(), b"");
    a.try_write(b"x").unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(&a));
        thread::sleep(Duration::from_millis(20));
        drop(b);
        assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

/// The same for a program that polls, and whose ring is full.
#[test]
fn a_writer_that_polls_notices_a_close_after_a_shutdown() {
    let (fabric, [a, b]) = Fabric::start(0);
    let a = fabric.attach(0, &a, NEVER).unwrap();
    b.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read(&a).unwrap(), b"");
    let end = Instant::now() + Duration::from_secs(30);
    while a.try_write(&[0; 4096]).is_ok() {}
    drop(b);
    while !a.arm(Interest::BOTH).writable {
        thread::sleep(Link::AFTER_HANGUP);
        a.disarm(Interest::BOTH);
        assert!(Instant::now() < end, "it never learns of the close");
    }
    let error = loop {
        if let Err(error) = a.try_write(&[0; 4096]) {
            break error.kind();
        }
    };
    assert_eq!(error, ErrorKind::BrokenPipe);
}

#[test]
fn all_calls_end_when_the_fabric_is_killed() {
    let (mut fabric, [a, b]) = Fabric::start(0);
    let (a, b) = (fabric.attach(0, &a, NEVER).unwrap(), fabric.attach(1, &b, NEVER).unwrap());
    (&b).write_all(b"last").unwrap();
    while !a.ready().readable {
        thread::yield_now();
    }
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&b));
        let writer = scope.spawn(|| write_on(&b));
        thread::sleep(Duration::from_millis(20));
        fabric.kill();
        assert_eq!(reader.join().unwrap(), Err(ErrorKind::ConnectionReset));
        assert!(matches!(writer.join().unwrap(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
    });
    assert!(read(&a).unwrap().starts_with(b"last"), "what is in the ring arrives");
    let end = loop {
        if let Err(kind) = read(&a) {
            break kind;
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset);
    let end = (0..100).map(|_| b.try_read(&mut [0; 8]).unwrap_err().kind()).last();
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
}

#[test]
fn calls_without_a_wait_notice_that_the_fabric_is_gone() {
    let (mut fabric, [a, _b]) = Fabric::start(0);
    let a = fabric.attach(0, &a, USUAL).unwrap();
    assert_eq!(a.try_read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    fabric.kill();
    let mut kinds = (0..100).map(|_| a.try_read(&mut [0; 8]).unwrap_err().kind());
    assert!(kinds.any(|kind| kind == ErrorKind::ConnectionReset));
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (fabric, [a, b]) = Fabric::start(0);
    let (a, _b) = (fabric.attach(0, &a, USUAL).unwrap(), fabric.attach(1, &b, USUAL).unwrap());
    let begin = Instant::now();
    let wait = Duration::from_millis(30);
    let error = a.read_until(&mut [0; 8], begin + wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(begin.elapsed() >= wait);
    // Nobody reads at the other end, so all rings become full.
    let mut written = 0;
    let error = loop {
        match a.write_until(&[0; 4096], Instant::now() + wait) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(written, 2 * 65_536);
    assert_eq!(a.write_within(b"x", Wait::No).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!a.ready().writable && !a.ready().readable);
    assert!(begin.elapsed() < PATIENCE);
}
