//! vsock devices: their sessions, connections between guests, and which guests may connect.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use taut_api::Bytes;
use taut_api::fabric::config::{QueuePairMemory, SocketConfig};
use taut_api::fabric::counters::SocketWord;
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{PortId, ToFabric};
use taut_api::link::Link;
use taut_api::vmci::Cid;
use taut_virtq::socket_header::{RST, SocketHeader};
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};

use super::fabric::{Fabric, cid, socket, vnic};
use super::guest::{FrontEnd, NO_OFFLOADS, negotiate_with};
use super::vsock_guest::{End, SocketGuest, connect};

/// Starts guests at devices that are in these domains.
pub(crate) fn socket_guests<const N: usize>(fabric: &mut Fabric, domains: [&[&str]; N]) -> [SocketGuest; N] {
    fabric.configure_sockets((0..).zip(domains).map(|(id, domains)| socket(id, domains)).collect());
    let guests = std::array::from_fn(|id| SocketGuest::start(fabric.connect(PortId(id as u16))));
    for id in 0..N as u16 {
        fabric.until_link(PortId(id), Link::Up);
    }
    guests
}

/// Sends bytes both ways and compares them.
pub(crate) fn exchange([a, b]: [&mut SocketGuest; 2], [at_a, at_b]: [&mut End; 2], mark: u8) {
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| mark.wrapping_add((at % 251) as u8)).collect();
    a.write(at_a, &bytes);
    assert!(b.read(at_b, bytes.len()) == bytes);
    b.write(at_b, &bytes[..100]);
    assert!(a.read(at_a, 100) == bytes[..100]);
}

#[test]
fn guests_of_one_domain_connect_exchange_bytes_and_close() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web", "test"], &["db", "web"]]);
    assert_eq!((a.cid, b.cid), (cid(0), cid(1)), "GET_CONFIG tells the context ID");
    for round in 0..3 {
        let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000 + round);
        for mark in 0..20 {
            exchange([&mut a, &mut b], [&mut at_a, &mut at_b], mark);
        }
        assert_eq!(fabric.socket_word(PortId(0), SocketWord::Connections), 1);
        let (closer, closed) = if round == 1 { (&mut b, &mut a) } else { (&mut a, &mut b) };
        let (at_closer, at_closed) = if round == 1 { (&at_b, &at_a) } else { (&at_a, &at_b) };
        std::thread::scope(|scope| {
            scope.spawn(|| closer.close(at_closer));
            closed.closed(at_closed);
        });
    }
    let opened = [0, 1].map(|id| fabric.socket_word(PortId(id), SocketWord::Opened));
    assert_eq!(opened, [3, 3]);
    assert!(fabric.violations.is_empty());
}

#[test]
fn a_peer_without_a_common_domain_is_refused_like_an_absent_one() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = socket_guests(&mut fabric, [&["web"], &["db"], &["web"]]);
    let answer = |a: &mut SocketGuest, to: u64| {
        let end = a.request(1000, (to, 5000));
        let (header, payload) = a.receive();
        assert!(end.is_for(&header) && payload.is_empty(), "{header:?}");
        SocketHeader { src_cid: 0, ..header }
    };
    let forbidden = answer(&mut a, b.cid);
    assert_eq!(forbidden.op, RST);
    assert_eq!(answer(&mut a, 999), forbidden, "absent");
    assert_eq!(answer(&mut a, 1 << 40), forbidden, "no context ID");
    assert_eq!(fabric.socket_word(PortId(0), SocketWord::Refused), 3);
    // Guests that may talk connect. The refused requests have not reached their peers: this one is
    // the first packet that each gets.
    connect(&mut a, &mut c, 1001);
    fabric.configure_sockets(vec![socket(0, &["web"]), socket(1, &["db", "web"]), socket(2, &["web"])]);
    connect(&mut a, &mut b, 1002);
}

#[test]
fn removing_the_common_domain_resets_the_connections() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let (at_a, at_b) = connect(&mut a, &mut b, 1000);
    fabric.configure_sockets(vec![socket(0, &["web"]), socket(1, &[])]);
    assert_eq!(a.next(&at_a).op, RST);
    assert_eq!(b.next(&at_b).op, RST);
    assert!(fabric.ended.is_empty(), "sessions go on: {:?}", fabric.ended);
    assert!(a.connect(1001, (b.cid, 5000)).is_none());
}

