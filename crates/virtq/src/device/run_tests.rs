//! Runs of frames to a socket: each frame arrives whole, and a result is told for each.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::driver::{QueueLayout, Ram, Ring};
use crate::features::{INDIRECT_DESC, VERSION_1};
use crate::header::{self, NetHeader};
use crate::ring::{Part, Start};

const FEATURES: u64 = VERSION_1 | INDIRECT_DESC;

/// A queue with these frames, each cut into this number of parts.
fn queue(frames: &[Vec<u8>], parts: usize) -> TxQueue {
    let mut ram = Ram::new(8 << 20).unwrap();
    let layout = QueueLayout::allocate(&mut ram, 1024).unwrap();
    let mut ring = Ring::new(ram.memory(), layout, FEATURES).unwrap();
    for frame in frames {
        let content = [&NetHeader::default().to_bytes()[..], frame].concat();
        let pieces: Vec<_> = content.chunks(content.len().div_ceil(parts)).collect();
        let pieces = pieces.iter().map(|piece| {
            let addr = ram.allocate(piece.len() as u64, 1).unwrap();
            ram.memory().write(addr, piece).unwrap();
            Part { addr, len: piece.len() as u32, writable: false }
        });
        let pieces: Vec<_> = pieces.collect();
        ring.add(pieces.into_iter()).unwrap();
    }
    ring.publish();
    let mut queue = TxQueue::new(ram.memory(), &layout.config(FEATURES, Start::At(0))).unwrap();
    assert_eq!(queue.peek(), Ok(frames.len()));
    queue
}

fn frames(lens: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    let bytes = |len, number: usize| (0..len).map(|at| (at * 7 + number * 31) as u8).collect();
    lens.enumerate().map(|(number, len)| bytes(len, number)).collect()
}

/// A pair of sockets that keep messages apart.
fn sockets(room: usize) -> [OwnedFd; 2] {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
    set_socket_send_buffer_size(&ours, room).unwrap();
    [ours, theirs]
}

fn received(socket: &OwnedFd) -> Vec<Vec<u8>> {
    let mut space = vec![0; 1 << 17];
    std::iter::from_fn(|| {
        let len = rustix::io::read(socket, &mut *space).ok().filter(|len| *len > 0)?;
        Some(space[..len].to_vec())
    })
    .collect()
}

/// Heads that replace the first bytes: a number before them.
fn heads(queue: &TxQueue, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|at| [&[at as u8], queue.frame(at).first_bytes()].concat()).collect()
}

fn as_messages(frames: &[Vec<u8>], first: usize) -> Vec<Vec<u8>> {
    let numbered = frames.iter().enumerate().skip(first);
    numbered.map(|(number, frame)| [&[number as u8], &frame[..]].concat()).collect()
}

#[test]
fn frames_in_many_pieces_arrive_whole_and_in_order() {
    for parts in [1, 2, 3, 9] {
        let frames = frames((0..BURST).map(|number| 14 + number * 23));
        let queue = queue(&frames, parts);
        let heads = heads(&queue, BURST);
        let [ours, theirs] = sockets(1 << 20);
        for first in [0, 5, BURST - 1] {
            let (mut done, mut calls, mut waits, mut got) = (first, 0, 0, Vec::new());
            while done < BURST {
                queue.send_run(done, &heads[done..], ours.as_fd(), |result| {
                    calls += 1;
                    let sent = result.ok();
                    // Some hosts queue no more than ten messages.
                    waits += usize::from(sent.is_none());
                    done += sent.unwrap_or(0);
                    sent.is_some()
                });
                got.extend(received(&theirs));
            }
            let most = if parts == 1 { 1 } else { 4 };
            assert!(calls <= most + 2 * waits, "{calls} calls, {waits} waits, {parts} parts");
            assert!(got == as_messages(&frames, first), "{parts} parts from {first}");
        }
    }
}

#[test]
fn a_refused_frame_is_passed_over_and_a_full_socket_ends_the_run() {
    let lens = (0..40).map(|number| if number % 4 == 1 { 60_000 } else { 64 + number });
    let frames = frames(lens);
    let queue = queue(&frames, 2);
    let heads = heads(&queue, frames.len());
    // The long ones are longer than all that the socket takes.
    let [ours, theirs] = sockets(6_000);
    let (mut done, mut expected, mut got) = (0, Vec::new(), Vec::new());
    let mut full = 0;
    while done < frames.len() {
        queue.send_run(done, &heads[done..], ours.as_fd(), |result| {
            match result.map_err(|error| Errno::from_io_error(&error)) {
                Ok(count) => {
                    expected.extend(as_messages(&frames[..done + count], done));
                    done += count;
                }
                Err(Some(Errno::MSGSIZE)) => {
                    assert_eq!(frames[done].len(), 60_000);
                    done += 1;
                }
                Err(Some(Errno::AGAIN)) => {
                    full += 1;
                    return false;
                }
                Err(error) => panic!("{error:?}"),
            }
            true
        });
        got.extend(received(&theirs));
        assert!(got == expected, "after {done} frames");
    }
    assert!(full > 0, "the socket was never full");
    assert_eq!(got.len(), 30);
}

#[test]
fn scattered_frames_are_known() {
    let frames = frames([1200; 2].into_iter());
    assert!(!queue(&frames, 20).frame(1).is_scattered());
    let queue = queue(&frames, 100);
    assert!(queue.frame(1).is_scattered());
    assert_eq!(queue.frame(0).len() + header::LEN, 1212);
    let broken = std::panic::catch_unwind(|| {
        let [ours, _theirs] = sockets(1 << 20);
        queue.send_run(0, &heads(&queue, 1), ours.as_fd(), |_: io::Result<usize>| true);
    });
    assert!(broken.is_err());
}
