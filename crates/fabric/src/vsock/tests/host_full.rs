//! Sockets on the host over which more descriptors have come than can be closed.

use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use taut_api::fabric::PortId;
use taut_api::fabric::closing::MOST_WAITING;
use taut_api::fabric::config::WorkerMode;
use taut_tests::lingering;
use taut_virtq::socket_header::{REQUEST, RST};

use super::host::{client, listen};
use super::rig::*;
use crate::vsock::VsockEvent;

/// Longest wait for a thread.
const SOON: Duration = Duration::from_secs(20);

/// Sends bytes and a descriptor.
fn send(stream: &UnixStream, bytes: &[u8], fd: &OwnedFd) {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
}

/// Lets time pass and the switch work until something holds.
fn until(rig: &mut Rig, what: &str, mut holds: impl FnMut(&mut Rig) -> bool) {
    let end = Instant::now() + SOON;
    loop {
        rig.now += Duration::from_secs(1);
        rig.settle();
        if holds(rig) {
            return;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes the reports of full sockets since the last call, and returns the number of those about the
/// socket of this program, or about the one of clients.
fn full(rig: &mut Rig, of: Option<u32>) -> usize {
    let events = std::mem::take(&mut rig.switch.events).into_iter();
    let is_meant = |event: &VsockEvent| match event {
        VsockEvent::HostSocketFull { port: PortId(3), of: socket } => *socket == of,
        _ => false,
    };
    events.filter(is_meant).count()
}

/// Connects a client that sends no valid line and leaves.
fn connect_and_leave(listener: &SocketAddr) {
    let mut stream = UnixStream::connect_addr(listener).unwrap();
    stream.write_all(b"nothing\n").unwrap();
}

#[test]
fn a_socket_whose_queue_is_full_is_reported_once_and_serves_again_when_it_is_empty() {
    let rings = Rings { entries: 64, buffer: 4096, payload: 64 << 10, ram: 16 << 20 };
    let mut rig = Rig::new(vec![device(3, &[])], rings, WorkerMode::Interrupt);
    let listener = listen(&mut rig);
    for _ in 0..2 {
        let (slow, peer) = lingering().unwrap();
        let stream = UnixStream::connect_addr(&listener).unwrap();
        send(&stream, b"nothing\n", &slow);
        drop((stream, slow));
        rig.settle();
        for _ in 0..=MOST_WAITING {
            connect_and_leave(&listener);
            rig.settle();
        }
        let mut waiting = Vec::new();
        until(&mut rig, "the socket is reported", |rig| {
            // The queue is full once a close has lasted; the socket pauses at the next client.
            if rig.switch.host.listeners.next_look().is_none() {
                waiting.push(UnixStream::connect_addr(&listener).unwrap());
            }
            full(rig, None) == 1
        });
        until(&mut rig, "a second passes", |rig| {
            assert_eq!(full(rig, None), 0, "it is reported once");
            let pause = rig.switch.pause(rig.now).expect("the thread may sleep");
            assert!(pause < Duration::from_secs(1), "it wakes up for the paused socket");
            true
        });
        drop(waiting);
        drop(peer);
        assert!(rig.switch.host.listeners.next_look().is_some(), "the socket is paused");
        until(&mut rig, "the socket serves again", |rig| rig.switch.host.listeners.next_look().is_none());
        rig.ops(0);
        client(&mut rig, &listener);
    }
}

/// Requests a connection to a program on the host, and returns the number of the question.
fn ask(rig: &mut Rig, from: u32, to: u32) -> Option<u32> {
    let own = Own { guest: 0, port: from, peer: (2, to), taken: 0 };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    std::mem::take(&mut rig.switch.events).into_iter().find_map(|event| match event {
        VsockEvent::HostConnect { request, to: port, .. } if port == to => Some(request),
        event => {
            rig.switch.events.push(event);
            None
        }
    })
}

#[test]
fn a_program_whose_queue_is_full_takes_nothing_from_other_programs_and_clients() {
    const HOSTILE: u32 = 77;
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (slow, peer) = lingering().unwrap();
    let mut slow = Some(slow);
    for number in 0..=MOST_WAITING as u32 + 1 {
        let request = ask(&mut rig, 5000 + number, HOSTILE).expect("the program is asked for");
        let (ours, program) = UnixStream::pair().unwrap();
        if let Some(slow) = slow.take() {
            send(&program, b"bytes", &slow);
        }
        rig.switch.host_connected(PortId(3), request, Some(ours.into()));
        rig.send_control(Own { guest: 0, port: 5000 + number, peer: (2, HOSTILE), taken: 0 }, RST, 0);
        rig.settle();
        drop(program);
    }
    let mut from = 6000;
    until(&mut rig, "the program's socket is full", |rig| {
        from += 1;
        if let Some(request) = ask(rig, from, HOSTILE) {
            rig.switch.host_connected(PortId(3), request, None);
        }
        full(rig, Some(HOSTILE)) == 1
    });
    assert_eq!(ask(&mut rig, 7000, HOSTILE), None, "its socket is not opened");
    assert_eq!(full(&mut rig, Some(HOSTILE)), 0, "it is reported once");

    let request = ask(&mut rig, 7001, 78).expect("another program is asked for");
    let (ours, mut other) = UnixStream::pair().unwrap();
    rig.switch.host_connected(PortId(3), request, Some(ours.into()));
    rig.ops(0);
    rig.write(Own { guest: 0, port: 7001, peer: (2, 78), taken: 0 }, b"bytes");
    rig.settle();
    other.set_read_timeout(Some(SOON)).unwrap();
    let mut bytes = [0; 5];
    other.read_exact(&mut bytes).unwrap();
    rig.ops(0);
    client(&mut rig, &listener);

    drop(peer);
    until(&mut rig, "the program is asked for again", |rig| {
        from += 1;
        ask(rig, from, HOSTILE).is_some()
    });
}
