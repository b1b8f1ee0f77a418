//! The host's side of vsock devices. Clients send `CONNECT <port>` or something else, in any
//! pieces, and leave at any time. A guest accepts or refuses, and `tautd` connects the guest to
//! programs. The target compares received bytes with sent bytes.
//!
//! Input: steps of 1 byte for the kind and 1 for the participant. Steps that send have a length and
//! as many bytes.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use taut_api::fabric::PortId;
use taut_api::fabric::config::WorkerMode;
use taut_fabric::vsock::rig::{Rig, Rings, device};
use taut_virtq::Start;
use taut_virtq::socket_header::{REQUEST, RESPONSE, RST, RW, SHUTDOWN, STREAM, SocketHeader};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "handshake", run, budget: Budget::of(1000, 64) };

const STEPS: usize = 96;
const CLIENTS: usize = 8;
const RINGS: Rings = Rings { entries: 16, buffer: 100, payload: 100, ram: 64 << 10 };
/// Most bytes of a line.
const LINE: usize = 32;
const CID: u32 = 3;
const HOST: u64 = 2;

const WORDS: [&[u8]; 16] = [
    b"CONNECT 80\n",
    b"CONNECT 81\nbehind it",
    b"CONNECT ",
    b"80",
    b"\n",
    b"\r\n",
    b" ",
    b"connect 80\n",
    b"4294967295",
    b"4294967296",
    b"-",
    b"+",
    b"\0",
    b"0000000000000000000000000000000",
    b"\xff",
    b"CONNECT 1\r\nCONNECT 2\n",
];

thread_local! {
    static LISTENER: RefCell<(UnixListener, SocketAddr)> = RefCell::new(listener());
}

fn listener() -> (UnixListener, SocketAddr) {
    let name = format!("taut-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let address = SocketAddr::from_abstract_name(name).expect("an address");
    let listener = UnixListener::bind_addr(&address).expect("nobody else has it");
    listener.set_nonblocking(true).expect("a socket");
    (listener, address)
}

/// A program on the host.
struct Program {
    stream: Option<UnixStream>,
    sent: Vec<u8>,
    got: Vec<u8>,
    /// The guest's request: from its port to this port of the host.
    asked: Option<(u32, u32)>,
}

/// A connection as seen by the guest.
struct End {
    host_port: u32,
    own_port: u32,
    accepted: bool,
    sent: Vec<u8>,
    got: Vec<u8>,
}

impl Program {
    fn new(stream: UnixStream, asked: Option<(u32, u32)>) -> Self {
        stream.set_nonblocking(true).expect("a socket");
        Self { stream: Some(stream), sent: Vec::new(), got: Vec::new(), asked }
    }

    /// The port that a client requested, and the bytes that it sent after its request.
    fn wants(&self) -> Option<(u32, &[u8])> {
        let end = self.sent.iter().take(LINE).position(|&byte| byte == b'\n')?;
        let line = std::str::from_utf8(&self.sent[..end]).ok()?.strip_prefix("CONNECT ")?.trim();
        let digits = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        Some((line.parse().ok().filter(|_| digits)?, &self.sent[end + 1..]))
    }

    /// Tells whether it may be the host's end of this connection.
    fn has_sent(&self, end: &End) -> bool {
        match self.asked {
            Some(ports) => ports == (end.own_port, end.host_port) && self.sent.starts_with(&end.got),
            None => self
                .wants()
                .is_some_and(|(port, behind)| port == end.own_port && behind.starts_with(&end.got)),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let Some(stream) = &mut self.stream else { return };
        // A socket that the fabric has closed takes no bytes.
        if let Ok(written) = stream.write(bytes) {
            self.sent.extend(&bytes[..written]);
        }
    }

    fn read(&mut self, ends: &[End]) {
        let Some(stream) = &mut self.stream else { return };
        let mut bytes = [0; 1000];
        match stream.read(&mut bytes) {
            Ok(read) => self.got.extend(&bytes[..read]),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset)),
        }
        // Connections that a reset ended need not have delivered anything.
        let sent =
            |end: &End, got: &[u8]| got.is_empty() || end.sent.windows(got.len()).any(|some| some == got);
        if let Some(ports) = self.asked {
            let mut its = ends.iter().filter(|end| (end.own_port, end.host_port) == ports);
            assert!(self.got.is_empty() || its.any(|end| sent(end, &self.got)), "{:?}", self.got);
        } else if !self.got.is_empty() {
            let line = self.got.iter().position(|&byte| byte == b'\n').expect("a line comes at once");
            let text = std::str::from_utf8(&self.got[..line]).expect("text");
            let port = text.strip_prefix("OK ").and_then(|port| port.parse().ok()).expect("a port");
            let (wanted, _) = self.wants().expect("who is answered has asked");
            let mut its =
                ends.iter().filter(|end| (end.own_port, end.host_port) == (wanted, port) && end.accepted);
            assert!(its.any(|end| sent(end, &self.got[line + 1..])), "{:?}", self.got);
        }
    }
}

