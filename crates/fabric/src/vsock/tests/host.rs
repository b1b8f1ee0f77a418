//! Connections between a guest and the host.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use taut_api::fabric::config::{SocketConfig, WorkerMode};
use taut_api::fabric::counters::SocketWord;
use taut_api::fabric::{ForeignFd, PortId};
use taut_queue_pair::SERVICE_PORT;
use taut_virtq::socket_header::*;

use super::rig::*;
use crate::sys::epoll::EventFlags;
use crate::vsock::VsockEvent;
use crate::vsock::host::{CLIENT_TIMEOUT, ConnectRequest};
use crate::vsock::proto::{ConnId, GuestIdx};

const BOTH: EventFlags = EventFlags::IN.union(EventFlags::OUT);

/// Opens a listening socket on the host for the guest.
pub(super) fn listen(rig: &mut Rig) -> SocketAddr {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("taut-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    rig.switch.host_listener(PortId(3), listener.into()).unwrap();
    address
}

/// Runs the switch to rest, with all events that the thread could get.
fn settle(rig: &mut Rig) {
    for _ in 0..3 {
        rig.switch.accept_clients(GuestIdx(0), rig.now);
        for number in 0..64 {
            rig.switch.read_client(number, BOTH, rig.now);
            rig.switch.on_stream_event(ConnId(number), BOTH);
        }
        rig.settle();
    }
}

pub(super) fn client(rig: &mut Rig, listener: &SocketAddr) -> (UnixStream, Own) {
    let mut client = UnixStream::connect_addr(listener).unwrap();
    client.set_nonblocking(true).unwrap();
    client.write_all(b"CONNECT 80\nfirst bytes").unwrap();
    settle(rig);
    let (header, _) = rig.next(0);
    assert_eq!((header.op, header.src_cid, header.dst_port), (REQUEST, 2, 80));
    assert!(header.buf_alloc > 0 && header.src_port >= 1024);
    (client, Own { guest: 0, port: 80, peer: (2, header.src_port), taken: 0 })
}

fn read(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    match stream.read(&mut bytes) {
        Ok(got) => bytes.truncate(got),
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing to read"),
        Err(error) => panic!("{error}"),
    }
    bytes
}

#[test]
fn a_client_of_the_host_reaches_the_guest() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (mut stream, mut own) = client(&mut rig, &listener);
    rig.send_control(own, RESPONSE, 0);
    settle(&mut rig);
    assert_eq!(read(&mut stream), format!("OK {}\n", own.peer.1).as_bytes());
    assert_eq!(rig.read(&mut own), b"first bytes");
    stream.write_all(&pattern(0, 30_000)).unwrap();
    rig.write(own, &pattern(5, 50_000));
    settle(&mut rig);
    assert!(rig.read(&mut own) == pattern(0, 30_000));
    let mut got = Vec::new();
    while got.len() < 50_000 {
        got.extend(read(&mut stream));
        settle(&mut rig);
    }
    assert!(got == pattern(5, 50_000));
    // After the guest has shut down its sending side, it still gets what the client sends. The
    // client's end then ends the connection.
    rig.ops(0);
    rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
    settle(&mut rig);
    assert_eq!(read(&mut stream), b"");
    stream.write_all(b"late").unwrap();
    settle(&mut rig);
    assert_eq!(rig.read(&mut own), b"late");
    drop(stream);
    settle(&mut rig);
    assert_eq!(rig.ops(0), [RST]);
}

