//! Captures of a port's frames.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use taut_api::fabric::capture::{
    Direction, Directions, Ended, HEADER, MAX_SNAPLEN, MOST_CAPTURES, Message, Record,
};
use taut_api::fabric::{DropReason, PortId, ToFabric};
use taut_virtq::NetHeader;

use super::fabric::{Fabric, PATIENCE, mac, vnic};
use super::frames::{frame, tso};
use super::guest::{FORMATS, LINUX, Model};
use super::traffic::guests;

/// The reader of a capture.
struct Reader(OwnedFd);

/// A captured frame.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    direction: Direction,
    dropped: Option<DropReason>,
    len: u32,
    bytes: Vec<u8>,
}

impl Reader {
    /// Asks for a capture.
    fn ask(fabric: &Fabric, port: u16, snaplen: u32, directions: Directions) -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        fabric.send(&ToFabric::Capture { port: PortId(port), snaplen, directions }, &[theirs.as_fd()]);
        Self(ours)
    }

    /// Begins a capture of whole frames in both directions.
    fn begin(fabric: &Fabric, port: u16) -> Self {
        let reader = Self::ask(fabric, port, MAX_SNAPLEN, Directions::Both);
        assert!(matches!(Message::parse(&reader.packet()), Ok(Message::Begun)));
        reader
    }

    /// Returns the next packet; an empty one if the fabric has closed its end.
    fn packet(&self) -> Vec<u8> {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        assert!(poll(&mut fds, Some(&timeout)).unwrap() > 0, "no message of the capture");
        let mut packet = vec![0; HEADER + MAX_SNAPLEN as usize];
        let (got, _) = recv(&self.0, &mut packet[..], RecvFlags::empty()).unwrap();
        packet.truncate(got);
        packet
    }

    /// Returns the next frame. None before it was lost.
    fn frame(&self) -> Seen {
        let packet = self.packet();
        let message = Message::parse(&packet);
        let Ok(Message::Frame(Record { direction, dropped, len, bytes, lost: 0, .. })) = message else {
            panic!("{message:?}");
        };
        Seen { direction, dropped, len, bytes: bytes.to_vec() }
    }

    /// Returns the reason for the end.
    fn end(&self) -> Ended {
        let packet = self.packet();
        match Message::parse(&packet) {
            Ok(Message::Ended(why)) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn whole(direction: Direction, bytes: Vec<u8>) -> Seen {
    Seen { direction, dropped: None, len: bytes.len() as u32, bytes }
}

#[test]
fn every_frame_of_a_port_is_captured_from_the_answer_on() {
    for format in FORMATS {
        let mut fabric = Fabric::start();
        let [mut a, mut b] = guests(&mut fabric, Model { features: LINUX | format, ..Model::default() });
        // The workers remember where these frames went.
        for mark in 0..50 {
            a.send(&frame(mac(1), mac(0), mark, 500));
            b.receive();
        }
        let (sender, receiver) = (Reader::begin(&fabric, 0), Reader::begin(&fabric, 1));
        for mark in 0..50 {
            let sent = frame(mac(1), mac(0), mark, 60 + usize::from(mark) * 20);
            a.send(&sent);
            assert_eq!(b.receive().1, sent);
            assert_eq!(sender.frame(), whole(Direction::Tx, sent.clone()));
            assert_eq!(receiver.frame(), whole(Direction::Rx, sent));
            let answer = frame(mac(0), mac(1), mark, 100);
            b.send(&answer);
            assert_eq!(a.receive().1, answer);
            assert_eq!(receiver.frame(), whole(Direction::Tx, answer.clone()));
            assert_eq!(sender.frame(), whole(Direction::Rx, answer));
        }
        drop((sender, receiver));
        for mark in 0..50 {
            let sent = frame(mac(1), mac(0), mark, 500);
            a.send(&sent);
            assert_eq!(b.receive().1, sent);
        }
        a.drain();
        b.drain();
        assert_eq!(fabric.counters(PortId(1)).rx_frames, 150);
    }
}

#[test]
fn a_capture_that_begins_amid_frames_is_answered_before_them() {
    let mut fabric = Fabric::start();
    let [mut a, _b] = guests(&mut fabric, Model::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    // The receiver takes nothing, so the fabric soon drops these frames as fast as they come.
    let sender = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            a.send(&frame(mac(1), mac(0), 1, 1514));
        }
    });
    for _ in 0..20 {
        let reader = Reader::begin(&fabric, 0);
        assert_eq!(reader.frame().direction, Direction::Tx);
    }
    is_over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
}

#[test]
fn segmented_and_dropped_frames_are_captured_as_the_guest_sent_them() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    let reader = Reader::begin(&fabric, 0);
    let (header, long) = tso(mac(1), mac(0), 30_000, 1448);
    a.send_with(&header, &long);
    b.receive();
    assert_eq!(reader.frame(), whole(Direction::Tx, long));
    let forged = frame(mac(1), mac(5), 1, 60);
    a.send(&forged);
    a.send_with(&NetHeader { gso_type: 77, ..NetHeader::default() }, &frame(mac(1), mac(0), 3, 60));
    let dropped = |reason, bytes| Seen { dropped: Some(reason), ..whole(Direction::Tx, bytes) };
    assert_eq!(reader.frame(), dropped(DropReason::ForgedTransmit, forged));
    assert_eq!(reader.frame(), dropped(DropReason::BadHeader, frame(mac(1), mac(0), 3, 60)));
}

#[test]
fn a_capture_takes_one_direction_and_the_beginning_of_frames() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    let reader = Reader::ask(&fabric, 1, 40, Directions::Rx);
    assert!(matches!(Message::parse(&reader.packet()), Ok(Message::Begun)));
    b.send(&frame(mac(0), mac(1), 1, 60));
    a.receive();
    let sent = frame(mac(1), mac(0), 2, 1514);
    a.send(&sent);
    b.receive();
    let expected = Seen { bytes: sent[..40].to_vec(), ..whole(Direction::Rx, sent) };
    assert_eq!(reader.frame(), expected);
}

#[test]
fn a_capture_ends_with_its_port_or_its_reader() {
    let mut fabric = Fabric::start();
    let [_a, mut b] = guests(&mut fabric, Model::default());
    assert_eq!(Reader::ask(&fabric, 7, 100, Directions::Both).end(), Ended::NoPort);
    let mut readers: Vec<_> = (0..MOST_CAPTURES).map(|at| Reader::begin(&fabric, at as u16 % 2)).collect();
    assert_eq!(Reader::ask(&fabric, 0, 100, Directions::Both).end(), Ended::TooMany);
    readers.pop();
    // The fabric notices soon that a reader has gone.
    let another = loop {
        let reader = Reader::ask(&fabric, 1, 100, Directions::Both);
        match Message::parse(&reader.packet()) {
            Ok(Message::Begun) => break reader,
            Ok(Message::Ended(Ended::TooMany)) => std::thread::sleep(std::time::Duration::from_millis(5)),
            other => panic!("{other:?}"),
        }
    };
    fabric.configure(vec![vnic(1, 1)]);
    for (at, reader) in readers.iter().enumerate().filter(|(at, _)| at % 2 == 0) {
        assert_eq!(reader.end(), Ended::NoPort, "{at}");
        assert!(reader.packet().is_empty(), "its socket is closed");
    }
    b.send(&frame(mac(0), mac(1), 1, 60));
    assert_eq!(another.frame().direction, Direction::Tx);
    assert!(fabric.is_alive());
    fabric.quit();
    assert!(another.packet().is_empty(), "it ends with the fabric");
}