/// The newest connection between two ports. After a handover ports may be used again.
fn newest(ends: &mut [End], host_port: u32, own_port: u32) -> Option<&mut End> {
    ends.iter_mut().rev().find(|end| (end.host_port, end.own_port) == (host_port, own_port))
}

struct World<'l> {
    rig: Rig,
    listener: &'l UnixListener,
    address: &'l SocketAddr,
    programs: Vec<Program>,
    ends: Vec<End>,
    questions: Vec<(PortId, u32, u32)>,
    stopped: [Option<u16>; 2],
    room: u32,
}

impl World<'_> {
    /// The guest sends a packet of one of its connections.
    fn say(&mut self, which: usize, op: u16, flags: u8, bytes: &[u8]) {
        if self.ends.is_empty() {
            return;
        }
        let End { host_port, own_port, .. } = self.ends[which % self.ends.len()];
        let Some(end) = newest(&mut self.ends, host_port, own_port) else { return };
        let header = SocketHeader {
            src_cid: CID.into(),
            dst_cid: HOST,
            src_port: end.own_port,
            dst_port: end.host_port,
            kind: STREAM,
            op,
            flags: flags.into(),
            buf_alloc: self.room,
            fwd_cnt: end.got.len() as u32,
            ..SocketHeader::default()
        };
        if self.rig.drivers[0].send(header, bytes) {
            end.sent.extend(bytes);
            end.accepted |= op == RESPONSE;
        }
    }

    /// The guest connects to the host.
    fn ask(&mut self, host_port: u32) {
        // Each request has a port of its own, which identifies it, and no port is used twice, so
        // that late packets are unambiguous.
        let own_port = 1000 + host_port;
        if !self.ends.iter().any(|end| (end.own_port, end.host_port) == (own_port, host_port)) {
            self.ends.push(End { host_port, own_port, accepted: false, sent: Vec::new(), got: Vec::new() });
            self.say(self.ends.len() - 1, REQUEST, 0, &[]);
        }
    }

    /// `tautd` answers a request: the program accepts, has closed already, or does not exist.
    fn answer(&mut self, how: u8) {
        self.questions.extend(self.rig.questions());
        let Some((port, request, to)) = self.questions.pop() else { return };
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        if how & 3 != 0 {
            self.programs.push(Program::new(theirs, Some((1000 + to, to))));
        }
        self.rig.answer(port, request, (how & 7 != 7).then(|| ours.into()));
    }

    fn hear(&mut self) {
        while let Some((header, bytes)) = self.rig.drivers[0].inbox.pop_front() {
            assert_eq!((header.src_cid, header.dst_cid, header.kind), (HOST, CID.into(), STREAM));
            let (host_port, own_port) = (header.src_port, header.dst_port);
            if header.op == REQUEST {
                let asked = self
                    .programs
                    .iter()
                    .any(|program| program.wants().is_some_and(|(port, _)| port == own_port));
                assert!(asked, "nobody has asked for {own_port}");
                // A packet of a later connection with the same port may arrive before this one.
                let before = newest(&mut self.ends, host_port, own_port);
                let (sent, accepted) = before.map(|end| (end.sent.clone(), end.accepted)).unwrap_or_default();
                self.ends.push(End { host_port, own_port, accepted, sent, got: Vec::new() });
            }
            let Some(end) = newest(&mut self.ends, host_port, own_port) else {
                // A fabric crashed before it reported the request.
                assert_eq!(header.op, RST, "{header:?} is about nothing");
                continue;
            };
            assert_eq!(header.op == RW, !bytes.is_empty());
            end.got.extend(&bytes);
            assert!(
                bytes.is_empty() || self.programs.iter().any(|program| program.has_sent(end)),
                "{:?}",
                end.got
            );
        }
    }

    fn program(&mut self, who: usize) -> Option<&mut Program> {
        let count = self.programs.len();
        (count > 0).then(|| &mut self.programs[who % count])
    }

    fn step(&mut self, what: u8, who: usize, input: &mut Input<'_>) {
        let mut taken = || {
            let len = input.u8() % 48;
            input.slice(len.into())
        };
        match what % 20 {
            0 | 1 if self.programs.len() < CLIENTS => {
                let stream = UnixStream::connect_addr(self.address).expect("a listener");
                self.programs.push(Program::new(stream, None));
            }
            2 | 3 => {
                let bytes = taken();
                if let Some(program) = self.program(who) {
                    program.write(bytes);
                }
            }
            4..=6 => {
                let word = WORDS[usize::from(what >> 4)];
                if let Some(program) = self.program(who) {
                    program.write(word);
                }
            }
            7 => {
                // The fabric may have closed it.
                if let Some(stream) = self.program(who).and_then(|program| program.stream.as_ref()) {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            8 => {
                if let Some(program) = self.program(who) {
                    program.stream = None;
                }
            }
            9 => (0..self.programs.len()).for_each(|at| self.programs[at].read(&self.ends)),
            10 => self.say(who, RESPONSE, 0, &[]),
            11 => {
                let bytes = taken();
                self.say(who, RW, 0, bytes);
            }
            12 => self.say(who, SHUTDOWN, what >> 5, &[]),
            13 => self.say(who, if what & 0x80 == 0 { RST } else { (what >> 5).into() }, 0, &[]),
            14 => self.ask(u32::from(what >> 4)),
            15 => self.answer(what >> 4),
            16 => self.rig.drivers[0].stuck ^= true,
            17 => self.pause(usize::from(what >> 7)),
            18 => self.succeed(what >> 7 == 0),
            _ => {
                self.room = [1 << 16, 5, 0, 1 << 20][who % 4];
                self.rig.now += Duration::from_secs(if what >> 5 == 7 { 11 } else { 0 });
            }
        }
    }

    /// A ring stops or continues.
    fn pause(&mut self, queue: usize) {
        match self.stopped[queue].take() {
            Some(position) => self.rig.start(0, queue, Start::At(position)).expect("it goes on"),
            None => self.stopped[queue] = self.rig.stop(0, queue),
        }
    }

    /// Another fabric takes over, after an orderly stop or after a crash.
    fn succeed(&mut self, orderly: bool) {
        let streams = if orderly { self.rig.stop_switch() } else { Vec::new() };
        self.rig.take_over(streams);
        self.rig.listen(0, self.listener.try_clone().expect("a descriptor").into());
        for queue in [0, 1] {
            if self.stopped[queue].is_none() {
                self.rig.start(0, queue, Start::Recover).expect("it goes on");
            }
        }
        self.questions.clear();
    }

    fn run(&mut self, mut input: Input<'_>) {
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            let [what, who] = input.array();
            self.step(what, who.into(), &mut input);
            self.rig.step();
            self.rig.check();
            self.hear();
        }
        self.rig.drivers[0].stuck = false;
        for queue in [0, 1] {
            if self.stopped[queue].is_some() {
                self.pause(queue);
            }
        }
        self.settle();
        // Complete requests were handled, and closed clients were removed.
        self.programs.iter_mut().for_each(|program| program.stream = None);
        self.settle();
        self.rig.check_rest();
        self.rig.restart(0);
        self.questions.extend(self.rig.questions());
        while !self.questions.is_empty() {
            self.answer(7);
        }
        self.rig.settle();
        // A ring that was never used does not distinguish the restarted guest from the one before.
        self.rig.now += Duration::from_secs(11);
        self.rig.settle();
        self.rig.check_nothing_left();
    }

    fn settle(&mut self) {
        for _ in 0..3 {
            self.rig.settle();
            self.hear();
            (0..self.programs.len()).for_each(|at| self.programs[at].read(&self.ends));
        }
    }
}

fn run(data: &[u8]) {
    LISTENER.with_borrow(|(listener, address)| {
        let mut rig = Rig::new(vec![device(CID, &[])], RINGS, WorkerMode::Interrupt);
        rig.listen(0, listener.try_clone().expect("a descriptor").into());
        let (programs, ends, questions) = (Vec::new(), Vec::new(), Vec::new());
        World { rig, listener, address, programs, ends, questions, stopped: [None; 2], room: 1 << 16 }
            .run(Input(data));
        // Clients that the guest has not accepted.
        while listener.accept().is_ok() {}
    });
}