#[test]
fn a_client_whose_port_nobody_listens_on_is_disconnected() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (mut stream, own) = client(&mut rig, &listener);
    rig.send_control(own, RST, 0);
    settle(&mut rig);
    // Another thread closes the socket.
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The client's bytes were not read: a Unix socket reports that as a reset.
    match stream.read(&mut [0]) {
        Ok(got) => assert_eq!(got, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn clients_that_send_no_valid_connect_line_are_disconnected() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    for words in [&b"GET / HTTP/1.1\r\n"[..], b"CONNECT\n", b"0123456789012345678901234567890123456789"] {
        let mut stream = UnixStream::connect_addr(&listener).unwrap();
        stream.write_all(words).unwrap();
        settle(&mut rig);
        // Another thread closes the socket.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut byte = [0];
        assert!(!matches!(stream.read(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock));
    }
    assert!(rig.drivers[0].inbox.is_empty());
}

#[test]
fn clients_that_leave_before_their_line_is_complete_make_room_for_others() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    for _ in 0..100 {
        let mut stream = UnixStream::connect_addr(&listener).unwrap();
        stream.write_all(b"CONNECT 8").unwrap();
        rig.settle();
        drop(stream);
        rig.settle();
    }
    client(&mut rig, &listener);
}

#[test]
fn a_guest_reaches_the_program_that_tautd_connects_or_is_refused() {
    let mut rig = rig(&[&[]], 4096);
    let own = Own { guest: 0, port: 5000, peer: (2, 1234), taken: 0 };
    let asked = |rig: &mut Rig| match std::mem::take(&mut rig.switch.events).remove(0) {
        VsockEvent::HostConnect { port: PortId(3), request, to: 1234 } => request,
        other => panic!("{other:?}"),
    };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    let request = asked(&mut rig);
    rig.switch.host_connected(PortId(3), request, None);
    rig.settle();
    assert_eq!(rig.ops(0), [RST]);
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    let request = asked(&mut rig);
    let (ours, mut program) = UnixStream::pair().unwrap();
    program.set_nonblocking(true).unwrap();
    rig.switch.host_connected(PortId(3), request, Some(ours.into()));
    settle(&mut rig);
    let (header, _) = rig.next(0);
    assert_eq!(header.op, RESPONSE);
    assert!(header.buf_alloc > 0);
    rig.write(own, b"question");
    settle(&mut rig);
    assert_eq!(read(&mut program), b"question");
    // The reply arrives after the guest has shut down its sending side.
    rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
    settle(&mut rig);
    assert_eq!(read(&mut program), b"");
    program.write_all(b"answer").unwrap();
    settle(&mut rig);
    let mut own = own;
    assert_eq!(rig.read(&mut own), b"answer");
}

#[test]
fn a_request_for_seqpacket_to_the_host_is_refused() {
    let mut rig = rig(&[&[]], 4096);
    let own = Own { guest: 0, port: 5000, peer: (2, 1234), taken: 0 };
    let request = SocketHeader { kind: SEQPACKET, ..rig.header(own, REQUEST) };
    assert!(rig.drivers[0].send(request, &[]));
    rig.settle();
    assert_eq!(rig.ops(0), [RST]);
    assert!(rig.switch.events.is_empty());
}

#[test]
fn a_program_that_does_not_read_delays_only_its_own_connection() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (mut slow, slow_own) = connected(&mut rig, &listener);
    let (mut quick, quick_own) = connected(&mut rig, &listener);
    let mut sent = 0;
    while rig.drivers[0].outstanding() < 4 {
        rig.write(slow_own, &pattern(sent, 1 << 16));
        sent += 1 << 16;
        settle(&mut rig);
    }
    rig.write(quick_own, b"quick");
    settle(&mut rig);
    assert_eq!(read(&mut quick), b"quick");
    assert!(read_all(&mut rig, &mut slow, sent) == pattern(0, sent));
    assert_eq!(rig.drivers[0].outstanding(), 0);
}

/// Connects a client, which gets the answer of the guest.
fn connected(rig: &mut Rig, listener: &SocketAddr) -> (UnixStream, Own) {
    let (mut stream, own) = client(rig, listener);
    rig.send_control(own, RESPONSE, 0);
    settle(rig);
    read(&mut stream);
    rig.ops(0);
    (stream, own)
}

/// Reads so many bytes of a guest as a client, while the guest goes on.
fn read_all(rig: &mut Rig, stream: &mut UnixStream, count: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < count {
        got.extend(read(stream));
        settle(rig);
    }
    got
}

/// Lets time pass until fewer than `most` packets are in the guest's ring. Returns `false` if that
/// takes too long.
fn wait_for_room(rig: &mut Rig, most: usize) -> bool {
    for _ in 0..10 {
        rig.now += Duration::from_millis(2);
        rig.settle();
        rig.check();
        if rig.drivers[0].outstanding() < most {
            return true;
        }
    }
    false
}

