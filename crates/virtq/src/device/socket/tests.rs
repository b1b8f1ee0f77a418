//! Driver against device: whatever a proper driver sends arrives byte for byte, whatever the order in which it comes back.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::*;
use crate::counters::SharedWords;
use crate::device::Start;
use crate::driver::{QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver};
use crate::socket_header::{self, SocketHeader};

/// A log of its own.
pub(super) fn in_flight() -> InFlight {
    let file = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 256).unwrap();
    InFlight::new(&Arc::new(SharedWords::map(file.as_fd(), 32).unwrap()), 7)
}

#[test]
fn a_packet_goes_through() {
    let mut ram = Ram::new(4 << 20).unwrap();
    let [tx_layout, rx_layout] = [(); 2].map(|()| QueueLayout::allocate(&mut ram, 8).unwrap());
    let mut sender =
        SocketTxDriver::new(&mut ram, tx_layout, RING_FEATURES, Shape::Apart, 1 << 16).unwrap().unwrap();
    let mut receiver =
        SocketRxDriver::new(&mut ram, rx_layout, RING_FEATURES, Shape::Whole, 4096).unwrap().unwrap();
    receiver.ring().publish();
    let config = |layout: QueueLayout| layout.config(RING_FEATURES, Start::At(0));
    let mut tx = SocketTx::new(ram.memory(), &config(tx_layout), in_flight()).unwrap();
    let mut rx = SocketRx::new(ram.memory(), &config(rx_layout)).unwrap();
    let header = SocketHeader { src_cid: 3, op: socket_header::RW, ..SocketHeader::default() };
    assert!(sender.send(header, &[&[1; 3000], &[2; 3000]]));
    sender.ring().publish();
    let packet = tx.take().unwrap().unwrap();
    assert_eq!((packet.payload, packet.header), (6000, SocketHeader { len: 6000, ..header }));
    let mut offset = 0;
    while offset < packet.payload {
        let len = rx.room().unwrap().unwrap().min(packet.payload - offset);
        let piece = Piece::Packet { from: &tx, head: packet.head, offset, len };
        assert_eq!(rx.deliver(packet.header, [piece]).unwrap(), len);
        offset += len;
    }
    rx.publish();
    tx.give_back(packet.head);
    tx.publish();
    let mut found = Vec::new();
    while let Some(()) = receiver
        .receive(|found_header, payload| {
            assert_eq!(SocketHeader { len: 0, ..found_header }, header);
            let mut bytes = vec![0; payload.left()];
            payload.read(&mut bytes);
            found.extend(bytes);
        })
        .unwrap()
    {}
    assert_eq!(found, [vec![1; 3000], vec![2; 3000]].concat());
    assert_eq!(sender.reclaim(), Ok(1));
}