#[test]
fn a_paused_guest_keeps_its_connections_and_a_rebooted_one_loses_them() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 1);
    let positions = a.stop_rings();
    fabric.until_link(PortId(0), Link::Down);
    b.write(&mut at_b, &[7; 1000]);
    a.start_rings(positions);
    fabric.until_link(PortId(0), Link::Up);
    assert_eq!(a.read(&mut at_a, 1000), [7; 1000]);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 2);

    // Packets that the fabric has taken and not delivered stay in their sender's ring, paused or
    // not.
    let stopped = b.stop_rings();
    let bytes: Vec<u8> = (0..16_000_u32).map(|at| (at % 241) as u8).collect();
    bytes.chunks(4000).for_each(|part| a.write(&mut at_a, part));
    let positions = a.stop_rings();
    a.start_rings(positions);
    b.start_rings(stopped);
    assert!(b.read(&mut at_b, bytes.len()) == bytes);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 3);

    a.stop_rings();
    let mut a = a.boot_again();
    assert_eq!(b.next(&at_b).op, RST);
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 4);
}

#[test]
fn connections_to_a_guest_that_is_gone_are_reset_and_refused() {
    let mut fabric = Fabric::start();
    let [mut a, b, mut c] = socket_guests(&mut fabric, [&["web"], &["web"], &["web"]]);
    let mut b = b;
    let (at_a, _) = connect(&mut a, &mut b, 1000);
    drop(b);
    assert_eq!(a.next(&at_a).op, RST, "its front end has disconnected");
    assert!(a.connect(1001, (cid(1), 5000)).is_none());

    let (at_a, _) = connect(&mut a, &mut c, 1000);
    let mut c = SocketGuest::start(fabric.connect(PortId(2)));
    assert_eq!(a.next(&at_a).op, RST, "another guest has taken its place");
    connect(&mut a, &mut c, 1000);
}

#[test]
fn applying_a_configuration_twice_changes_nothing_and_an_omitted_device_is_closed() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
    fabric.configure_sockets(vec![socket(0, &["web"]), socket(1, &["web"])]);
    assert!(fabric.ended.is_empty());
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 1);
    fabric.configure_sockets(vec![socket(0, &["web"])]);
    assert_eq!(fabric.ended, [(PortId(1), "the port is no longer configured".to_owned())]);
    assert!(b.front_end.is_closed());
    assert_eq!(a.next(&at_a).op, RST);

    // QEMU reads the context ID only once, so a new one needs a new session.
    fabric.configure_sockets(vec![SocketConfig { cid: Cid(77), ..socket(0, &["web"]) }]);
    assert_eq!(fabric.ended[1], (PortId(0), "the device's context ID has changed".to_owned()));
    assert!(a.front_end.is_closed());
    let a = SocketGuest::start(fabric.connect(PortId(0)));
    assert_eq!(a.cid, 77);
    fabric.configure(vec![vnic(0, 1)]);
    assert_eq!(fabric.ended[2], (PortId(0), "the port's kind has changed".to_owned()));
}

#[test]
fn an_invalid_device_is_refused_with_the_reason() {
    let mut fabric = Fabric::start();
    let twin = SocketConfig { cid: Cid(100), ..socket(1, &[]) };
    let host = SocketConfig { cid: Cid::HOST, ..socket(2, &[]) };
    fabric.configure_sockets(vec![socket(0, &[]), twin, host]);
    let refused = &fabric.configured.as_ref().unwrap().1;
    assert_eq!(
        *refused,
        [
            (PortId(1), "the context ID 100 is taken".to_owned()),
            (PortId(2), "2 is not a context ID that a VM can have".to_owned()),
        ]
    );
    fabric.attach(PortId(0), Attachment::Tap { uso: false }, &[]);
    fabric.until(|fabric| {
        let reason = fabric.states.get(&PortId(0)).and_then(|state| state.reason.as_deref());
        reason == Some("a TAP device cannot be attached to a VMCI device")
    });
}