#[test]
fn many_small_packets_for_a_program_that_does_not_read_delay_no_other_connection() {
    const LEN: usize = 512;
    for upgraded in [false, true] {
        let mut rig = rig(&[&[]], 4096);
        let listener = listen(&mut rig);
        let (mut slow, slow_own) = connected(&mut rig, &listener);
        let (mut quick, quick_own) = connected(&mut rig, &listener);
        // The socket takes fewer than 300 of these packets. The guest has credit for 512.
        let mut sent = 0;
        while sent < 256 << 10 {
            rig.write(slow_own, &pattern(sent, LEN));
            sent += LEN;
            rig.settle();
            assert!(wait_for_room(&mut rig, 60), "the ring is full after {sent} bytes");
        }
        if upgraded {
            let sockets = rig.stop_switch();
            rig.replace_switch(sockets);
            settle(&mut rig);
        }
        rig.write(quick_own, b"quick");
        settle(&mut rig);
        assert_eq!(read(&mut quick), b"quick");
        assert!(read_all(&mut rig, &mut slow, sent) == pattern(0, sent));
        rig.check();
        assert_eq!(rig.drivers[0].outstanding(), 0);
        rig.write(slow_own, b"and on");
        settle(&mut rig);
        assert_eq!(read(&mut slow), b"and on");
    }
}

#[test]
fn what_is_copied_for_programs_that_do_not_read_is_bounded() {
    const MIB: usize = 1 << 20;
    let devices = vec![SocketConfig { connections: 100, ..device(3, &[]) }];
    let rings = Rings { entries: 128, buffer: 4096, payload: 16 << 10, ram: 16 << 20 };
    let mut rig = Rig::new(devices, rings, WorkerMode::Polling);
    let listener = listen(&mut rig);
    let mut programs = Vec::new();
    let copied = |rig: &Rig| rig.switch.guests.senders[GuestIdx(0)].copied_for_host;
    // Credit does not stop a hostile guest. It writes on each connection until so many packets stay
    // in its ring: on the first one until the ring is crowded, on each other one until one more
    // stays.
    let mut stay = 32;
    while stay < 120 {
        let (program, own) = connected(&mut rig, &listener);
        programs.push(program);
        while rig.drivers[0].outstanding() < stay {
            rig.write(own, &pattern(0, 16 << 10));
            wait_for_room(&mut rig, stay);
        }
        rig.ops(0);
        stay += 1;
    }
    assert!((11 * MIB..=12 * MIB).contains(&copied(&rig)), "{} bytes", copied(&rig));
    drop(programs);
    settle(&mut rig);
    rig.check();
    assert_eq!((copied(&rig), rig.drivers[0].outstanding()), (0, 0));
}

/// Linux ends a connection whose receiver holds some hundreds of packets, and adds tiny packets to
/// the one before.
#[test]
fn a_program_that_sends_small_messages_to_a_slow_reader_sends_few_packets() {
    const LEN: usize = 200;
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (mut stream, mut own) = connected(&mut rig, &listener);
    let (mut held, mut last) = (0, 4096);
    let mut got = Vec::new();
    let mut take = |rig: &mut Rig| {
        while let Some((header, bytes)) = rig.drivers[0].inbox.pop_front() {
            if header.op != RW {
                continue;
            }
            if bytes.len() <= 128 && last + bytes.len() <= 4096 - 44 {
                last += bytes.len();
            } else {
                (held, last) = (held + 1, bytes.len());
            }
            got.extend(bytes);
        }
        (held, got.len())
    };
    let (mut sent, mut taken) = (0, (0, 0));
    for turn in 0..1000 {
        stream.write_all(&pattern(turn, LEN)).unwrap();
        sent += LEN;
        rig.now += Duration::from_micros(200);
        rig.settle();
        taken = take(&mut rig);
    }
    for _ in 0..100 {
        rig.now += Duration::from_millis(1);
        rig.settle();
        taken = take(&mut rig);
    }
    assert!(taken.0 < 455, "{} packets unread", taken.0);
    assert_eq!(taken.1, sent, "all bytes arrive");
    // A reader that has read everything gets the next message at once.
    own.taken = (b"first bytes".len() + sent) as u32;
    rig.send_control(own, CREDIT_UPDATE, 0);
    rig.settle();
    rig.ops(0);
    stream.write_all(b"message").unwrap();
    rig.settle();
    assert_eq!(rig.read(&mut own), b"message");
}

