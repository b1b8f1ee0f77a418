//! Ends of connections of all kinds, and an exchange of bytes between any two of them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_virtq::socket_header::*;

use super::super::model::Chance;
use super::super::rig::*;
use super::program::{Program, take_for};
use crate::vsock::sched::Patrols;

/// An end that uses packets, with the part of a guest's kernel that it needs.
pub(super) struct Kernel {
    pub(super) own: Own,
    sent: u32,
    /// The peer's credit: size of its buffer, and bytes taken.
    room: (u32, u32),
    unread: VecDeque<u8>,
    /// Operations that have arrived, other than payload and credit.
    pub(super) ops: Vec<u16>,
}

impl Kernel {
    fn new(own: Own, header: &SocketHeader) -> Self {
        let room = (header.buf_alloc, header.fwd_cnt);
        Self { own, sent: 0, room, unread: VecDeque::new(), ops: Vec::new() }
    }

    /// Bytes that the peer has room for, as Linux counts them.
    fn credit(&self) -> usize {
        self.room.0.saturating_sub(self.sent.wrapping_sub(self.room.1)) as usize
    }

    /// Takes in what has arrived.
    pub(super) fn take_in(&mut self, rig: &mut Rig) {
        for (header, bytes) in take_for(rig, self.own) {
            self.room = (header.buf_alloc, header.fwd_cnt);
            match header.op {
                RW => {
                    self.unread.extend(bytes);
                    assert!(self.unread.len() <= ALLOC as usize, "more than there was room for");
                }
                CREDIT_REQUEST => rig.send_control(self.own, CREDIT_UPDATE, 0),
                CREDIT_UPDATE => {}
                op => self.ops.push(op),
            }
        }
    }

    /// Tells whether the program has read everything that has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn write(&mut self, rig: &mut Rig, bytes: &[u8]) -> usize {
        self.take_in(rig);
        let len = bytes.len().min(self.credit()).min(64 << 10);
        if len == 0 || rig.drivers[self.own.guest].outstanding() > 50 {
            return 0;
        }
        rig.write(self.own, &bytes[..len]);
        self.sent = self.sent.wrapping_add(len as u32);
        len
    }

    pub(super) fn read(&mut self, rig: &mut Rig, most: usize) -> Vec<u8> {
        self.take_in(rig);
        let bytes: Vec<u8> = self.unread.drain(..most.min(self.unread.len())).collect();
        self.own.taken = self.own.taken.wrapping_add(bytes.len() as u32);
        if !bytes.is_empty() && rig.drivers[self.own.guest].outstanding() < 60 {
            rig.send_control(self.own, CREDIT_UPDATE, 0);
        }
        bytes
    }
}

/// An end of a connection.
pub(super) enum Peer {
    Ring(Box<Program>),
    Packets(Kernel),
    /// A program on the host.
    Socket(UnixStream),
}

impl Peer {
    /// Writes as many of the bytes as the end takes now.
    pub(super) fn write(&mut self, rig: &mut Rig, bytes: &[u8]) -> usize {
        match self {
            Self::Ring(program) => program.write(rig, bytes),
            Self::Packets(kernel) => kernel.write(rig, bytes),
            Self::Socket(stream) => match stream.write(bytes) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => panic!("{error}"),
            },
        }
    }

    /// Reads at most `most` bytes of those that have arrived.
    pub(super) fn read(&mut self, rig: &mut Rig, most: usize) -> Vec<u8> {
        match self {
            Self::Ring(program) => {
                program.take_signals(rig);
                program.read(rig, most)
            }
            Self::Packets(kernel) => kernel.read(rig, most),
            Self::Socket(stream) => {
                let mut bytes = vec![0; most];
                match stream.read(&mut bytes) {
                    Ok(got) => bytes.truncate(got),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => bytes.clear(),
                    Err(error) => panic!("{error}"),
                }
                bytes
            }
        }
    }

    pub(super) fn program(&mut self) -> &mut Program {
        match self {
            Self::Ring(program) => program,
            _ => panic!("not attached"),
        }
    }

    pub(super) fn kernel(&mut self) -> &mut Kernel {
        match self {
            Self::Packets(kernel) => kernel,
            _ => panic!("no end that uses packets"),
        }
    }

    /// Attaches an end that uses packets and has sent and received nothing.
    pub(super) fn attach(self, rig: &mut Rig) -> Self {
        let Self::Packets(kernel) = self else { panic!("attached already") };
        let mut program = Program::attach(rig, kernel.own);
        program.kernel = Some(kernel);
        Self::Ring(Box::new(program))
    }

    /// Has the program leave its channel, and go on with packets.
    pub(super) fn leave(self, rig: &mut Rig) -> Self {
        let Self::Ring(mut program) = self else { panic!("not attached") };
        program.close_control(rig);
        Self::Packets(program.kernel.take().expect("the end used packets before"))
    }
}

