//! Random operations of programs in guests, compared with the same operations on Unix sockets:
//! readers must find the same bytes (goal VC-G6). In between the switch is replaced, and guests
//! pause, stop reading, and restart. Programs may have their ends attached to channels.
//!
//! `TAUT_VMCI_OPERATIONS` sets the number of operations, `TAUT_VMCI_SEED` the first seed.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::set_socket_send_buffer_size;
use taut_queue_pair::{End as RingEnd, SERVICE_PORT, Status};
use taut_virtq::Start;
use taut_virtq::socket_header::*;

use super::pairs::{Program, REGION};
use super::rig::*;

const OPERATIONS: u64 = 20_000;
const GUESTS: usize = 3;
const CONNECTIONS: usize = 6;

/// A pseudo-random number generator (SplitMix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A number from 0 to `end - 1`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }
}

/// A program's end of a connection, with the part of a guest's kernel that it needs.
struct End {
    own: Own,
    /// Bytes sent.
    sent: u32,
    /// The peer's credit: size of its buffer, and bytes taken.
    room: (u32, u32),
    unread: VecDeque<u8>,
    received: u32,
    /// The peer has announced that it sends no more.
    ended: bool,
    /// This side knows that the connection is over.
    over: bool,
    shut: bool,
    oracle: Option<UnixStream>,
    /// The end is attached to a channel.
    program: Option<Box<Program>>,
}

impl End {
    fn credit(&self) -> usize {
        self.room.0.saturating_sub(self.sent.wrapping_sub(self.room.1)) as usize
    }
}

struct Pair {
    ends: [End; 2],
    /// An end is, or was, attached to a channel.
    attached: bool,
}

