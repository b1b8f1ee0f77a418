//! Reading: bytes that came by packets first, then those of the ring IN. Nothing waits here.

use std::mem::MaybeUninit;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use taut_queue_pair::memory::Copying;
use taut_queue_pair::{Consumer, Direction, End, Memory, Private};

use super::calls::Target;
use super::record::{Pair, Stop};
use super::words::flag;
use crate::sys::{Locked, Room, at, count_unread};

/// Most bytes that are read before the fabric gets their room back.
const CHUNK: usize = 32 << 10;
/// Milliseconds for the fabric to say in the ring how a stream has ended whose socket says that it
/// has.
const PATIENCE: u64 = 5000;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The ring IN of a connection, locked.
pub(super) struct Input<'a> {
    pair: &'a Pair,
    ring: Consumer<&'static Memory>,
    /// Dropped last.
    _locked: Locked<'static>,
}

impl Drop for Input<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pair.set_private(Direction::In, self.ring.private());
    }
}

impl<'a> Input<'a> {
    pub(super) fn lock(pair: &'a Pair) -> Result<Self, Stop> {
        Ok(Self::with(pair, pair.lock(Direction::In)?))
    }

    /// The ring, if nobody else uses it and the connection has not left it.
    #[inline]
    pub(super) fn try_lock(pair: &'a Pair) -> Option<Self> {
        Some(Self::with(pair, pair.try_lock(Direction::In)?))
    }

    #[inline]
    fn with(pair: &'a Pair, locked: Locked<'static>) -> Self {
        let mut ring = Consumer::new(pair.channel.clone(), Direction::In, Copying::Words);
        ring.go_on(pair.private(Direction::In));
        Self { pair, ring, _locked: locked }
    }

    /// Reads what there is behind the first `done` bytes of the target, or with `peeks` leaves it
    /// there. Returns 0 at the end of the stream; `None` if there is nothing yet.
    pub(super) fn take(
        &mut self,
        target: &mut Target<'_>,
        done: usize,
        peeks: bool,
    ) -> Result<Option<usize>, Stop> {
        if target.len() <= done {
            return Ok(Some(0));
        }
        if self.pair.has(flag::FAULT) {
            return self.over();
        }
        let by_packets = self.pair.by_packets();
        if by_packets > 0 {
            let count = self.take_packets(target, done, peeks)?;
            return Ok(match count {
                // What follows is in the ring. Programs take a short read for all that there is.
                Some(count) if count as u64 == by_packets => {
                    let place = done + count;
                    let more = if peeks { self.peek(target, place)? } else { self.take_ring(target, place)? };
                    Some(count + more)
                }
                count => count,
            });
        }
        loop {
            let count = if peeks { self.peek(target, done)? } else { self.take_ring(target, done)? };
            if count > 0 {
                return Ok(Some(count));
            }
            // Before the look: what the fabric wrote before it went away is seen by the look.
            let is_gone = self.is_gone();
            let look = self.ring.look().map_err(|_| self.pair.fail())?;
            match look.end {
                _ if look.bytes > 0 => {}
                End::Finished => return Ok(Some(0)),
                End::Open if self.pair.has(flag::SHUT_READ) => return Ok(Some(0)),
                End::Open if !is_gone => return Ok(None),
                End::Open | End::Reset => return self.over(),
            }
        }
    }

    /// Reads what there is, if a plain read of a plain connection takes all that the call can get
    /// now. The caller has seen that the connection is plain.
    #[inline]
    pub(super) fn take_plainly(&mut self, room: &mut Room<'_>) -> Option<usize> {
        let wanted = room.len().min(self.ring.available().ok()? as usize);
        if wanted == 0 || wanted > CHUNK {
            return None;
        }
        let mut taken = 0;
        while taken < wanted {
            let part = room.part(taken, wanted - taken)?;
            match self.ring.read_uninit(part) {
                Ok(count) if count > 0 => taken += count,
                // Positions do not go back. The next call reports that.
                _ => {
                    self.pair.give_up();
                    return None;
                }
            }
        }
        self.show_room();
        Some(taken)
    }

    /// The result of a read after a reset: an error once, then the end of the stream.
    fn over(&self) -> Result<Option<usize>, Stop> {
        match self.pair.reset() {
            Stop::Failed(Errno::PIPE) => Ok(Some(0)),
            stop => Err(stop),
        }
    }

