//! The console process: requests and replies at its border, and its path from what a VM writes to a
//! bounded log, a reader of that log, and a client.
//!
//! Input: 1 byte for the part. Border: 1 byte for the direction, then a packet. Path: 1 byte for
//! the mode, then steps of 3 bytes.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use taut_console::client::{MOST_WAITING, Outbox};
use taut_console::control::channel::{Packet, receive};
use taut_console::control::message::{Reply, Request};
use taut_console::follow::Follower;
use taut_console::log::{BoundedLog, LEAST_LIMIT, Storage};
use taut_console::rate::RateLimit;
use taut_console::source::Source;

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "console", run, budget: Budget::of(100, 8) };

/// Most steps of the path.
const STEPS: usize = 24;
/// Bytes that as many steps can write.
const PATTERN_LEN: u64 = STEPS as u64 * (2 << 16);
/// Bytes by which a reader surely recognises its place.
const LEAST_KNOWN: usize = 16;
/// Room for a line about bytes that are not shown.
const NOTICE: usize = 200;
/// Longest name of a source in bytes.
const MOST_ID: usize = 160;
/// Largest limit of a log in bytes.
const MOST_LOG: u64 = 1 << 30;

fn run(data: &[u8]) {
    let mut input = Input(data);
    let (part, bits) = (input.u8(), input.u8());
    match part % 4 {
        0 => border(bits, input.0),
        _ => PATTERN.with(|pattern| Path::new(bits, pattern).run(input)),
    }
}

fn border(bits: u8, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("sockets");
    send(&theirs, bytes, SendFlags::DONTWAIT).expect("the socket has room");
    if bits & 1 == 0 {
        match receive::<Request>(&ours).expect("a packet") {
            Packet::Message(request, fds) => {
                assert!(fds.is_empty());
                check_request(&request);
            }
            Packet::Malformed(why) => assert!(!why.is_empty()),
            Packet::End => panic!("a packet with bytes is no end"),
        }
    } else if let Packet::Message(reply, _) = receive::<Reply>(&ours).expect("a packet") {
        assert_eq!(again(&reply), reply);
    }
}

/// What a message becomes when it is written and read.
fn again<M: Serialize + DeserializeOwned>(message: &M) -> M {
    let bytes = serde_json::to_vec(message).expect("a message that was read can be written");
    serde_json::from_slice(&bytes).expect("and read")
}

fn check_request(request: &Request) {
    assert_eq!(again(request), *request);
    let id = match request {
        Request::Add(spec) => {
            if spec.check().is_ok() {
                assert!((LEAST_LIMIT..=MOST_LOG).contains(&spec.log_limit));
                assert!(spec.rate.rate > 0 && spec.rate.burst > 0);
            }
            Some(&spec.id)
        }
        Request::Remove { id } | Request::Flush { id } => Some(id),
        Request::List { after } => after.as_ref(),
        _ => None,
    };
    if let Some(id) = id {
        let id = id.to_string();
        assert!((1..=MOST_ID).contains(&id.len()));
        // The name becomes part of messages to people.
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte)), "{id}");
    }
}

/// A file in memory, on a file system that may be full.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    is_full: bool,
    /// A write takes so many bytes at most.
    at_once: usize,
}

#[derive(Debug, Clone)]
struct Memory(Rc<RefCell<Disk>>);

impl Storage for Memory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.borrow().bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let disk = self.0.borrow();
        let from = disk.bytes.get(place as usize..).unwrap_or_default();
        let len = from.len().min(buffer.len());
        buffer[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<usize> {
        let mut disk = self.0.borrow_mut();
        if disk.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (place, len) = (place as usize, bytes.len().min(disk.at_once));
        if disk.bytes.len() < place + len {
            disk.bytes.resize(place + len, 0);
        }
        disk.bytes[place..place + len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.borrow_mut().bytes.truncate(length as usize);
        Ok(())
    }
}

/// The path of what a VM writes.
struct Path<'p> {
    source: Source<Memory>,
    disk: Memory,
    follower: Follower,
    now: Instant,
    /// The bytes that a VM writes, one after the other.
    pattern: &'p [u8],
    /// Number of bytes written.
    written: usize,
    /// Everything that was written is in the log, or was cut off.
    is_exact: bool,
    /// Number of bytes up to which the follower has read.
    followed: usize,
    /// Number of bytes that the follower has read.
    known: usize,
    /// Number of bytes that the client has got, while nothing was left out.
    shown: Option<usize>,
}

