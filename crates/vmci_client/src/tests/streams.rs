//! Bytes arrive exactly, whichever ends are attached.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use super::fabric::Fabric;
use super::{MOST, NEVER, Random, USUAL, bytes, check};
use crate::Attached;

/// Writes a stream in pieces of random sizes.
fn send(mut out: impl Write, stream: u64, len: u64) {
    let mut random = Random(stream * 2 + 1);
    let mut done = 0;
    while done < len {
        let size = random.len(MOST).min((len - done) as usize);
        out.write_all(bytes(stream, done, size)).unwrap();
        done += size as u64;
    }
}

/// Reads a stream to its end, in pieces of random sizes.
fn receive(mut from: impl Read, stream: u64, len: u64) {
    let (mut random, mut buffer) = (Random(stream * 2 + 99), vec![0; MOST]);
    let mut done = 0;
    loop {
        let size = random.len(MOST);
        let count = from.read(&mut buffer[..size]).unwrap();
        check(stream, done, &buffer[..count]);
        done += count as u64;
        if count == 0 {
            break;
        }
    }
    assert_eq!(done, len);
}

fn both_ways(looks: u32, poll: Duration, len: u64) {
    let (fabric, [a, b]) = Fabric::start(looks);
    let (first, second) = (fabric.attach(0, &a, poll).unwrap(), fabric.attach(1, &b, poll).unwrap());
    thread::scope(|scope| {
        for (end, sends, receives) in [(&first, 1, 2), (&second, 2, 1)] {
            scope.spawn(move || {
                send(end, sends, len);
                end.shutdown_write().unwrap();
            });
            scope.spawn(move || receive(end, receives, len));
        }
    });
}

#[test]
fn ring_to_ring_both_ways() {
    both_ways(8, USUAL, 64 << 20);
}

#[test]
fn ring_to_ring_both_ways_if_everybody_sleeps_at_once() {
    both_ways(0, NEVER, 64 << 20);
}

/// One end is attached, the other one uses its socket.
fn to_packets(poll: Duration) {
    const LEN: u64 = 8 << 20;
    let (fabric, [a, b]) = Fabric::start(0);
    let attached = fabric.attach(0, &a, poll).unwrap();
    thread::scope(|scope| {
        let (attached, b) = (&attached, &b);
        scope.spawn(move || {
            send(attached, 1, LEN);
            attached.shutdown_write().unwrap();
        });
        scope.spawn(move || receive(b, 1, LEN));
        scope.spawn(move || {
            send(b, 2, LEN);
            b.shutdown(std::net::Shutdown::Write).unwrap();
        });
        scope.spawn(move || receive(attached, 2, LEN));
    });
}

#[test]
fn ring_to_packets_both_ways() {
    to_packets(USUAL);
    to_packets(NEVER);
}

/// Waits until the peer's packets have arrived at this socket.
fn arrived(stream: &UnixStream, len: usize) {
    let mut seen = vec![0; len];
    while rustix::net::recv(stream, &mut seen, rustix::net::RecvFlags::PEEK).unwrap().1 < len {
        thread::yield_now();
    }
}

fn read_exactly(attached: &Attached, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let mut from = attached;
    from.read_exact(&mut buffer).unwrap();
    buffer
}

#[test]
fn bytes_that_came_before_the_attach_are_read_first() {
    let (fabric, [a, b]) = Fabric::start(0);
    (&b).write_all(b"by packets, ").unwrap();
    arrived(&a, 12);
    let attached = fabric.attach(0, &a, USUAL).unwrap();
    assert_eq!(attached.by_packets(), 12);
    assert!(attached.ready().readable);
    (&b).write_all(b"by the ring").unwrap();
    assert_eq!(read_exactly(&attached, 5), b"by pa");
    assert_eq!(attached.by_packets(), 7);
    assert_eq!(read_exactly(&attached, 18), b"ckets, by the ring");
    assert_eq!(attached.by_packets(), 0);
    // The same after the peer has attached, too.
    let peer = fabric.attach(1, &b, USUAL).unwrap();
    (&peer).write_all(b" of both").unwrap();
    assert_eq!(read_exactly(&attached, 8), b" of both");
}

#[test]
fn packets_that_were_sent_go_before_the_ring() {
    let (fabric, [a, b]) = Fabric::start(0);
    (&a).write_all(b"first, ").unwrap();
    let attached = fabric.attach(0, &a, USUAL).unwrap();
    (&attached).write_all(b"second").unwrap();
    let mut got = [0; 13];
    (&b).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"first, second");
}