    /// Reads from the ring in chunks, so that the fabric refills it meanwhile.
    fn take_ring(&mut self, target: &mut Target<'_>, done: usize) -> Result<usize, Stop> {
        let mut taken = 0;
        let mut unused = [MaybeUninit::uninit(); 4096];
        while let Some(chunk) = target.part(done + taken, CHUNK, &mut unused) {
            let count = self.ring.read_uninit(chunk).map_err(|_| self.pair.fail())?;
            let is_last = count < chunk.len();
            taken += count;
            self.show_room();
            if is_last {
                break;
            }
        }
        Ok(taken)
    }

    /// Shows the fabric the room that reads have made. If the fabric waits for room, signals it
    /// once half of the ring is free. If this process cannot signal, `seen` gets back the number
    /// from before. The fabric's wait then counts as not signalled, and the next read of another
    /// process signals the fabric.
    #[inline]
    fn show_room(&mut self) {
        let is_half = self.ring.free().is_ok_and(|free| free >= self.ring.size() / 2);
        let seen = self.ring.private().seen;
        if self.ring.publish() && is_half && self.ring.must_signal() && !self.pair.bell() {
            self.ring.go_on(Private { seen, ..self.ring.private() });
        }
    }

    fn peek(&mut self, target: &mut Target<'_>, done: usize) -> Result<usize, Stop> {
        let mut taken = 0;
        let mut unused = [MaybeUninit::uninit(); 4096];
        while let Some(chunk) = target.part(done + taken, CHUNK, &mut unused) {
            let count = self.ring.peek_uninit(taken, chunk).map_err(|_| self.pair.fail())?;
            taken += count;
            if count < chunk.len() {
                break;
            }
        }
        Ok(taken)
    }

    /// Reads what has come by packets, and not a byte more.
    fn take_packets(
        &mut self,
        target: &mut Target<'_>,
        done: usize,
        peeks: bool,
    ) -> Result<Option<usize>, Stop> {
        let left = self.pair.by_packets();
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        if let (Target::Nowhere(len), true) = (&*target, peeks) {
            let counted = count_unread(self.pair.fd, most.min(len - done));
            return match counted {
                Ok(0) => self.over(),
                Ok(count) => Ok(Some(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        let mut unused = [MaybeUninit::uninit(); 4096];
        let Some(part) = target.part(done, most, &mut unused) else { return Ok(Some(0)) };
        let flags = if peeks { RecvFlags::DONTWAIT | RecvFlags::PEEK } else { RecvFlags::DONTWAIT };
        match at(self.pair.fd).and_then(|stream| recv(stream, part, flags)) {
            // The rest of what was announced does not come any more.
            Ok((([], _), _)) => self.over(),
            Ok(((filled, _), _)) => {
                let count = filled.len();
                if !peeks {
                    self.pair.set_by_packets(left - count as u64);
                }
                Ok(Some(count))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells whether the fabric adds nothing to the ring any more, not even the end of the stream.
    fn is_gone(&self) -> bool {
        self.pair.has(flag::ENDED) || self.pair.hung_up().is_some_and(|since| since > PATIENCE)
    }

    /// Tells whether a read would return at once.
    pub(super) fn is_ready(&self) -> bool {
        if self.pair.by_packets() > 0 {
            let Ok(stream) = at(self.pair.fd) else { return true };
            let mut polled = [PollFd::from_borrowed_fd(stream, PollFlags::IN)];
            return poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0);
        }
        self.ring.look().map_or(true, |look| look.bytes > 0 || look.end != End::Open)
            || self.is_gone()
            || self.pair.has(flag::FAULT | flag::SHUT_READ)
    }

    /// Number of bytes that can be read, of those in the ring.
    pub(super) fn available(&self) -> u32 {
        self.ring.available().unwrap_or(0)
    }

    /// How the stream goes on.
    pub(super) fn end(&self) -> End {
        self.ring.look().map_or(End::Reset, |look| {
            if look.end == End::Open && self.is_gone() { End::Reset } else { look.end }
        })
    }

    /// Gives the connection up if another program has overwritten the position of this end.
    pub(super) fn check(&self) {
        if self.pair.is_lost() {
            return;
        }
        if self.ring.check_position().is_err() {
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
        self.pair.set_announced(Direction::In, true);
    }
}