thread_local! {
    static PATTERN: Vec<u8> = (0..PATTERN_LEN).map(byte_at).collect();
}

/// A byte of the pattern. No [`LEAST_KNOWN`] bytes of it occur twice: each byte is the last step of
/// SplitMix64, a known mixing function.
fn byte_at(at: u64) -> u8 {
    let mixed = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) as u8
}

impl<'p> Path<'p> {
    fn new(bits: u8, pattern: &'p [u8]) -> Self {
        let now = Instant::now();
        let at_once = [usize::MAX, 1 << 12, 1 << 16, 1000][usize::from(bits >> 1 & 3)];
        let disk = Memory(Rc::new(RefCell::new(Disk { at_once, ..Disk::default() })));
        let is_exact = bits & 1 == 0;
        let burst = if is_exact { 1 << 40 } else { 20_000 };
        let rate = RateLimit { rate: 1 << 16, burst };
        let mut source = Source::new(BoundedLog::new(disk.clone(), LEAST_LIMIT, now), rate, now);
        source.clients.insert(1, Outbox::new(now));
        let (follower, shown) = (Follower::new(LEAST_LIMIT), is_exact.then_some(0));
        Self { source, disk, follower, now, pattern, written: 0, is_exact, followed: 0, known: 0, shown }
    }

    fn step(&mut self, what: u8, value: u16) {
        match what % 8 {
            0..=2 => {
                let len = usize::from(value) << (what >> 3 & 1);
                let bytes = &self.pattern[self.written..][..len];
                self.written += len;
                self.source.take(bytes, self.now);
            }
            3 => {
                self.now += Duration::from_millis(value.into());
                self.source.settle(self.now);
            }
            4 => self.source.finish(self.now),
            5 => self.follow(),
            6 => self.show(value.into()),
            _ => {
                // From here on, what is missing is told by notices.
                self.is_exact = false;
                let mut disk = self.disk.0.borrow_mut();
                if value & 1 == 0 { disk.is_full ^= true } else { disk.bytes.truncate(value.into()) }
            }
        }
        assert!(self.disk.0.borrow().bytes.len() as u64 <= LEAST_LIMIT, "the log is longer than its limit");
        let outbox = &self.source.clients[&1];
        assert!(outbox.front().len() <= MOST_WAITING + NOTICE);
        if outbox.stuck_at().is_some() {
            self.shown = None;
        }
    }

    /// Has a reader of the log read what is new.
    fn follow(&mut self) {
        let news = self.follower.read(&self.disk).expect("no error of a file system in memory");
        let len = news.bytes.len();
        assert!(len as u64 <= 2 * LEAST_LIMIT);
        if self.is_exact {
            // A reader that has read nearly nothing cannot tell that the log was cut.
            let knows = self.known >= LEAST_KNOWN && !news.missed;
            assert!(!knows || len == self.written - self.followed, "the reader was not told of a gap");
            assert!(news.bytes == self.pattern[self.written - len..self.written]);
            self.followed = self.written;
            self.known += len;
        }
    }

    /// Has the client take what waits for it.
    fn show(&mut self, most: usize) {
        let outbox = self.source.clients.get_mut(&1).expect("it stays");
        let bytes = &outbox.front()[..outbox.front().len().min(most)];
        let len = bytes.len();
        if let Some(shown) = &mut self.shown {
            assert!(*bytes == self.pattern[*shown..*shown + len]);
            *shown += len;
        }
        outbox.taken(len, self.now);
    }

    fn run(mut self, mut input: Input<'_>) {
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            let what = input.u8();
            self.step(what, input.u16());
        }
        self.disk.0.borrow_mut().is_full = false;
        self.source.finish(self.now);
        let disk = self.disk.0.borrow();
        assert!(disk.bytes.len() as u64 <= LEAST_LIMIT);
        if self.is_exact {
            // The log has the newest bytes, at least half of its limit.
            assert!(disk.bytes == self.pattern[self.written - disk.bytes.len()..self.written]);
            assert!(disk.bytes.len() >= self.written.min(LEAST_LIMIT as usize / 2));
        }
    }
}
