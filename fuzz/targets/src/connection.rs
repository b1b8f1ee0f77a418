//! Connections of vsock devices. Three guests send any packets, write into their rings, come, go
//! and restart. They attach ends of connections to channels of queue pairs and write anything into
//! these. The rules change, and other fabrics take over from any content of the connection table.
//!
//! Input: 1 byte for the first rules, then steps of 8 bytes: kind, guest, and six bytes that depend
//! on the kind.

use std::collections::HashMap;
use std::time::Duration;

use taut_api::fabric::PortId;
use taut_api::fabric::config::{FrontEndRules, SocketConfig, WorkerMode};
use taut_api::vmci::Cid;
use taut_fabric::vsock::rig::{Rig, Rings, device};
use taut_queue_pair::layout::LEAST_REGION;
use taut_queue_pair::memory::Copying;
use taut_queue_pair::{AttachRequest, Channel, Direction, Producer, SERVICE_PORT, Word};
use taut_virtq::socket_header::{CREDIT_UPDATE, REQUEST, RESPONSE, RST, RW, SHUTDOWN};
use taut_virtq::{SocketHeader as Header, Start};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "connection", run, budget: Budget::of(1000, 64) };

const STEPS: usize = 96;
const GUESTS: usize = 3;
const RINGS: Rings = Rings { entries: 16, buffer: 300, payload: 1000, ram: 128 << 10 };

/// A guest's end of a connection: index of the guest, its port, context ID and port of the peer.
type Key = (usize, u32, u64, u32);

struct World {
    rig: Rig,
    devices: Vec<SocketConfig>,
    /// Positions at which rings have stopped.
    stopped: [[Option<u16>; 2]; GUESTS],
    questions: Vec<(PortId, u32, u32)>,
    /// Credit that an end has announced: buffer size and bytes taken.
    told: HashMap<Key, Vec<(u32, u32)>>,
    /// Number of payload bytes that an end got since its connection began.
    came: HashMap<Key, u32>,
    /// The last packet that a guest got.
    last: [Option<Header>; GUESTS],
    /// True if the table was overwritten. The state of connections is then unknown.
    tampered: bool,
    /// Guests that have a region of queue pairs.
    has_region: [bool; GUESTS],
    /// Guests that have written into words of their channels.
    has_poked_words: [bool; GUESTS],
}

/// Tells whether the devices with these context IDs may talk to each other.
fn may_talk(devices: &[SocketConfig], a: u64, b: u64) -> bool {
    let of = |cid| devices.iter().find(|device| u64::from(device.cid.0) == cid);
    let (Some(a), Some(b)) = (of(a), of(b)) else { return false };
    a.cid != b.cid
        && (a.unrestricted && b.unrestricted || a.domains.iter().any(|name| b.domains.contains(name)))
}

/// Rules: the guests of each domain, the unrestricted guests, and their limits for connections.
fn devices(rules: u8, limits: u8) -> Vec<SocketConfig> {
    let domains: [&[&[&str]]; 4] = [
        &[&["a"], &["a"], &["a"]],
        &[&["a"], &["a", "b"], &["b"]],
        &[&["a"], &["b"], &["a"]],
        &[&[], &[], &["a"]],
    ];
    let domains = domains[usize::from(rules & 3)];
    let one = |at: usize| SocketConfig {
        unrestricted: rules >> (2 + at) & 1 != 0,
        connections: 1 + u32::from(limits & 7),
        half_open: 1 + u32::from((limits >> 3) % 4),
        front_end: FrontEndRules::default(),
        ..device(3 + at as u32, domains[at])
    };
    (0..GUESTS).map(one).collect()
}

impl World {
    fn new(rules: u8) -> Self {
        let devices = devices(rules, 0xff);
        let mode =
            if rules & 0x80 == 0 { WorkerMode::Interrupt } else { WorkerMode::Adaptive { poll_us: 50 } };
        let (told, came) = (HashMap::new(), HashMap::new());
        let rig = Rig::new(devices.clone(), RINGS, mode);
        let (stopped, questions, last) = (Default::default(), Vec::new(), Default::default());
        let (has_region, has_poked_words) = ([false; GUESTS], [false; GUESTS]);
        let tampered = false;
        Self { rig, devices, stopped, questions, told, came, last, tampered, has_region, has_poked_words }
    }

