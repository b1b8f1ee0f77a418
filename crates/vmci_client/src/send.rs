//! Writing: the ring OUT.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use taut_queue_pair::{Direction, End, Hostile, Producer};

use crate::link::{Link, Woken};
use crate::spin::Spin;
use crate::time::Wait;

/// Most bytes that are written before the fabric may take them.
const CHUNK: usize = 32 << 10;
/// When the peer has ended its own direction, one of this many writes asks the kernel whether it
/// still receives.
const WRITES_PER_CHECK: u32 = 16;

/// The end that writes.
#[derive(Debug)]
pub(crate) struct Sender {
    state: Mutex<State>,
    spin: Spin,
}

#[derive(Debug)]
struct State {
    ring: Producer,
    /// True after the shutdown of writing.
    is_shut: bool,
    /// True when the peer is known to receive nothing any more.
    is_gone: bool,
    /// Writes since the peer has ended its own direction.
    since_end: u32,
    /// Threads that sleep, or are about to.
    waiters: u32,
    /// True while the program itself waits.
    is_armed: bool,
}

impl Sender {
    pub(crate) fn new(ring: Producer, poll: Duration) -> Self {
        let state = State { ring, is_shut: false, is_gone: false, since_end: 0, waiters: 0, is_armed: false };
        Self { state: Mutex::new(state), spin: Spin::new(poll) }
    }

    /// Writes at least one byte, unless there are none. `check` is called after each sleep, and its
    /// error is that of the call.
    pub(crate) fn write(
        &self,
        link: &Link,
        bytes: &[u8],
        wait: Wait,
        check: impl Fn() -> io::Result<()>,
    ) -> io::Result<usize> {
        if let Some(count) = self.lock().put(link, bytes)? {
            return Ok(count);
        }
        if wait == Wait::No {
            if link.look_at_sockets_sometimes() {
                check()?;
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (begin, until) = (Instant::now(), wait.deadline());
        if self.spin.until(until, || self.lock().has_room(1))
            && let Some(count) = self.lock().put(link, bytes)?
        {
            return Ok(count);
        }
        loop {
            let woken = self.sleep(link, bytes.len(), until);
            check()?;
            if let Some(count) = self.lock().put(link, bytes)? {
                self.spin.slept(begin.elapsed());
                return Ok(count);
            }
            woken.check()?;
        }
    }

    /// Sleeps until there may be room for this many bytes, or in half of the ring.
    fn sleep(&self, link: &Link, wanted: usize, until: Option<Instant>) -> Woken {
        let epoch = link.epoch();
        let mut state = self.lock();
        state.waiters += 1;
        state.wait(link);
        let woken = if state.has_room(wanted) || state.is_over(link) {
            Woken::Changed
        } else {
            drop(state);
            let woken = link.sleep(epoch, until);
            state = self.lock();
            woken
        };
        state.waiters -= 1;
        state.stop_waiting(link);
        woken
    }

    /// Has the channel fail if another program has overwritten the position of this end, or the end
    /// word. Does nothing while another thread uses the end.
    pub(crate) fn check(&self, link: &Link) -> io::Result<()> {
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        let end = if state.is_shut { End::Finished } else { End::Open };
        state.ring.check_position(end).map_err(|fault| link.fail(fault))
    }

    /// Says that no more bytes follow.
    pub(crate) fn shut(&self, link: &Link) -> io::Result<()> {
        link.check()?;
        let mut state = self.lock();
        if !state.is_shut {
            state.is_shut = true;
            state.ring.finish(End::Finished);
            if state.ring.must_signal() {
                link.bell();
            }
            // A write of another thread that waits for room fails.
            link.wake_all();
        }
        Ok(())
    }

    /// Tells whether a write would return at once. With less than half of the ring free, it is
    /// said not to, so that programs do not write in small pieces.
    pub(crate) fn is_ready(&self, link: &Link) -> bool {
        self.lock().is_ready(link)
    }

    /// Has the fabric signal room, on behalf of the program's own wait. Returns whether a write
    /// would return at once; then the fabric signals nothing.
    pub(crate) fn arm(&self, link: &Link) -> bool {
        let mut state = self.lock();
        state.is_armed = true;
        state.wait(link);
        let ready = state.is_ready(link);
        if ready {
            state.is_armed = false;
            state.stop_waiting(link);
        }
        ready
    }

    /// Ends what [`Self::arm`] began.
    pub(crate) fn disarm(&self, link: &Link) {
        let mut state = self.lock();
        state.is_armed = false;
        state.stop_waiting(link);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Writes what there is room for; `None` if there is none.
    fn put(&mut self, link: &Link, bytes: &[u8]) -> io::Result<Option<usize>> {
        link.check()?;
        if self.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if link.has_ended() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.check_peer(link)?;
        let mut done = 0;
        for chunk in bytes.chunks(CHUNK) {
            let count = self.ring.write(chunk).map_err(|fault| link.fail(fault))?;
            done += count;
            if self.ring.publish() && self.ring.must_signal() {
                link.bell();
            }
            if count < chunk.len() {
                break;
            }
        }
        Ok((done > 0 || bytes.is_empty()).then_some(done))
    }

    /// Returns an error if the peer receives nothing any more.
    fn check_peer(&mut self, link: &Link) -> io::Result<()> {
        let value = self.peers_end();
        if value == End::Reset.number() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if value > End::Reset.number() {
            return Err(link.fail(Hostile::End { direction: Direction::In, value }));
        }
        if value == End::Finished.number() || link.hung_up().is_some() {
            // The peer has ended its direction. Only the kernel knows whether it closed.
            let is_due = self.since_end.is_multiple_of(WRITES_PER_CHECK) || !self.has_room(1);
            self.since_end = self.since_end.wrapping_add(1);
            self.is_gone = self.is_gone || is_due && !link.peer_receives();
            if self.is_gone {
                return Err(io::ErrorKind::BrokenPipe.into());
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

    /// Tells whether a write fails whatever room there is.
    fn is_over(&self, link: &Link) -> bool {
        self.is_shut
            || self.is_gone
            || link.has_ended()
            || link.check().is_err()
            || self.peers_end() >= End::Reset.number()
    }

    /// Tells whether a write would return at once, with bytes written or an error.
    fn is_ready(&mut self, link: &Link) -> bool {
        if self.has_room(usize::MAX) || self.is_over(link) {
            return true;
        }
        // Nobody makes room any more if the peer has closed, and only the kernel knows whether it
        // has.
        let may_be_gone = self.peers_end() == End::Finished.number() || link.hung_up().is_some();
        self.is_gone = may_be_gone && !link.peer_receives();
        self.is_gone
    }

    /// Announces a wait by a new number; never withdraws the present one, for which another thread
    /// may sleep. The fabric signals each number once at most, and may have done so for the present
    /// one. Does nothing once the channel is lost.
    fn wait(&mut self, link: &Link) {
        if !link.is_lost() {
            self.ring.wait();
        }
    }

    /// Ends the wait unless others still wait. Does nothing once the channel is lost.
    fn stop_waiting(&mut self, link: &Link) {
        if self.waiters == 0 && !self.is_armed && !link.is_lost() {
            self.ring.stop_waiting();
        }
    }
}
