//! A timer whose end is an event in an epoll set.
//!
//! A time-out of [`Epoll::wait`](super::epoll::Epoll::wait) is set up and taken down with each
//! sleep. A timer is set once, so it costs a thread that sleeps often nothing until it ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// The timer.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    end: Option<Instant>,
}

impl Timer {
    /// Creates a timer that does not run.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, end: None })
    }

    /// Has the timer end at a time, or never. No system call if that was its end before.
    pub fn set(&mut self, end: Option<Instant>, now: Instant) -> io::Result<()> {
        if self.end == end {
            return Ok(());
        }
        // Zero stops a timer.
        let shortest = Duration::from_nanos(1);
        let left = end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now).max(shortest));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) };
        let spec = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec)?;
        self.end = end;
        Ok(())
    }

    /// Takes the event of a timer that has ended.
    pub fn clear(&mut self) {
        // Empty if the timer was set anew meanwhile.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::epoll::{Epoll, EventFlags};
    use super::*;

    #[test]
    fn the_end_of_a_timer_is_an_event_once() {
        let epoll = Epoll::new().unwrap();
        let mut timer = epoll.watch(Timer::new().unwrap(), 7, EventFlags::IN).unwrap();
        let mut ready = Vec::new();
        let mut events = |time: Duration| {
            epoll.wait(&mut ready, Some(time)).unwrap();
            ready.len()
        };
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(30));
        assert_eq!(events(short), 0);
        let now = Instant::now();
        timer.set(Some(now + 4 * short), now).unwrap();
        assert_eq!(events(long), 1);
        assert!(now.elapsed() >= 4 * short);
        timer.clear();
        // The same end again is no new one.
        timer.set(Some(now + 4 * short), now).unwrap();
        assert_eq!(events(short), 0);
        timer.set(Some(now), Instant::now()).unwrap();
        assert_eq!(events(long), 1, "it has ended already");
        timer.clear();
        timer.set(Some(Instant::now() + short), Instant::now()).unwrap();
        timer.set(None, Instant::now()).unwrap();
        assert_eq!(events(4 * short), 0);
    }
}