    /// A packet that a guest could send, in most cases.
    fn header(&self, guest: usize, [what, ports, credit, a, b, _]: [u8; 6]) -> Header {
        let own = u64::from(self.rig.drivers[guest].cid);
        let others = [3, 4, 5, 2, 3, 4, 5, 2, 0, 1, own, 6, 1 << 32 | 4, u64::MAX];
        let port = |bits: u8| u32::from(bits & 3) + if bits & 4 == 0 { 80 } else { 1000 };
        let header = Header {
            src_cid: if what & 0xf0 == 0xf0 { others[usize::from(ports) % 4] } else { own },
            dst_cid: others[usize::from(credit & 15) % others.len()],
            src_port: port(ports),
            dst_port: port(ports >> 3),
            len: 0,
            kind: if what & 0x70 == 0x70 { u16::from(ports >> 6) } else { 1 + u16::from(ports >> 6 & 1) },
            op: u16::from(what & 15),
            flags: u32::from(a & 7),
            ..Header::default()
        };
        let key = (guest, header.src_port, header.dst_cid, header.dst_port);
        self.with_credit(key, header, credit >> 4, u16::from_le_bytes([a, b]))
    }

    /// Credit that a guest announces, true or false.
    fn with_credit(&self, key: Key, header: Header, how: u8, value: u16) -> Header {
        let came = self.came.get(&key).copied().unwrap_or(0);
        let (buf_alloc, fwd_cnt) = match how {
            0..=7 => (64 << 10, came),
            8 | 9 => (u32::from(value), came),
            10 => (u32::from(value), came.wrapping_sub(u32::from(value) / 2)),
            11 => (u32::MAX, u32::from(value)),
            12 => (u32::from(value), came.wrapping_add(u32::from(value))),
            13 => (0, came),
            14 => (u32::MAX, u32::MAX),
            _ => (u32::from(value), u32::from(value)),
        };
        Header { buf_alloc, fwd_cnt, ..header }
    }

    fn send(&mut self, guest: usize, header: Header, len: usize) {
        // The bytes show which guest they belong to.
        let bytes = [self.rig.drivers[guest].cid as u8; 1000];
        if self.rig.drivers[guest].send(header, &bytes[..len % 1001]) {
            let key = (guest, header.src_port, header.dst_cid, header.dst_port);
            self.told.entry(key).or_default().push((header.buf_alloc, header.fwd_cnt));
        }
    }

    /// The guest sends something to the peer of the last packet that it got.
    fn answer(&mut self, guest: usize, op: u16, [flags, how, a, b]: [u8; 4]) {
        let Some(last) = self.last[guest] else { return };
        let key = (guest, last.dst_port, last.src_cid, last.src_port);
        let header = Header {
            src_cid: last.dst_cid,
            dst_cid: last.src_cid,
            src_port: last.dst_port,
            dst_port: last.src_port,
            op,
            flags: flags.into(),
            ..last
        };
        let value = u16::from_le_bytes([a, b]);
        let header = self.with_credit(key, header, how, value);
        self.send(guest, header, if op == RW { value.into() } else { 0 });
    }

