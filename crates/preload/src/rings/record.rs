//! What is known of a channel, in memory that this process and its children share: a forked child
//! and its parent may both use a connection.
//!
//! A record belongs to the connection that has its channel, and the fabric gives no channel to a
//! second one. Numbers of a ring are changed by who has the ring's lock.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use taut_queue_pair::{Channel, Direction, Private};

use super::doubt::is_in_doubt;
use super::settings::{Settings, settings};
use crate::hidden::is_there;
use crate::state::TABLE;
use crate::sys::{Lock, Locked, Record, at, milliseconds as now};
use crate::table::Way;

/// The bytes of the connection move through the channel.
const RINGS: u32 = 1;
/// The connection has gone back to packets.
const LEFT: u32 = 2;

/// Flags of a connection.
pub(super) mod flag {
    /// The program has shut down writing.
    pub(in crate::rings) const SHUT_WRITE: u32 = 1;
    /// The program has shut down reading.
    pub(in crate::rings) const SHUT_READ: u32 = 2;
    /// The peer receives nothing any more.
    pub(in crate::rings) const GONE: u32 = 4;
    /// The control connection has ended.
    pub(in crate::rings) const ENDED: u32 = 8;
    /// The words of the channel cannot be believed.
    pub(in crate::rings) const FAULT: u32 = 16;
    /// The program was told of the reset.
    pub(in crate::rings) const TOLD: u32 = 32;
}

/// Places of the words. The first one says whether the locks are prepared.
const STATE: usize = 1;
const FLAGS: usize = 2;
const SIGNALLED: usize = 3;
const VAIN: usize = 4;
const SINCE_END: usize = 5;
const MODE: usize = 6;
const PRIVATE: [usize; 2] = [8, 12];
const ANNOUNCED: [usize; 2] = [16, 17];
const WAITING: [usize; 2] = [18, 19];
/// Most signals that are counted at once.
pub(super) const MOST_SIGNALS: usize = 64;
/// Places of the long words.
const COOKIE: usize = 0;
const BY_PACKETS: usize = 1;
const HUNG_UP: usize = 2;

/// A reason why a call is not served by rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The connection has gone back to packets.
    Left,
    /// The call fails.
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

/// A connection with a channel, as one call uses it.
pub(super) struct Pair {
    /// The program's number.
    pub(super) fd: RawFd,
    /// The hidden number of the control connection.
    pub(super) control: RawFd,
    pub(super) channel: Channel,
    record: &'static Record,
}

pub(super) const fn place(direction: Direction) -> usize {
    match direction {
        Direction::In => 0,
        Direction::Out => 1,
    }
}

pub(super) const fn other(direction: Direction) -> Direction {
    match direction {
        Direction::In => Direction::Out,
        Direction::Out => Direction::In,
    }
}

impl Pair {
    /// The connection of a descriptor that has a channel; `None` if it has none, or is another file
    /// by now.
    pub(super) fn of(fd: RawFd) -> Option<Self> {
        let pair = Self::known(fd)?;
        if at(fd).and_then(sockopt::socket_cookie) == Ok(pair.cookie()) {
            return Some(pair);
        }
        None
    }

    /// The same for data calls: the kernel is asked only if the table may be wrong.
    pub(super) fn now(fd: RawFd) -> Option<Self> {
        if is_in_doubt() { Self::of(fd) } else { Self::known(fd) }
    }

    /// The same without a look at what the descriptor is now.
    pub(super) fn known(fd: RawFd) -> Option<Self> {
        let Way::Channel(index) = TABLE.way(fd) else { return None };
        let cookie = TABLE.cookie(fd)?;
        let pair = Self::at(settings()?, index, fd)?;
        (pair.cookie() == cookie).then_some(pair)
    }

    /// The connection that had a channel before a wait, whatever the descriptor is now.
    pub(super) fn by_index(fd: RawFd, index: u32, control: RawFd) -> Option<Self> {
        Some(Self { control, ..Self::at(settings()?, index, fd)? })
    }

    /// Number of bytes that the next call is likely to move. Takes no lock.
    pub(super) fn hint(&self, direction: Direction) -> usize {
        let [head, tail] = [direction.head(), direction.tail()].map(|word| self.channel.load(word));
        let used = head.wrapping_sub(tail).min(self.channel.ring_len());
        let count = if direction == Direction::In { used } else { self.channel.ring_len() - used };
        count as usize
    }

