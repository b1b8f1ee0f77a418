//! Helpers of the tests: guests' programs, and events that happen to guests.

use std::os::fd::OwnedFd;

use taut_api::fabric::config::{SocketConfig, WorkerMode};
use taut_virtq::Start;
use taut_virtq::socket_header::{CREDIT_UPDATE, REQUEST, RESPONSE, RST, RW, STREAM, SocketHeader};

pub(super) use crate::vsock::rig::*;

pub(super) const ALLOC: u32 = 256 << 10;

/// One end of a connection, from which headers are made.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub(super) guest: usize,
    pub(super) port: u32,
    pub(super) peer: (u32, u32),
    /// Bytes that the program has read.
    pub(super) taken: u32,
}

/// Creates a rig of guests in these domains, with context IDs from 3 on. `buffer` is the size of
/// their receive buffers in bytes.
pub(super) fn rig(domains: &[&[&str]], buffer: u32) -> Rig {
    rig_of((3..).zip(domains).map(|(cid, domains)| device(cid, domains)).collect(), buffer)
}

pub(super) fn rig_of(devices: Vec<SocketConfig>, buffer: u32) -> Rig {
    let rings = Rings { entries: 64, buffer, payload: 64 << 10, ram: 16 << 20 };
    Rig::new(devices, rings, WorkerMode::Polling)
}

impl Rig {
    /// Replaces the switch, which was stopped or counts as killed, and starts all rings.
    pub(super) fn replace_switch(&mut self, streams: Vec<(u32, OwnedFd)>) {
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

    pub(super) fn send_control(&mut self, own: Own, op: u16, flags: u32) {
        let header = SocketHeader { flags, ..self.header(own, op) };
        assert!(self.drivers[own.guest].send(header, &[]));
    }

    pub(super) fn write(&mut self, own: Own, bytes: &[u8]) {
        let header = self.header(own, RW);
        assert!(self.drivers[own.guest].send(header, bytes), "the ring is full");
    }

    /// Sends payload without reclaiming the packets that the guest has got back.
    pub(super) fn write_only(&mut self, own: Own, bytes: &[u8]) {
        let header = self.header(own, RW);
        assert!(self.drivers[own.guest].send_only(header, bytes), "the ring is full");
    }

    /// Reclaims the packets that a guest has got back, and asks for an interrupt for the next one.
    pub(super) fn arm_returns(&mut self, guest: usize) {
        self.drivers[guest].outstanding();
        self.drivers[guest].arm_returns();
    }

    /// Takes the next packet that a guest has received.
    pub(super) fn next(&mut self, guest: usize) -> (SocketHeader, Vec<u8>) {
        self.drivers[guest].inbox.pop_front().expect("nothing has arrived")
    }

    /// Takes the payload of a connection that has arrived. Nothing else may have arrived, except
    /// news of credit.
    pub(super) fn read(&mut self, own: &mut Own) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((header, bytes)) = self.drivers[own.guest].inbox.pop_front() {
            assert_eq!((header.dst_port, header.src_port), (own.port, own.peer.1));
            if header.op == CREDIT_UPDATE {
                continue;
            }
            assert_eq!(header.op, RW);
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

    /// Opens a connection between two guests.
    pub(super) fn connect(&mut self, from: usize, to: usize, port: u32) -> (Own, Own) {
        self.connect_as(STREAM, from, to, port)
    }

    /// Opens a connection of this socket type.
    pub(super) fn connect_as(&mut self, kind: u16, from: usize, to: usize, port: u32) -> (Own, Own) {
        let (own, other) = self.ends(from, to, port);
        let request = SocketHeader { kind, ..self.header(own, REQUEST) };
        assert!(self.drivers[from].send(request, &[]));
        self.settle();
        assert_eq!(self.ops(to), [REQUEST]);
        let response = SocketHeader { kind, ..self.header(other, RESPONSE) };
        assert!(self.drivers[to].send(response, &[]));
        self.settle();
        assert_eq!(self.ops(from), [RESPONSE]);
        (own, other)
    }

    /// Sends a request, and checks that a reset is the only answer.
    pub(super) fn is_refused(&mut self, own: Own) {
        self.send_control(own, REQUEST, 0);
        self.settle();
        let (header, bytes) = self.next(own.guest);
        assert_eq!((header.op, bytes.len()), (RST, 0));
        assert_eq!((header.src_cid, header.src_port), (own.peer.0.into(), own.peer.1));
        assert_eq!(header.dst_port, own.port);
        assert!(self.drivers.iter().all(|driver| driver.inbox.is_empty()));
    }
}

/// Bytes that differ from position to position.
pub(super) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at * 31 + (at >> 8) * 7) as u8).collect()
}

impl Rig {
    /// Stops a guest's rings and starts them again, as for a paused VM.
    pub(super) fn pause(&mut self, guest: usize) {
        let positions = [0, 1].map(|queue| self.stop(guest, queue).unwrap());
        self.start_both(guest, positions.map(Start::At));
    }

    /// Replaces the switch while a guest is paused.
    pub(super) fn replace_switch_while_paused(&mut self, guest: usize) {
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
