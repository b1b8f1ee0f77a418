//! What guests say to each other on the rig, and what happens to them.

use std::os::fd::OwnedFd;

use taut_api::fabric::config::{SocketConfig, WorkerMode};
use taut_virtq::Start;
use taut_virtq::socket_header::{REQUEST, RESPONSE, RST, RW, STREAM, SocketHeader};

pub(super) use crate::vsock::rig::*;

pub(super) const ALLOC: u32 = 256 << 10;

/// A connection as a guest's program sees it: headers made for it, room told.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub(super) guest: usize,
    pub(super) port: u32,
    pub(super) peer: (u32, u32),
    pub(super) taken: u32,
}

/// Guests with context IDs from 3 on, in these domains, with receive buffers of so many bytes.
pub(super) fn rig(domains: &[&[&str]], buffer: u32) -> Rig {
    rig_of((3..).zip(domains).map(|(cid, domains)| device(cid, domains)).collect(), buffer)
}

pub(super) fn rig_of(devices: Vec<SocketConfig>, buffer: u32) -> Rig {
    let rings = Rings { entries: 64, buffer, payload: 64 << 10, ram: 16 << 20 };
    Rig::new(devices, rings, WorkerMode::Polling)
}

impl Rig {
    /// Another switch takes the place of this one, which has stopped (or was killed).
    pub(super) fn succeed(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.take_over(streams);
        (0..self.drivers.len()).for_each(|guest| self.start_both(guest, [Start::Recover; 2]));
    }

    pub(super) fn header(&self, own: Own, op: u16) -> SocketHeader {
        SocketHeader {
            src_cid: self.drivers[own.guest].cid.into(),
            dst_cid: own.peer.0.into(),
            src_port: own.port,
            dst_port: own.peer.1,
            len: 0,
            kind: STREAM,
            op,
            flags: 0,
            buf_alloc: ALLOC,
            fwd_cnt: own.taken,
        }
    }

    pub(super) fn say(&mut self, own: Own, op: u16, flags: u32) {
        let header = SocketHeader { flags, ..self.header(own, op) };
        assert!(self.drivers[own.guest].send(header, &[]));
    }

    pub(super) fn write(&mut self, own: Own, bytes: &[u8]) {
        let header = self.header(own, RW);
        assert!(self.drivers[own.guest].send(header, bytes), "the ring is full");
    }

    /// The same by a guest that does not look what it has got back.
    pub(super) fn write_only(&mut self, own: Own, bytes: &[u8]) {
        let header = self.header(own, RW);
        assert!(self.drivers[own.guest].send_only(header, bytes), "the ring is full");
    }

    /// A guest takes what it has got back, and wants to be interrupted for the next.
    pub(super) fn arm_returns(&mut self, guest: usize) {
        self.drivers[guest].outstanding();
        self.drivers[guest].arm_returns();
    }

    /// The next packet that a guest has received.
    pub(super) fn next(&mut self, guest: usize) -> (SocketHeader, Vec<u8>) {
        self.drivers[guest].inbox.pop_front().expect("nothing has arrived")
    }

    /// Everything that arrived for a connection's payload; there must be nothing else.
    pub(super) fn read(&mut self, own: &mut Own) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((header, bytes)) = self.drivers[own.guest].inbox.pop_front() {
            assert_eq!((header.op, header.dst_port, header.src_port), (RW, own.port, own.peer.1));
            own.taken = own.taken.wrapping_add(bytes.len() as u32);
            all.extend(bytes);
        }
        all
    }

    pub(super) fn ops(&mut self, guest: usize) -> Vec<u16> {
        self.drivers[guest].inbox.drain(..).map(|(header, _)| header.op).collect()
    }

    pub(super) fn ends(&self, from: usize, to: usize, port: u32) -> (Own, Own) {
        let (a, b) = (self.drivers[from].cid, self.drivers[to].cid);
        (
            Own { guest: from, port, peer: (b, 80), taken: 0 },
            Own { guest: to, port: 80, peer: (a, port), taken: 0 },
        )
    }

    /// A connection between two guests that is open.
    pub(super) fn connect(&mut self, from: usize, to: usize, port: u32) -> (Own, Own) {
        let (own, other) = self.ends(from, to, port);
        self.say(own, REQUEST, 0);
        self.settle();
        assert_eq!(self.ops(to), [REQUEST]);
        self.say(other, RESPONSE, 0);
        self.settle();
        assert_eq!(self.ops(from), [RESPONSE]);
        (own, other)
    }

    /// A request that is answered by a reset.
    pub(super) fn is_refused(&mut self, own: Own) {
        self.say(own, REQUEST, 0);
        self.settle();
        let (header, bytes) = self.next(own.guest);
        assert_eq!((header.op, bytes.len()), (RST, 0));
        assert_eq!((header.src_cid, header.src_port), (own.peer.0.into(), own.peer.1));
        assert_eq!(header.dst_port, own.port);
        assert!(self.drivers.iter().all(|driver| driver.inbox.is_empty()));
    }
}

/// Bytes that differ from place to place.
pub(super) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at * 31 + (at >> 8) * 7) as u8).collect()
}

impl Rig {
    /// A guest's rings stop and go on, as for a paused VM.
    pub(super) fn pause(&mut self, guest: usize) {
        let positions = [0, 1].map(|queue| self.stop(guest, queue).unwrap());
        self.start_both(guest, positions.map(Start::At));
    }

    /// Another switch takes over from this one while a guest stands still.
    pub(super) fn succeed_while_paused(&mut self, guest: usize) {
        let positions = [0, 1].map(|queue| self.stop(guest, queue).unwrap());
        let streams = self.stop_switch();
        self.take_over(streams);
        for other in (0..self.drivers.len()).filter(|&other| other != guest) {
            self.start_both(other, [Start::Recover; 2]);
        }
        self.step();
        self.start_both(guest, positions.map(Start::At));
    }
}