    /// A guest asks the fabric to attach the end of a connection: to the peer of the last packet
    /// that it got, or any.
    fn attach(&mut self, guest: usize, [how, ports, cid, control, ..]: [u8; 6]) {
        if !std::mem::replace(&mut self.has_region[guest], true) {
            self.rig.give_region(guest, LEAST_REGION);
        }
        let port = |bits: u8| u32::from(bits & 3) + if bits & 4 == 0 { 80 } else { 1000 };
        let request = match self.last[guest] {
            Some(Header { dst_port, src_cid, src_port, .. }) if how & 1 == 0 => {
                AttachRequest { own_port: dst_port, peer_cid: src_cid as u32, peer_port: src_port }
            }
            _ => AttachRequest {
                own_port: port(ports),
                peer_cid: u32::from(cid % 8),
                peer_port: port(ports >> 3),
            },
        };
        let to_service = Header {
            src_cid: u64::from(self.rig.drivers[guest].cid),
            dst_cid: u64::from(Cid::HOST.0),
            src_port: 5000 + u32::from(control & 7),
            dst_port: SERVICE_PORT,
            len: 0,
            kind: 1,
            flags: 0,
            buf_alloc: 64 << 10,
            ..Header::default()
        };
        let mut bytes = request.to_bytes();
        if how & 0xf0 == 0xf0 {
            bytes[usize::from(ports & 15)] ^= cid;
        }
        let driver = &mut self.rig.drivers[guest];
        driver.send(Header { op: REQUEST, ..to_service }, &[]);
        driver.send(Header { op: RW, ..to_service }, &bytes[..16 - usize::from(how >> 1 & 1)]);
        // The rest, and bells.
        driver.send(Header { op: RW, ..to_service }, &bytes[15..]);
        if how & 0x0c == 0x0c {
            driver.send(Header { op: SHUTDOWN, flags: u32::from(how >> 4 & 3), ..to_service }, &[]);
        }
        let key = (guest, to_service.src_port, to_service.dst_cid, SERVICE_PORT);
        self.told.entry(key).or_default().push((64 << 10, 0));
    }

    /// A channel of a guest, if it has a region.
    fn channel(&self, guest: usize, which: u8) -> Option<Channel> {
        if !self.has_region[guest] {
            return None;
        }
        let region = self.rig.region(guest);
        region.channel(u32::from(which) % region.geometry().channels())
    }

    /// A guest writes anything into a word of a channel.
    fn poke_channel(&mut self, guest: usize, [which, word, how, ..]: [u8; 6], value: u16) {
        let Some(channel) = self.channel(guest, which % 6) else { return };
        let word = Word::ALL[usize::from(word) % Word::ALL.len()];
        let near = channel.load(Word::ALL[usize::from(how >> 4) % Word::ALL.len()]);
        let value = u32::from(value);
        channel.store(
            word,
            match how & 7 {
                0 | 1 => near.wrapping_add(value),
                2 => near.wrapping_sub(value),
                3 => value & 3,
                4 => u32::MAX - value,
                _ => near.wrapping_add(value & 1),
            },
        );
        // Its position may count bytes that it has never written.
        self.has_poked_words[guest] = true;
    }

    /// A guest writes bytes into the ring of a channel, and rings a bell.
    fn write_channel(&mut self, guest: usize, [which, control, ..]: [u8; 6], value: u16) {
        let Some(channel) = self.channel(guest, which % 6) else { return };
        if let Ok(mut out) = Producer::resume(channel, Direction::Out, Copying::Library) {
            let bytes = vec![self.rig.drivers[guest].cid as u8; value.into()];
            // The words may have become impossible.
            let _ = out.write(&bytes);
            out.publish();
        }
        let bell = Header {
            src_cid: u64::from(self.rig.drivers[guest].cid),
            dst_cid: u64::from(Cid::HOST.0),
            src_port: 5000 + u32::from(control & 7),
            dst_port: SERVICE_PORT,
            kind: 1,
            op: RW,
            buf_alloc: 64 << 10,
            ..Header::default()
        };
        self.rig.drivers[guest].send(bell, &[0]);
    }

    /// Receives all packets that have arrived.
    fn hear(&mut self) {
        for guest in 0..GUESTS {
            while let Some((header, bytes)) = self.rig.drivers[guest].inbox.pop_front() {
                self.last[guest] = Some(header);
                if !self.rig.drivers[guest].poked {
                    self.heard(guest, header, &bytes);
                }
            }
        }
    }

