//! Reading: bytes that came by packets first, then those of the ring IN.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use taut_queue_pair::{Consumer, End};

use crate::link::{Link, Woken};
use crate::spin::Spin;
use crate::time::{Wait, timeout};

/// Most bytes that are read before the fabric gets their room back.
const CHUNK: usize = 32 << 10;
/// Time for the fabric to say in the ring how a stream has ended whose socket says that it has.
const PATIENCE: Duration = Duration::from_secs(5);

/// The end that reads.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: Mutex<State>,
    spin: Spin,
}

#[derive(Debug)]
struct State {
    ring: Consumer,
    /// Bytes that still come by packets, through the stream's socket.
    by_packets: u64,
    /// Threads that sleep, or are about to.
    waiters: u32,
    /// True while the program itself waits.
    is_armed: bool,
}

impl Receiver {
    pub(crate) fn new(ring: Consumer, by_packets: u64, poll: Duration) -> Self {
        let state = State { ring, by_packets, waiters: 0, is_armed: false };
        Self { state: Mutex::new(state), spin: Spin::new(poll) }
    }

    /// Reads at least one byte, or returns 0 at the end of the stream. `check` is called after each
    /// sleep, and its error is that of the call.
    pub(crate) fn read(
        &self,
        link: &Link,
        buffer: &mut [u8],
        wait: Wait,
        check: impl Fn() -> io::Result<()>,
    ) -> io::Result<usize> {
        if let Some(count) = self.lock().take(link, buffer)? {
            return Ok(count);
        }
        if wait == Wait::No {
            if link.look_at_sockets_sometimes() {
                check()?;
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (begin, until) = (Instant::now(), wait.deadline());
        if self.by_packets() == 0
            && self.spin.until(until, || self.lock().has_news())
            && let Some(count) = self.lock().take(link, buffer)?
        {
            return Ok(count);
        }
        loop {
            let woken = self.sleep(link, until);
            check()?;
            if let Some(count) = self.lock().take(link, buffer)? {
                self.spin.slept(begin.elapsed());
                return Ok(count);
            }
            woken.check()?;
        }
    }

    /// Sleeps until there may be something to read.
    fn sleep(&self, link: &Link, until: Option<Instant>) -> Woken {
        let epoch = link.epoch();
        let mut state = self.lock();
        if state.by_packets > 0 {
            drop(state);
            return wait_for_packets(link, until);
        }
        state.waiters += 1;
        state.wait(link);
        let woken = if state.has_news() || link.is_lost() {
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

    /// Has the channel fail if another program has overwritten the position of this end. Does
    /// nothing while another thread uses the end.
    pub(crate) fn check(&self, link: &Link) -> io::Result<()> {
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        state.ring.check_position().map_err(|fault| link.fail(fault))
    }

    /// Tells whether a read would return at once.
    pub(crate) fn is_ready(&self, link: &Link) -> bool {
        self.lock().is_ready(link)
    }

    /// Has the fabric signal bytes, on behalf of the program's own wait. Returns whether a read
    /// would return at once; then the fabric signals nothing.
    pub(crate) fn arm(&self, link: &Link) -> bool {
        let mut state = self.lock();
        state.is_armed = true;
        if state.by_packets == 0 {
            state.wait(link);
        }
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

    /// Bytes that still come by packets.
    pub(crate) fn by_packets(&self) -> u64 {
        self.lock().by_packets
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reads what there is; `None` if there is nothing yet.
    fn take(&mut self, link: &Link, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        link.check()?;
        if self.by_packets > 0 {
            return self.take_packets(link, buffer);
        }
        loop {
            let done = self.take_ring(link, buffer)?;
            if done > 0 {
                return Ok(Some(done));
            }
            // Before the look: what the fabric wrote before it went away is seen by the look.
            let gone = is_gone(link);
            let look = self.ring.look().map_err(|fault| link.fail(fault))?;
            match look.end {
                _ if look.bytes > 0 => {}
                End::Finished => return Ok(Some(0)),
                End::Open if !gone => return Ok(None),
                End::Open | End::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    }

    /// Reads from the ring, in chunks, so that the fabric refills it meanwhile.
    fn take_ring(&mut self, link: &Link, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        for chunk in buffer.chunks_mut(CHUNK) {
            let count = self.ring.read(chunk).map_err(|fault| link.fail(fault))?;
            done += count;
            // A fabric that waits for room is told once half of the ring is free.
            let free = self.ring.free().map_err(|fault| link.fail(fault))?;
            if self.ring.publish() && free >= self.ring.size() / 2 && self.ring.must_signal() {
                link.bell();
            }
            if count < chunk.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Reads what has come by packets, and not a byte more.
    fn take_packets(&mut self, link: &Link, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let most = usize::try_from(self.by_packets).map_or(buffer.len(), |left| left.min(buffer.len()));
        let Some(part) = buffer.get_mut(..most) else { return Ok(None) };
        match recv(link.stream(), part, RecvFlags::DONTWAIT) {
            // The rest of what was announced does not come any more.
            Ok((_, 0)) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok((_, count)) => {
                self.by_packets -= count as u64;
                Ok(Some(count))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells whether the ring has changed, in a way that a read notices.
    fn has_news(&self) -> bool {
        if self.by_packets > 0 {
            return false;
        }
        self.ring.look().map_or(true, |look| look.bytes > 0 || look.end != End::Open)
    }

    fn is_ready(&self, link: &Link) -> bool {
        if self.by_packets > 0 {
            return wait_for_packets(link, Some(Instant::now())) == Woken::Changed;
        }
        self.has_news() || is_gone(link) || link.check().is_err()
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

/// Tells whether the fabric adds nothing to the ring any more, not even the end of the stream.
fn is_gone(link: &Link) -> bool {
    link.has_ended() || link.hung_up().is_some_and(|since| since.elapsed() > PATIENCE)
}

/// Waits for an event of the stream's own socket.
fn wait_for_packets(link: &Link, until: Option<Instant>) -> Woken {
    let mut polled = [PollFd::from_borrowed_fd(link.stream(), PollFlags::IN)];
    match poll(&mut polled, until.map(timeout).as_ref()) {
        Ok(0) => Woken::TimedOut,
        Ok(_) => Woken::Changed,
        Err(Errno::INTR) => Woken::Interrupted,
        Err(errno) => Woken::Failed(errno),
    }
}