struct Model {
    rig: Rig,
    chance: Chance,
    pairs: Vec<Pair>,
    next_port: u32,
    sent: usize,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let buffer = [60, 1000, 4052, 4096, 30_000][chance.below(5)];
        let mut rig = rig(&[["d"].as_slice(); GUESTS], buffer);
        // One guest has no region.
        (0..GUESTS - 1).for_each(|guest| rig.give_region(guest, REGION));
        Self { rig, chance, pairs: Vec::new(), next_port: 5000, sent: 0 }
    }

    /// Lets the guests' kernels take in what has arrived, until nothing is left to be done.
    fn kernels(&mut self) {
        for _ in 0..10_000 {
            let worked = self.rig.step();
            let mut any = false;
            for guest in 0..GUESTS {
                while let Some((header, bytes)) = self.rig.drivers[guest].inbox.pop_front() {
                    any = true;
                    self.take_in(guest, header, &bytes);
                }
            }
            if !worked && !any {
                return;
            }
        }
        panic!("the switch never comes to rest");
    }

    fn take_in(&mut self, guest: usize, header: SocketHeader, bytes: &[u8]) {
        if header.src_port == SERVICE_PORT {
            return self.take_in_control(guest, header, bytes);
        }
        let of = |end: &End| {
            let own = end.own;
            own.guest == guest
                && (u64::from(own.peer.0), own.peer.1, own.port)
                    == (header.src_cid, header.src_port, header.dst_port)
        };
        let end = self.pairs.iter_mut().flat_map(|pair| &mut pair.ends).find(|end| of(end));
        let Some(end) = end.filter(|end| !end.over) else {
            assert!(header.op == RST || bytes.is_empty() || header.op == RW, "{header:?}");
            return;
        };
        end.room = (header.buf_alloc, header.fwd_cnt);
        let own = end.own;
        match header.op {
            RW => {
                end.received += bytes.len() as u32;
                assert!(end.received.wrapping_sub(own.taken) <= ALLOC, "more than there was room for");
                assert!(!end.ended, "payload behind its end");
                end.unread.extend(bytes);
            }
            SHUTDOWN if header.flags & SHUTDOWN_SEND != 0 => end.ended = true,
            RST => (end.ended, end.over) = (true, true),
            CREDIT_REQUEST => self.rig.send_control(own, CREDIT_UPDATE, 0),
            _ => {}
        }
    }

    /// Takes in signals, of which no program sleeps here, and the end of a control connection.
    fn take_in_control(&mut self, guest: usize, header: SocketHeader, bytes: &[u8]) {
        let ends = self.pairs.iter_mut().flat_map(|pair| &mut pair.ends);
        let programs = ends.filter_map(|end| end.program.as_mut());
        let is_for =
            |program: &Program| (program.control.guest, program.control.port) == (guest, header.dst_port);
        let mut programs = programs.filter(|program| is_for(program));
        let Some(program) = programs.next() else { return };
        program.control.taken += bytes.len() as u32;
        if header.op == CREDIT_REQUEST {
            let control = program.control;
            self.rig.send_control(control, CREDIT_UPDATE, 0);
        }
    }

    /// Attaches an end to a channel of its guest.
    fn attach(&mut self, pair: usize, side: usize) {
        self.settle();
        let end = &self.pairs[pair].ends[side];
        let own = end.own;
        let has_room = self.rig.drivers[own.guest].outstanding() < 50;
        if end.over || end.oracle.is_none() || end.program.is_some() || own.guest == GUESTS - 1 || !has_room {
            return;
        }
        // What was left in a channel before may not have arrived.
        let program = match Program::try_attach(&mut self.rig, own) {
            Ok(program) => program,
            Err(refusal) => return assert_eq!(refusal, Status::AttachedAlready),
        };
        let end = &mut self.pairs[pair].ends[side];
        assert_eq!(program.answer.by_packets, u64::from(end.received));
        end.program = Some(Box::new(program));
        self.pairs[pair].attached = true;
    }

    /// Has a program leave its channel. Whatever it has not read comes by packets.
    fn leave(&mut self, pair: usize, side: usize) {
        let end = &mut self.pairs[pair].ends[side];
        if end.over || self.rig.drivers[end.own.guest].outstanding() > 50 {
            return;
        }
        if let Some(program) = end.program.take() {
            program.close_control(&mut self.rig);
        }
    }

    fn connect(&mut self) {
        let from = self.chance.below(GUESTS);
        let to = (from + 1 + self.chance.below(GUESTS - 1)) % GUESTS;
        self.next_port += 1;
        let (a, mut b) = self.rig.ends(from, to, self.next_port);
        b.port = 80;
        let (one, other) = UnixStream::pair().unwrap();
        let end = |own, oracle: UnixStream| {
            oracle.set_nonblocking(true).unwrap();
            // The socket must take more than any credit allows.
            set_socket_send_buffer_size(&oracle, 4 << 20).unwrap();
            let room = (0, 0);
            End {
                own,
                sent: 0,
                room,
                unread: VecDeque::new(),
                received: 0,
                ended: false,
                over: false,
                shut: false,
                oracle: Some(oracle),
                program: None,
            }
        };
        self.pairs.push(Pair { ends: [end(a, one), end(b, other)], attached: false });
        self.rig.send_control(a, REQUEST, 0);
        self.kernels();
        self.rig.send_control(b, RESPONSE, 0);
        self.kernels();
    }

    fn write(&mut self, pair: usize, side: usize) {
        let wished = [1, 10, 200, 4000, 5000, 65_536][self.chance.below(6)];
        let len = 1 + self.chance.below(wished);
        self.write_at_most(pair, side, len);
    }

    /// Writes many small pieces for a guest that takes nothing, so that the writer's ring fills.
    fn flood(&mut self, pair: usize, side: usize) {
        let stuck = self.pairs[pair].ends[1 - side].own.guest;
        self.rig.drivers[stuck].stuck = true;
        for _ in 0..self.chance.below(200) {
            self.write_at_most(pair, side, 30);
            self.rig.now += std::time::Duration::from_micros(100);
            self.rig.step();
        }
    }

    fn write_at_most(&mut self, pair: usize, side: usize, len: usize) {
        let end = &mut self.pairs[pair].ends[side];
        if end.over || end.shut || self.rig.drivers[end.own.guest].outstanding() > 55 {
            return;
        }
        let room = match &end.program {
            Some(program) => program.ends.producer.room().unwrap() as usize,
            None => end.credit(),
        };
        let len = len.min(room);
        if len == 0 {
            return;
        }
        let bytes = pattern(self.sent, len);
        self.sent += len;
        let own = end.own;
        if let Some(oracle) = &mut end.oracle {
            // A peer that has closed gets nothing from the Unix socket, either.
            match oracle.write_all(&bytes) {
                Ok(()) => {}
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
                }
            }
        }
        if let Some(program) = &mut end.program {
            assert_eq!(program.write(&mut self.rig, &bytes), len);
        } else {
            end.sent = end.sent.wrapping_add(len as u32);
            self.rig.write(own, &bytes);
        }
    }

    /// Reads from a connection and from its Unix socket, after everything has settled: both must
    /// have the same bytes.
    fn read(&mut self, pair: usize, side: usize) {
        let most = [1, 100, 5000, 1 << 20][self.chance.below(4)];
        self.settle();
        if self.pairs[pair].attached {
            return self.read_what_came(pair, side, most);
        }
        let end = &mut self.pairs[pair].ends[side];
        let Some(oracle) = &mut end.oracle else { return };
        let mut expected = vec![0; most.min(end.unread.len() + 1)];
        let mut got = 0;
        let mut ended = false;
        while got < expected.len() {
            match oracle.read(&mut expected[got..]) {
                Ok(0) => ended = true,
                Ok(more) => {
                    got += more;
                    continue;
                }
                Err(error) => ended = error.kind() != ErrorKind::WouldBlock,
            }
            break;
        }
        let bytes: Vec<u8> = end.unread.drain(..end.unread.len().min(most)).collect();
        assert!(bytes == expected[..got], "{} bytes instead of {got}", bytes.len());
        if got < most && got < expected.len() {
            assert_eq!(end.ended, ended, "the end");
        }
        end.own.taken = end.own.taken.wrapping_add(bytes.len() as u32);
        let (own, over) = (end.own, end.over);
        if !over && !bytes.is_empty() {
            self.rig.send_control(own, CREDIT_UPDATE, 0);
        }
    }

    /// Reads from a connection of which an end is attached, and from its Unix socket. Bytes in a
    /// ring of the writer may be missing, until the end of the stream.
    fn read_what_came(&mut self, pair: usize, side: usize, most: usize) {
        let end = &mut self.pairs[pair].ends[side];
        let (own, over) = (end.own, end.over);
        let Some(oracle) = &mut end.oracle else { return };
        if self.rig.drivers[own.guest].outstanding() > 55 {
            return;
        }
        let mut bytes: Vec<u8> = end.unread.drain(..end.unread.len().min(most)).collect();
        let by_packets = bytes.len();
        let mut has_all = end.unread.is_empty() && end.ended && !over;
        if let Some(program) = &mut end.program {
            if end.unread.is_empty() {
                bytes.extend(program.read(&mut self.rig, most - bytes.len()));
            }
            let look = program.ends.consumer.look().unwrap();
            has_all = end.unread.is_empty() && look.bytes == 0 && look.end == RingEnd::Finished;
        }
        let mut expected = vec![0; bytes.len()];
        let found = oracle.read_exact(&mut expected);
        assert!(found.is_ok() && bytes == expected, "{} bytes: {found:?}", bytes.len());
        if has_all {
            let rest = oracle.read(&mut [0]);
            let is_end = match &rest {
                Ok(more) => *more == 0,
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            };
            assert!(is_end, "the stream has ended, and the Unix socket has {rest:?}");
        }
        end.own.taken = end.own.taken.wrapping_add(by_packets as u32);
        let own = end.own;
        if !over && by_packets > 0 {
            self.rig.send_control(own, CREDIT_UPDATE, 0);
        }
    }

    /// Lets all guests take what there is, until nothing is in flight.
    fn settle(&mut self) {
        self.rig.drivers.iter_mut().for_each(|driver| driver.stuck = false);
        for _ in 0..3 {
            self.rig.now += std::time::Duration::from_millis(2);
            self.kernels();
        }
    }

    fn shut(&mut self, pair: usize, side: usize) {
        let end = &mut self.pairs[pair].ends[side];
        if end.over || std::mem::replace(&mut end.shut, true) {
            return;
        }
        if let (Some(program), true) = (&mut end.program, self.chance.below(2) == 0) {
            program.ends.producer.finish(RingEnd::Finished);
            if let Some(oracle) = &end.oracle {
                let _ = oracle.shutdown(Shutdown::Write);
            }
            return;
        }
        let own = end.own;
        if let Some(oracle) = &end.oracle {
            let _ = oracle.shutdown(Shutdown::Write);
        }
        self.rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
    }

    /// Ends a program: what was sent arrives, then the connection is over.
    fn close(&mut self, pair: usize, side: usize) {
        self.settle();
        let end = &mut self.pairs[pair].ends[side];
        end.oracle = None;
        end.unread.clear();
        let own = end.own;
        let was_over = std::mem::replace(&mut end.over, true);
        if let Some(program) = end.program.take() {
            // In either order, as the descriptors of a program that ends are closed.
            let first = self.chance.below(2) == 0;
            if !was_over && first {
                program.close(&mut self.rig);
            }
            program.close_control(&mut self.rig);
            if !was_over && !first {
                program.close(&mut self.rig);
            }
        } else if !was_over {
            self.rig.send_control(own, RST, 0);
        }
    }

    /// Restarts a guest: its programs are gone.
    fn restart(&mut self, guest: usize) {
        self.settle();
        self.rig.restart(guest);
        for end in self.pairs.iter_mut().flat_map(|pair| &mut pair.ends) {
            if end.own.guest == guest {
                end.oracle = None;
                end.unread.clear();
                end.over = true;
                end.program = None;
            }
        }
    }

    fn operate(&mut self) {
        self.pairs.retain(|pair| pair.ends.iter().any(|end| end.oracle.is_some()));
        if self.pairs.len() < CONNECTIONS {
            self.connect();
        }
        let (pair, side) = (self.chance.below(self.pairs.len()), self.chance.below(2));
        match self.chance.below(1000) {
            0..450 => self.write(pair, side),
            450..800 => self.read(pair, side),
            800..900 => (0..self.chance.below(5)).for_each(|_| {
                self.rig.now += std::time::Duration::from_micros(700);
                self.rig.step();
            }),
            900..920 => self.shut(pair, side),
            920..935 => self.close(pair, side),
            935..940 => self.flood(pair, side),
            940..950 => self.attach(pair, side),
            950..955 => self.leave(pair, side),
            955..960 => {
                let guest = self.chance.below(GUESTS);
                self.rig.drivers[guest].stuck = true;
            }
            960..975 => {
                let guest = self.chance.below(GUESTS);
                self.rig.pause(guest);
            }
            975..990 => {
                let streams = self.rig.switch.stop();
                self.rig.take_over(streams);
                // Rings start in any order, and the switch serves meanwhile.
                let mut rings: Vec<_> = (0..GUESTS).flat_map(|guest| [(guest, 0), (guest, 1)]).collect();
                while !rings.is_empty() {
                    let (guest, queue) = rings.swap_remove(self.chance.below(rings.len()));
                    self.rig.start(guest, queue, Start::Recover).unwrap();
                    self.rig.step();
                }
            }
            990..998 => {
                let guest = self.chance.below(GUESTS);
                self.rig.replace_switch_while_paused(guest);
            }
            _ => {
                let guest = self.chance.below(GUESTS);
                self.restart(guest);
            }
        }
        // Packets that arrived in single steps are not lost.
        for guest in 0..GUESTS {
            while let Some((header, bytes)) = self.rig.drivers[guest].inbox.pop_front() {
                self.take_in(guest, header, &bytes);
            }
        }
    }
}

#[test]
fn programs_find_what_they_find_with_unix_sockets() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let operations = number("TAUT_VMCI_OPERATIONS", OPERATIONS);
    let first = number("TAUT_VMCI_SEED", 1);
    let (mut done, mut bytes, mut seed) = (0, 0, first);
    while done < operations {
        let mut model = Model::new(seed);
        println!("seed {seed}");
        for _ in 0..2000.min(operations - done) {
            model.operate();
            done += 1;
        }
        bytes += model.sent;
        seed += 1;
    }
    println!("VMCI-MODEL operations={done} bytes={bytes} seeds={}", seed - first);
}