    fn heard(&mut self, guest: usize, header: Header, bytes: &[u8]) {
        let own = u64::from(self.rig.drivers[guest].cid);
        assert_eq!(header.dst_cid, own, "{header:?} came to the guest {own}");
        assert!(header.op == RW || bytes.is_empty());
        let host = u64::from(Cid::HOST.0);
        let allowed = header.src_cid == host || may_talk(&self.devices, header.src_cid, own);
        assert!(allowed || header.op == RST, "{own} must not hear {header:?}");
        let senders = self.rig.drivers.iter().zip(self.has_poked_words);
        let mut senders = senders.filter(|(driver, _)| u64::from(driver.cid) == header.src_cid);
        if senders.next().is_some_and(|(sender, has_poked_words)| !sender.poked && !has_poked_words) {
            assert!(bytes.iter().all(|&byte| u64::from(byte) == header.src_cid), "bytes of somebody else's");
        }
        let key = (guest, header.dst_port, header.src_cid, header.src_port);
        if matches!(header.op, REQUEST | RESPONSE) {
            self.came.insert(key, 0);
        }
        let came = self.came.entry(key).or_default();
        *came = came.wrapping_add(bytes.len() as u32);
        let told = self.told.get(&key).into_iter().flatten();
        let has_room = told.into_iter().any(|&(room, taken)| came.wrapping_sub(taken) <= room);
        assert!(bytes.is_empty() || has_room || self.tampered, "{key:?} got {came} bytes");
    }

    fn stop(&mut self, guest: usize, queue: usize) {
        if let Some(position) = self.rig.stop(guest, queue) {
            self.stopped[guest][queue] = Some(position);
        }
    }

    /// Starts a ring: at the position where it stopped, at an unknown position, or anywhere.
    fn start(&mut self, guest: usize, queue: usize, how: u8, value: u16) {
        if self.rig.runs(guest, queue) && how & 1 == 0 {
            return;
        }
        self.stop(guest, queue);
        let stopped = self.stopped[guest][queue].take();
        let start = match how {
            0..128 => Start::At(stopped.unwrap_or(0)),
            128..224 => Start::Recover,
            _ => Start::At(value),
        };
        let smaller = how & 7 == 7;
        let driver = &mut self.rig.drivers[guest];
        driver.poked |=
            smaller || start != Start::Recover && stopped.is_none_or(|stopped| start != Start::At(stopped));
        driver.entries = if smaller { 1 << (value % 5) } else { RINGS.entries };
        // The start may fail, because guests can break their rings.
        let _ = self.rig.start(guest, queue, start);
    }

    fn restart(&mut self, guest: usize) {
        self.rig.restart(guest);
        (self.last[guest], self.stopped[guest]) = (None, [None; 2]);
        self.told.retain(|key, _| key.0 != guest);
        self.came.retain(|key, _| key.0 != guest);
    }

    /// Another fabric takes over.
    fn succeed(&mut self, orderly: bool, words: &[u8]) {
        let running: Vec<_> = (0..GUESTS)
            .flat_map(|guest| [(guest, 0), (guest, 1)])
            .filter(|&(guest, queue)| self.rig.runs(guest, queue))
            .collect();
        let streams = if orderly { self.rig.stop_switch() } else { Vec::new() };
        for word in words.chunks_exact(3) {
            self.tampered = true;
            let value = u64::from(word[2]) << (word[1] & 0x38);
            self.rig.write_connection(usize::from(word[0] % 8), usize::from(word[1] & 7), value);
        }
        self.rig.take_over(streams);
        for (guest, queue) in running {
            let _ = self.rig.start(guest, queue, Start::Recover);
        }
        self.questions.clear();
    }

    fn configure(&mut self, rules: u8, limits: u8, absent: u8) {
        // Packets that have arrived are handled under the old rules.
        for driver in &mut self.rig.drivers {
            let stuck = std::mem::take(&mut driver.stuck);
            driver.receive();
            driver.stuck = stuck;
        }
        self.hear();
        let wanted = |device: &SocketConfig| absent >> (device.cid.0 - 3) & 1 == 0 || absent & 0x80 == 0;
        self.devices = devices(rules, limits).into_iter().filter(wanted).collect();
        assert_eq!(self.rig.configure(self.devices.clone()), 0);
    }

