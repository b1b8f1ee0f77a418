//! What is known of a channel, in memory that this process and its children share: a forked child
//! and its parent may both use a connection.
//!
//! A record belongs to the connection that has its channel, and the fabric gives no channel to two
//! at the same time. Numbers of a ring are changed by who has the ring's lock.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use rustix::io::Errno;
use taut_queue_pair::{Channel, Direction, End, Memory, Private};

use super::inherited;
use super::settings::{Settings, settings};
use super::vfork::is_in_doubt;
use super::words::{BY_PACKETS, COOKIE, FLAGS, HUNG_UP, STATE, flag};
use crate::state::TABLE;
use crate::sys::{Lock, Locked, Record, is_socket};
use crate::table::Way;

/// The bytes of the connection move through the channel.
const RINGS: u32 = 1;
/// The connection has gone back to packets.
const LEFT: u32 = 2;

/// Longest time that a new connection waits for the locks of its record.
const PATIENCE: Duration = Duration::from_secs(1);

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
    pub(super) channel: Channel<&'static Memory>,
    pub(super) record: &'static Record,
    /// Cookie of the connection's socket. The record is another connection's once it has another
    /// one.
    cookie: u64,
}

pub(super) const fn place(direction: Direction) -> usize {
    match direction {
        Direction::In => 0,
        Direction::Out => 1,
    }
}

/// Cookie of the connection that has a record.
#[inline]
fn cookie_of(record: &Record) -> u64 {
    record.longs.get(COOKIE).map_or(0, |cookie| cookie.load(Relaxed))
}

/// How a connection is found, from the most careful way to the fastest: [`Pair::of`] asks the
/// kernel what the descriptor is, [`Pair::now`] does so only if the table may be wrong,
/// [`Pair::known`] believes the table, and [`Pair::by_index`] takes the channel that a wait began
/// with.
impl Pair {
    /// The connection of a descriptor that has a channel; `None` if it has none, or is closed or
    /// another file by now. A connection of which the kernel does not tell this counts as open.
    pub(super) fn of(fd: RawFd) -> Option<Self> {
        Self::known(fd).filter(|pair| pair.is_open() != Some(false))
    }

    /// Tells whether the program's number still is the socket of this connection; `None` if the
    /// kernel does not tell.
    pub(super) fn is_open(&self) -> Option<bool> {
        is_socket(self.fd, self.cookie)
    }

    /// The connection of a descriptor, for data calls. Asks the kernel only at the first call after
    /// a fork, and while a child of vfork may have made the table wrong.
    #[inline]
    pub(super) fn now(fd: RawFd) -> Option<Self> {
        inherited::check(fd);
        if is_in_doubt() { Self::of(fd) } else { Self::known(fd) }
    }

    /// The connection of a descriptor as the table has it. Does not ask the kernel what the
    /// descriptor is now.
    #[inline]
    pub(super) fn known(fd: RawFd) -> Option<Self> {
        let Way::Channel(index) = TABLE.way(fd) else { return None };
        let cookie = TABLE.cookie(fd)?;
        let pair = Self::at(settings()?, index, fd)?;
        (pair.cookie == cookie).then_some(pair)
    }

    /// The connection that had a channel before a wait, whatever the descriptor is now. `None` if
    /// another connection has the channel now.
    pub(super) fn by_index(fd: RawFd, index: u32, cookie: u64, control: RawFd) -> Option<Self> {
        let pair = Self::at(settings()?, index, fd)?;
        (pair.cookie == cookie).then_some(Self { control, ..pair })
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

    #[inline]
    fn at(settings: &'static Settings, index: u32, fd: RawFd) -> Option<Self> {
        let record = settings.records.get(index as usize)?;
        let control = TABLE.control(fd).unwrap_or(-1);
        let cookie = cookie_of(record);
        Some(Self { fd, control, channel: settings.region.channel_ref(index)?, record, cookie })
    }

    /// Begins the record of a channel that the fabric has just granted. A thread that has looked up
    /// the connection which had the channel before may still be about to use the record. The locks
    /// decide: it finds another cookie. Fails if a lock stays taken.
    pub(super) fn begin(index: u32, cookie: u64, by_packets: u64) -> Result<(), Errno> {
        let records = settings().map(|settings| settings.records).unwrap_or_default();
        let record = records.get(index as usize).ok_or(Errno::INVAL)?;
        let [input, output] = &record.locks;
        let _locked = (input.take_within(PATIENCE)?, output.take_within(PATIENCE)?);
        for word in &record.words {
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
        Ok(())
    }

    fn lock_of(&self, direction: Direction) -> &'static Lock {
        let [input, output] = &self.record.locks;
        if direction == Direction::In { input } else { output }
    }

    /// Takes the lock of a ring. Fails if the connection has left the rings, or has ended and the
    /// record is another one's.
    pub(super) fn lock(&self, direction: Direction) -> Result<Locked<'static>, Stop> {
        let locked = self.lock_of(direction).take()?;
        if locked.was_left {
            self.take_over(direction);
        }
        if self.is_current() { Ok(locked) } else { Err(Stop::Left) }
    }

    /// Takes the lock of a ring if it is free and the connection has not left the rings.
    #[inline]
    pub(super) fn try_lock(&self, direction: Direction) -> Option<Locked<'static>> {
        let locked = self.lock_of(direction).try_take()?;
        self.is_current().then_some(locked)
    }

    /// Goes on where a thread has stopped that has ended with the ring's lock. What it has shown
    /// the fabric may be more than it has recorded.
    fn take_over(&self, direction: Direction) {
        let (position, wait) = match direction {
            Direction::In => (direction.tail(), direction.bytes_wait()),
            Direction::Out => (direction.head(), direction.room_wait()),
        };
        if direction == Direction::Out && self.has(flag::SHUT_WRITE) {
            // The thread may have ended between the flag and the word.
            self.channel.store(direction.end(), End::Finished.number());
        }
        let position = self.channel.load(position);
        let waiter = self.channel.load(wait);
        self.set_announced(direction, false);
        self.set_private(direction, Private { position, published: position, waiter, seen: 0 });
    }

    /// Cookie of the connection's socket.
    pub(super) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Tells whether the record is this connection's, and its bytes move through the channel.
    #[inline]
    fn is_current(&self) -> bool {
        !self.has_left() && cookie_of(self.record) == self.cookie
    }

    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.word(STATE).load(Acquire) != RINGS
    }

    /// Records that the connection has left the rings. The caller has both locks.
    pub(super) fn set_left(&self) {
        self.word(STATE).store(LEFT, Release);
    }
}