    /// Tells whether a ring may be ready. Takes no lock.
    pub(super) fn may_be_ready(&self, direction: Direction) -> bool {
        let enough = if direction == Direction::In { 1 } else { self.channel.ring_len() as usize / 2 };
        self.hint(direction) >= enough || self.channel.load(Direction::In.end()) != 0 || self.has_left()
    }

    /// Tells whether nothing has happened since the fabric was asked for signals. Takes no lock.
    pub(super) fn is_quiet(&self, events: i16) -> bool {
        // Announced: who takes the signal of an announcement announces again, or clears this.
        let input = self.private(Direction::In).position;
        self.signalled().load(Acquire) == 0
            && events & super::events::WRITABLE == 0
            && self.is_announced(Direction::In)
            && self.channel.load(Direction::In.head()) == input
            && self.channel.load(Direction::In.end()) == 0
            && self.by_packets() == 0
            && self.word(FLAGS).load(Acquire) & !flag::SHUT_WRITE == 0
            && self.hung_up().is_none()
            && !self.has_left()
    }

    /// Tells whether the peer has ended its direction.
    pub(super) fn has_ended(&self) -> bool {
        self.channel.load(Direction::In.end()) != 0 || self.has(flag::ENDED | flag::FAULT | flag::SHUT_READ)
    }

    /// Tells whether the connection has ended in both directions, or its channel has.
    pub(super) fn has_gone(&self) -> bool {
        let end = self.channel.load(Direction::In.end());
        end != 0 || self.has(flag::ENDED | flag::FAULT) || self.hung_up().is_some()
    }

    fn at(settings: &Settings, index: u32, fd: RawFd) -> Option<Self> {
        let record = settings.records.get(index as usize)?;
        let control = TABLE.control(fd).unwrap_or(-1);
        Some(Self { fd, control, channel: settings.region.channel(index)?, record })
    }

    /// Begins the record of a channel that the fabric has just granted.
    pub(super) fn begin(index: u32, cookie: u64, by_packets: u64) {
        let Some(record) = settings().and_then(|settings| settings.records.get(index as usize)) else {
            return;
        };
        let [prepared, words @ ..] = &record.words;
        if prepared.load(Acquire) == 0 {
            record.locks.iter().for_each(Lock::prepare);
            prepared.store(1, Release);
        }
        for word in words {
            word.store(0, Relaxed);
        }
        for (place, value) in [(COOKIE, cookie), (BY_PACKETS, by_packets), (HUNG_UP, 0)] {
            if let Some(long) = record.longs.get(place) {
                long.store(value, Relaxed);
            }
        }
        if let Some(state) = record.words.get(STATE) {
            state.store(RINGS, Release);
        }
    }

    fn word(&self, place: usize) -> &AtomicU32 {
        // The place is one of the constants above.
        self.record.words.get(place).unwrap_or(&NOWHERE)
    }

    fn long(&self, place: usize) -> &AtomicU64 {
        self.record.longs.get(place).unwrap_or(&NOWHERE_LONG)
    }