#[test]
fn programs_have_short_turns_where_many_connections_wait() {
    let mut rig = rig(&[&[]], 64 << 10);
    let listener = listen(&mut rig);
    let mut programs: Vec<_> = (0..8).map(|_| connected(&mut rig, &listener)).collect();
    for (stream, _) in &mut programs {
        assert!(stream.write(&pattern(0, 60_000)).unwrap() > 32 << 10);
    }
    rig.settle();
    let lens = |ports: u32| {
        rig.drivers[0]
            .inbox
            .iter()
            .filter(move |(header, _)| header.src_port == ports)
            .map(|(header, _)| header.len)
    };
    for (_, own) in &programs {
        assert_eq!(lens(own.peer.1).next(), Some(16 << 10));
    }
}

#[test]
fn packets_without_bytes_to_the_host_are_given_back() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (mut stream, own) = client(&mut rig, &listener);
    rig.send_control(own, RESPONSE, 0);
    settle(&mut rig);
    assert_eq!(read(&mut stream), format!("OK {}\n", own.peer.1).as_bytes());
    (0..10).for_each(|_| rig.write(own, b""));
    settle(&mut rig);
    assert_eq!(rig.drivers[0].outstanding(), 0);
    rig.write(own, b"bytes");
    settle(&mut rig);
    assert_eq!(read(&mut stream), b"bytes");
}

#[test]
fn clients_that_name_no_port_in_time_give_their_places_to_others() {
    let rings = Rings { entries: 64, buffer: 4096, payload: 64 << 10, ram: 16 << 20 };
    let mut rig = Rig::new(vec![device(3, &[])], rings, WorkerMode::Interrupt);
    let listener = listen(&mut rig);
    let silent: Vec<_> = (0..64).map(|_| UnixStream::connect_addr(&listener).unwrap()).collect();
    settle(&mut rig);
    let mut refused = UnixStream::connect_addr(&listener).unwrap();
    settle(&mut rig);
    assert_eq!(refused.read(&mut [0; 1]).unwrap(), 0, "all places are taken");
    assert_eq!(rig.count(0, SocketWord::Limited), 1);

    rig.now += CLIENT_TIMEOUT / 2;
    settle(&mut rig);
    assert!(
        rig.switch.pause(rig.now).is_some_and(|pause| pause <= CLIENT_TIMEOUT / 2),
        "the thread wakes up"
    );
    for mut stream in &silent {
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock, "there is time left");
    }
    rig.now += CLIENT_TIMEOUT / 2;
    settle(&mut rig);
    for mut stream in &silent {
        stream.set_nonblocking(false).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
    assert_eq!(rig.count(0, SocketWord::Limited), 65);
    assert!(rig.switch.pause(rig.now).is_some_and(|pause| pause > CLIENT_TIMEOUT), "nothing is due");
    client(&mut rig, &listener);
}

#[test]
fn a_program_whose_socket_cannot_be_used_leaves_no_connection() {
    let mut rig = rig(&[&["d"]], 4096);
    let guest = rig.index(0).unwrap();
    // An eventfd is no socket.
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    let request = ConnectRequest { guest, port: 80, socket: ForeignFd::own(event) };
    rig.switch.connect_client(request, rig.now);
    rig.settle();
    assert!(rig.ops(0).is_empty());
    rig.check_nothing_left();
}

#[test]
fn a_client_does_not_get_the_port_of_the_fabrics_own_service() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let index = rig.index(0).unwrap();
    rig.switch.guests.devices[index].as_mut().unwrap().skip_to_host_port(SERVICE_PORT);
    let (_client, own) = client(&mut rig, &listener);
    assert_eq!(own.peer, (2, SERVICE_PORT + 1));
}