#[test]
fn the_configuration_space_holds_only_the_context_id_and_is_read_only() {
    let mut fabric = Fabric::start();
    fabric.configure_sockets(vec![socket(3, &[])]);
    let mut front_end = FrontEnd { socket: fabric.connect(PortId(3)) };
    negotiate_with(&mut front_end, NO_OFFLOADS, VhostUserProtocolFeatures::CONFIG);
    assert_eq!(front_end.config(0, 8), 103_u64.to_le_bytes());
    for (offset, size) in [(0, 9), (4, 8), (8, 1), (u32::MAX, 8), (0, 256)] {
        assert!(front_end.config(offset, size).is_empty(), "{size} bytes at {offset}");
    }
    let write = [&[0, 8, 0].map(u32::to_ne_bytes).concat()[..], &[9; 8]].concat();
    front_end.send(FrontendReq::SET_CONFIG, &write, &[], true);
    assert_ne!(front_end.reply(FrontendReq::SET_CONFIG), 0);
    assert_eq!(front_end.config(0, 8), 103_u64.to_le_bytes());
    // More than any configuration space holds.
    front_end.send(FrontendReq::GET_CONFIG, &[0, 257, 0].map(u32::to_ne_bytes).concat(), &[], false);
    assert!(front_end.is_closed());
    fabric.until(|fabric| !fabric.ended.is_empty());
    assert!(fabric.ended[0].1.contains("GET_CONFIG: 257 is out of range"), "{:?}", fabric.ended);
}

#[test]
fn a_broken_ring_stops_its_device_and_no_other() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = socket_guests(&mut fabric, [&["web"], &["web"], &["web"]]);
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
    c.break_transmit_ring();
    let state = fabric.until_link(PortId(2), Link::Broken);
    assert!(state.attached);
    assert!(state.reason.as_ref().unwrap().contains("available index jumped"), "{state:?}");
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 1);
    c.stop_rings();
    let mut c = c.boot_again();
    fabric.until_link(PortId(2), Link::Up);
    connect(&mut c, &mut a, 1000);
}

#[test]
fn a_packet_with_a_forged_source_is_dropped_counted_and_reported() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let forged = SocketHeader {
        src_cid: b.cid,
        dst_cid: b.cid,
        src_port: 1,
        dst_port: 2,
        kind: 1,
        op: 1,
        ..SocketHeader::default()
    };
    a.send(forged, &[]);
    fabric.until(|fabric| !fabric.violations.is_empty());
    assert_eq!(fabric.violations[0].0, PortId(0));
    assert_eq!(fabric.socket_word(PortId(0), SocketWord::Forged), 1);
    connect(&mut a, &mut b, 1000);
}

#[test]
fn memory_for_queue_pairs_that_is_refused_is_told_until_the_right_one_comes() {
    let mut fabric = Fabric::start();
    let file = || {
        let file = memfd_create("queue-pairs", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 6 << 20).unwrap();
        file
    };
    let (good, unsealed) = (file(), file());
    fcntl_add_seals(&good, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    let configured = |file: &OwnedFd| {
        let memory = QueuePairMemory {
            inode: fstat(file).unwrap().st_ino,
            offset: Bytes::mib(2),
            size: Bytes::mib(4),
            ring: None,
        };
        vec![SocketConfig { queue_pairs: Some(memory), ..socket(0, &["web"]) }]
    };
    let port = PortId(0);
    fabric.configure_sockets(configured(&unsealed));
    fabric.send(&ToFabric::QueuePairMemory { port }, &[unsealed.as_fd()]);
    fabric.until(|fabric| fabric.unused_queue_pairs.contains_key(&port));
    assert!(fabric.unused_queue_pairs[&port].contains("seals"), "{:?}", fabric.unused_queue_pairs);
    // A daemon that comes later is told as well.
    fabric.disconnect();
    fabric.unused_queue_pairs.clear();
    fabric.reconnect();
    fabric.until(|fabric| fabric.unused_queue_pairs.contains_key(&port));
    fabric.configure_sockets(configured(&good));
    fabric.send(&ToFabric::QueuePairMemory { port }, &[good.as_fd()]);
    fabric.until(|fabric| !fabric.unused_queue_pairs.contains_key(&port));
}
