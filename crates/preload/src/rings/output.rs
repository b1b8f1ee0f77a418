//! Writing: the ring OUT. Nothing waits here.

use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use taut_queue_pair::memory::Copying;
use taut_queue_pair::{Direction, End, Memory, Private, Producer};

use super::record::{Pair, Stop};
use super::words::flag;
use crate::sys::{Locked, Pieces};

/// Most bytes that are written before the fabric may take them.
const CHUNK: usize = 32 << 10;
/// When the peer has ended its own direction, one of this many writes asks the kernel whether it
/// still receives.
const WRITES_PER_CHECK: u32 = 16;

/// The ring OUT of a connection, locked.
pub(super) struct Output<'a> {
    pair: &'a Pair,
    ring: Producer<&'static Memory>,
    /// Dropped last.
    _locked: Locked<'static>,
}

impl Drop for Output<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pair.set_private(Direction::Out, self.ring.private());
    }
}

impl<'a> Output<'a> {
    pub(super) fn lock(pair: &'a Pair) -> Result<Self, Stop> {
        Ok(Self::with(pair, pair.lock(Direction::Out)?))
    }

    /// The ring, if nobody else uses it and the connection has not left it.
    #[inline]
    pub(super) fn try_lock(pair: &'a Pair) -> Option<Self> {
        Some(Self::with(pair, pair.try_lock(Direction::Out)?))
    }

    #[inline]
    fn with(pair: &'a Pair, locked: Locked<'static>) -> Self {
        let mut ring = Producer::new(pair.channel.clone(), Direction::Out, Copying::Words);
        ring.go_on(pair.private(Direction::Out));
        Self { pair, ring, _locked: locked }
    }

    /// Writes what there is room for, behind the first `done` bytes; `None` if there is no room.
    pub(super) fn put(&mut self, pieces: &Pieces<'_>, done: usize) -> Result<Option<usize>, Stop> {
        if self.pair.has(flag::SHUT_WRITE) {
            return Err(Stop::Failed(Errno::PIPE));
        }
        if self.pair.has(flag::ENDED | flag::FAULT) {
            return Err(self.pair.reset());
        }
        self.check_peer()?;
        let mut written = 0;
        while let Some(chunk) = pieces.part(done + written, CHUNK) {
            let count = self.ring.write(chunk).map_err(|_| self.pair.fail())?;
            written += count;
            self.show_bytes();
            if count < chunk.len() {
                break;
            }
        }
        Ok((written > 0 || pieces.len() <= done).then_some(written))
    }

    /// Writes all bytes, if there is room for them. The caller has seen that the connection is
    /// plain.
    #[inline]
    pub(super) fn put_plainly(&mut self, pieces: &Pieces<'_>) -> Option<usize> {
        let len = pieces.len();
        if len > CHUNK || len > self.ring.room().ok()? as usize {
            return None;
        }
        let mut written = 0;
        while let Some(part) = pieces.part(written, CHUNK) {
            match self.ring.write(part) {
                Ok(count) if count == part.len() => written += count,
                // Positions do not go back. The next call reports that.
                _ => {
                    self.pair.give_up();
                    return None;
                }
            }
        }
        self.show_bytes();
        Some(written)
    }

    /// Shows the fabric what was written, which looks by itself after a while or has to be told.
    #[inline]
    fn show_bytes(&mut self) {
        if self.ring.publish() {
            self.signal();
        }
    }

    /// Signals the fabric if it waits for bytes. If this process cannot signal, `seen` gets back
    /// the number from before. The fabric's wait then counts as not signalled, and the next write
    /// of another process signals the fabric.
    #[inline]
    fn signal(&mut self) {
        let seen = self.ring.private().seen;
        if self.ring.must_signal() && !self.pair.bell() {
            self.ring.go_on(Private { seen, ..self.ring.private() });
        }
    }

    /// Returns an error if the peer receives nothing any more.
    fn check_peer(&mut self) -> Result<(), Stop> {
        let value = self.peers_end();
        if value == End::Reset.number() {
            return Err(self.pair.reset());
        }
        if value > End::Reset.number() {
            return Err(self.pair.fail());
        }
        if value == End::Finished.number() || self.pair.hung_up().is_some() {
            // The peer has ended its direction. Only the kernel knows whether it closed.
            let writes = self.pair.since_end().fetch_add(1, Relaxed);
            let is_due = writes.is_multiple_of(WRITES_PER_CHECK) || !self.has_room(1);
            if self.pair.has(flag::GONE) || is_due && !self.pair.peer_receives() {
                self.pair.set(flag::GONE);
                return Err(Stop::Failed(Errno::PIPE));
            }
        }
        Ok(())
    }

    /// The end word of the other direction.
    fn peers_end(&self) -> u32 {
        self.ring.channel().load(Direction::In.end())
    }

    /// Tells whether there is room for this many bytes, or in half of the ring.
    fn has_room(&self, wanted: usize) -> bool {
        let half = self.ring.size() / 2;
        let wanted = u32::try_from(wanted).map_or(half, |wanted| wanted.min(half));
        self.ring.room().map_or(true, |room| room >= wanted)
    }

    /// Tells whether a write would return at once: with an error, or with half of the ring free.
    pub(super) fn is_ready(&self) -> bool {
        if self.has_room(usize::MAX)
            || self.pair.has(flag::SHUT_WRITE | flag::GONE | flag::ENDED | flag::FAULT)
            || self.peers_end() >= End::Reset.number()
        {
            return true;
        }
        // Nobody makes room any more if the peer has closed, and only the kernel knows whether it
        // has.
        let may_be_gone = self.peers_end() == End::Finished.number() || self.pair.hung_up().is_some();
        let is_gone = may_be_gone && !self.pair.peer_receives();
        if is_gone {
            self.pair.set(flag::GONE);
        }
        is_gone
    }

    /// Says that no more bytes follow.
    pub(super) fn shut(&mut self) {
        if !self.pair.set(flag::SHUT_WRITE) {
            self.ring.finish(End::Finished);
            self.signal();
        }
    }

    /// Number of bytes that the fabric has not taken.
    pub(super) fn used(&self) -> u32 {
        self.ring.used().unwrap_or(0)
    }

    /// Gives the connection up if another program has overwritten the position of this end, or the
    /// end word.
    pub(super) fn check(&self) {
        if self.pair.is_lost() {
            return;
        }
        let end = if self.pair.has(flag::SHUT_WRITE) { End::Finished } else { End::Open };
        if self.ring.check_position(end).is_err() {
            self.pair.give_up();
        }
    }

    /// Announces a wait with a new number, which the fabric has not signalled. A connection that
    /// has lost its channel announces none: another one may have the channel by now.
    pub(super) fn announce(&mut self) {
        if self.pair.is_lost() {
            return;
        }
        self.ring.stop_waiting();
        self.ring.wait();
        self.pair.set_announced(Direction::Out, true);
    }
}