    fn step(&mut self, what: u8, who: u8, rest: [u8; 6]) {
        let guest = usize::from(who) % GUESTS;
        let [a, b, c, d, ..] = rest;
        let value = u16::from_le_bytes([rest[4], rest[5]]);
        match what % 32 {
            0..=7 => {
                let header = self.header(guest, rest);
                let len = if header.op == RW { usize::from(value) } else { usize::from(value % 2) };
                self.send(guest, header, len);
            }
            8 => self.answer(guest, RESPONSE, [a, b, c, d]),
            9..=11 => self.answer(guest, RW, [a, b, c, d]),
            12 => self.answer(guest, CREDIT_UPDATE, [a, b, c, d]),
            13 => self.answer(guest, SHUTDOWN, [a, b, c, d]),
            14 => self.answer(guest, (a & 7).into(), [b, c, d, rest[4]]),
            15 => self.rig.drivers[guest].stuck ^= true,
            16 => self.stop(guest, usize::from(a & 1)),
            17 => self.start(guest, usize::from(a & 1), b, value),
            18 => self.restart(guest),
            19 => self.succeed(a & 1 == 0, if b == 0 { &[] } else { &rest[..] }),
            20 => self.configure(a, b, c),
            21 => self.rig.now += Duration::from_millis(if a & 1 == 0 { 1 } else { 11_000 }),
            22 => self.rig.drivers[guest].poke(1, usize::from(a % 3), u16::from_le_bytes([b, c & 1]), value),
            23 => self.rig.drivers[guest].poke(0, usize::from(a % 3), u16::from_le_bytes([b, c & 1]), value),
            24 => {
                let driver = &mut self.rig.drivers[guest];
                driver.poked = true;
                driver.forge(a.into(), |was| Header {
                    len: u32::from(value),
                    op: if b & 1 == 0 { was.op } else { c.into() },
                    src_port: if b & 2 == 0 { was.src_port } else { 80 + u32::from(d & 7) },
                    ..was
                });
            }
            25 => {
                self.rig.leave(guest);
                self.last[guest] = None;
            }
            26 => self.reply(usize::from(a), b),
            27 => self.attach(guest, rest),
            28 => self.poke_channel(guest, rest, value),
            29 => self.write_channel(guest, rest, value),
            _ => (0..what >> 5).for_each(|_| _ = self.rig.step()),
        }
        self.rig.step();
        self.rig.check();
        self.questions.extend(self.rig.questions());
        self.hear();
    }

    /// `tautd` answers one of the fabric's requests. The sockets in its answers have no peer.
    fn reply(&mut self, which: usize, how: u8) {
        if self.questions.is_empty() {
            return;
        }
        let (port, request, _) = self.questions.remove(which % self.questions.len());
        let pair = || std::os::unix::net::UnixStream::pair().expect("a pair of sockets").0;
        self.rig.answer(port, request, (how & 1 == 0).then(|| pair().into()));
    }

    /// All guests behave correctly for a while. Afterwards nothing may be left.
    fn end(&mut self) {
        let present: Vec<_> = (0..GUESTS).filter(|&guest| self.rig.is_there(guest)).collect();
        for driver in &mut self.rig.drivers {
            driver.stuck = false;
        }
        for _ in 0..3 {
            self.rig.settle();
            self.hear();
            // Held packets, and connections that nobody accepts.
            self.rig.now += Duration::from_secs(11);
        }
        self.rig.settle();
        self.hear();
        self.rig.check();
        self.rig.check_rest();
        for &guest in &present {
            // Only the front end tells a guest that never sent anything from the one before. A
            // table that was overwritten may have connections of such a guest.
            if self.tampered {
                self.rig.leave(guest);
            }
            self.restart(guest);
        }
        self.rig.settle();
        self.questions.extend(self.rig.questions());
        while !self.questions.is_empty() {
            self.reply(0, 1);
        }
        self.rig.settle();
        // A ring that was never used does not distinguish the restarted guest from the one before.
        self.rig.now += Duration::from_secs(11);
        self.rig.settle();
        self.rig.check_nothing_left();
        assert!(present.into_iter().all(|guest| self.rig.drivers[guest].outstanding() == 0));
    }
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut world = World::new(input.u8());
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let [what, who] = input.array();
        world.step(what, who, input.array());
    }
    world.end();
}