    /// Takes the lock of a ring. Fails if the connection has left the rings.
    pub(super) fn lock(&self, direction: Direction) -> Result<Locked<'static>, Stop> {
        let [input, output] = &self.record.locks;
        let lock = if direction == Direction::In { input } else { output };
        let locked = lock.take()?;
        if self.has_left() { Err(Stop::Left) } else { Ok(locked) }
    }

    pub(super) fn has_left(&self) -> bool {
        self.word(STATE).load(Acquire) != RINGS
    }

    /// Records that the connection has left the rings. The caller has both locks.
    pub(super) fn set_left(&self) {
        self.word(STATE).store(LEFT, Release);
    }

    pub(super) fn cookie(&self) -> u64 {
        self.long(COOKIE).load(Relaxed)
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.word(FLAGS).load(Acquire) & flag != 0
    }

    /// Sets a flag. Returns whether it was set before.
    pub(super) fn set(&self, flag: u32) -> bool {
        self.word(FLAGS).fetch_or(flag, AcqRel) & flag != 0
    }

    /// The numbers of a ring's end that only this program knows. The caller has the ring's lock.
    pub(super) fn private(&self, direction: Direction) -> Private {
        let from = PRIVATE.get(place(direction)).copied().unwrap_or_default();
        let [position, published, waiter, seen] =
            [0, 1, 2, 3].map(|offset| self.word(from + offset).load(Relaxed));
        Private { position, published, waiter, seen }
    }

    pub(super) fn set_private(&self, direction: Direction, private: Private) {
        let from = PRIVATE.get(place(direction)).copied().unwrap_or_default();
        let Private { position, published, waiter, seen } = private;
        for (offset, value) in [position, published, waiter, seen].into_iter().enumerate() {
            self.word(from + offset).store(value, Relaxed);
        }
    }

    /// Bytes that still come by packets. The caller has the lock of the ring IN to change it.
    pub(super) fn by_packets(&self) -> u64 {
        self.long(BY_PACKETS).load(Relaxed)
    }

    pub(super) fn set_by_packets(&self, count: u64) {
        self.long(BY_PACKETS).store(count, Relaxed);
    }

    fn announced_word(&self, direction: Direction) -> &AtomicU32 {
        self.word(ANNOUNCED.get(place(direction)).copied().unwrap_or_default())
    }

    /// Tells whether a wait is announced by a number for which no signal was taken yet.
    pub(super) fn is_announced(&self, direction: Direction) -> bool {
        self.announced_word(direction).load(Acquire) != 0
    }

    pub(super) fn set_announced(&self, direction: Direction, announced: bool) {
        self.announced_word(direction).store(announced.into(), Release);
    }

    /// Number of threads that sleep for a ring, or are about to.
    pub(super) fn waiting(&self, direction: Direction) -> &AtomicU32 {
        self.word(WAITING.get(place(direction)).copied().unwrap_or_default())
    }

    /// True while the control connection may have signals that nobody has taken.
    pub(super) fn signalled(&self) -> &AtomicU32 {
        self.word(SIGNALLED)
    }

    /// Calls without a wait that found nothing.
    pub(super) fn vain(&self) -> &AtomicU32 {
        self.word(VAIN)
    }

    /// Whether calls wait, see `mode`.
    pub(super) fn mode(&self) -> &AtomicU32 {
        self.word(MODE)
    }

    /// Writes since the peer has ended its own direction.
    pub(super) fn since_end(&self) -> &AtomicU32 {
        self.word(SINCE_END)
    }

    /// Milliseconds since the stream's socket first said that the peer has ended its direction.
    pub(super) fn hung_up(&self) -> Option<u64> {
        let since = self.long(HUNG_UP).load(Relaxed);
        (since != 0).then(|| now().saturating_sub(since))
    }

    pub(super) fn set_hung_up(&self) {
        let _ = self.long(HUNG_UP).compare_exchange(0, now().max(1), Relaxed, Relaxed);
    }

    /// Asks the fabric to look at the channel. If the socket is full, it was asked already.
    pub(super) fn bell(&self) {
        loop {
            match at(self.control)
                .and_then(|socket| send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
            {
                Ok(_) | Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.set(flag::ENDED);
                    return;
                }
            }
        }
    }

    /// Ends the use of the channel because its words cannot be believed.
    pub(super) fn fail(&self) -> Stop {
        if !self.set(flag::FAULT)
            && is_there(self.control)
            && let Ok(control) = at(self.control)
        {
            let _ = shutdown(control, Shutdown::Both);
        }
        self.reset()
    }

    /// The error of a call after a reset: told once, as with TCP.
    pub(super) fn reset(&self) -> Stop {
        Stop::Failed(if self.set(flag::TOLD) { Errno::PIPE } else { Errno::CONNRESET })
    }

    /// Tells whether the peer still receives: nothing is sent, but the kernel checks the connection
    /// first.
    pub(super) fn peer_receives(&self) -> bool {
        let sent =
            at(self.fd).and_then(|stream| send(stream, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
        matches!(sent, Ok(_) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Number of signals that have come, at most [`MOST_SIGNALS`]. They stay.
    pub(super) fn count_signals(&self) -> usize {
        self.receive_signals(MOST_SIGNALS, RecvFlags::PEEK)
    }

    /// Takes at most this number of signals.
    pub(super) fn take_signals(&self, count: usize) {
        self.receive_signals(count, RecvFlags::empty());
    }

    fn receive_signals(&self, most: usize, flags: RecvFlags) -> usize {
        let mut bytes = [0; MOST_SIGNALS];
        let Some(bytes) = bytes.get_mut(..most).filter(|bytes| !bytes.is_empty()) else { return 0 };
        loop {
            match at(self.control).and_then(|control| recv(control, &mut *bytes, RecvFlags::DONTWAIT | flags))
            {
                Ok((_, count)) if count > 0 => return count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return 0,
                _ => {
                    self.set(flag::ENDED);
                    return 0;
                }
            }
        }
    }
}

static NOWHERE: AtomicU32 = AtomicU32::new(0);
static NOWHERE_LONG: AtomicU64 = AtomicU64::new(0);