/// Opens a connection between two guests.
pub(super) fn connect(rig: &mut Rig, from: usize, to: usize, port: u32) -> (Peer, Peer) {
    let (a, b) = rig.ends(from, to, port);
    rig.send_control(a, REQUEST, 0);
    rig.settle();
    let [(request, _)] = &take_for(rig, b)[..] else { panic!("no request") };
    rig.send_control(b, RESPONSE, 0);
    rig.settle();
    let [(response, _)] = &take_for(rig, a)[..] else { panic!("no response") };
    assert_eq!((request.op, response.op), (REQUEST, RESPONSE));
    (Peer::Packets(Kernel::new(a, response)), Peer::Packets(Kernel::new(b, request)))
}

/// Opens a connection of guest 0 to a program on the host, from a port of the guest.
pub(super) fn connect_to_host(rig: &mut Rig, port: u32) -> (Peer, Peer) {
    let own = Own { guest: 0, port, peer: (2, 1234), taken: 0 };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    let (device, request, _) = rig.questions()[0];
    let (ours, program) = UnixStream::pair().unwrap();
    program.set_nonblocking(true).unwrap();
    rig.answer(device, request, Some(ours.into()));
    rig.settle();
    let [(response, _)] = &take_for(rig, own)[..] else { panic!("no response") };
    (Peer::Packets(Kernel::new(own, response)), Peer::Socket(program))
}

/// Bytes of a stream, different for each seed.
pub(super) fn stream(seed: u64, len: usize) -> Vec<u8> {
    let mut chance = Chance(seed);
    (0..len).map(|_| chance.below(256) as u8).collect()
}

/// One direction of an exchange.
struct Transfer {
    bytes: Vec<u8>,
    written: usize,
    read: usize,
}

impl Transfer {
    fn new(seed: u64, len: usize) -> Self {
        Self { bytes: stream(seed, len), written: 0, read: 0 }
    }

    fn write(&mut self, rig: &mut Rig, from: &mut Peer, most: usize) {
        let end = (self.written + most).min(self.bytes.len());
        self.written += from.write(rig, &self.bytes[self.written..end]);
    }

    fn read(&mut self, rig: &mut Rig, to: &mut Peer, most: usize) {
        let got = to.read(rig, most);
        assert!(got == self.bytes[self.read..self.read + got.len()], "other bytes at {}", self.read);
        self.read += got.len();
    }

    fn is_done(&self) -> bool {
        self.read == self.bytes.len()
    }
}

/// An exchange of bytes in both directions, in pieces of random lengths.
pub(super) struct Exchange {
    chance: Chance,
    there: Transfer,
    back: Transfer,
}

impl Exchange {
    pub(super) fn new(seed: u64, len: usize) -> Self {
        Self {
            chance: Chance(seed),
            there: Transfer::new(2 * seed, len),
            back: Transfer::new(2 * seed + 1, len),
        }
    }

    fn most(&mut self) -> usize {
        let wished = [1, 30, 1000, 20_000, 200_000][self.chance.below(5)];
        1 + self.chance.below(wished)
    }

    /// Makes a few random steps. Returns `true` once all bytes have arrived.
    pub(super) fn step(&mut self, rig: &mut Rig, a: &mut Peer, b: &mut Peer) -> bool {
        for _ in 0..8 {
            let most = self.most();
            match self.chance.below(8) {
                0 => self.there.write(rig, a, most),
                1 => self.back.write(rig, b, most),
                2 => self.there.read(rig, b, most),
                3 => self.back.read(rig, a, most),
                4 if self.chance.below(40) == 0 => rig.now += Patrols::PERIOD / 4,
                4 => rig.now += Duration::from_micros(self.chance.below(400) as u64),
                5 => rig.settle(),
                _ => (0..self.chance.below(4)).for_each(|_| _ = rig.step()),
            }
        }
        self.there.is_done() && self.back.is_done()
    }

    /// Runs until all bytes have arrived. No guest is to blame for anything.
    pub(super) fn run(mut self, rig: &mut Rig, a: &mut Peer, b: &mut Peer) {
        let faults = |rig: &mut Rig| -> u64 {
            (0..rig.drivers.len()).map(|guest| rig.count(guest, SocketWord::Malformed)).sum()
        };
        let before = faults(rig);
        for _ in 0..200_000 {
            let is_done = self.step(rig, a, b);
            rig.switch.check_own_words();
            if is_done {
                assert_eq!(faults(rig), before);
                return rig.check();
            }
        }
        let state = [&self.there, &self.back].map(|way| (way.written, way.read, way.bytes.len()));
        panic!("the bytes do not arrive: written, read, all: {state:?}");
    }
}
