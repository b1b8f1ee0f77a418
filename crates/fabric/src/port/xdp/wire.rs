//! State of a card as the kernel's answers show it: whether it takes frames, and when the kernel is
//! called again for those that it did not take.

use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Shortest time until the kernel is called again.
const SOONEST: Duration = Duration::from_micros(200);
/// Longest time until the kernel is called again.
const LATEST: Duration = Duration::from_millis(100);
/// Part of the time without progress after which the kernel is called again: one of so many.
const PARTS: u32 = 8;
/// Time after which frames that the kernel refuses are too old to be sent. The kernel has them, so
/// only a new socket gets rid of them.
const STALE: Duration = Duration::from_secs(5);

/// State of a card.
#[derive(Debug, Default)]
pub(super) struct Wire {
    state: State,
    /// Time since which something has waited without progress.
    since: Option<Instant>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Up,
    /// The kernel takes no frames, for this reason: mostly, the interface is set down.
    Down(Errno),
    /// The socket has to be replaced.
    Gone(String),
}

impl Wire {
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Gives the socket up.
    pub(super) fn give_up(&mut self, why: impl Into<String>) {
        self.state = State::Gone(why.into());
    }

    /// Notes that no frame waits for the kernel. The next one tells whether the card takes frames.
    pub(super) fn nothing_waits(&mut self) {
        if matches!(self.state, State::Down(_)) {
            self.state = State::Up;
        }
    }

    /// Notes that the kernel has taken frames, or given chunks back.
    pub(super) fn progressed(&mut self) {
        self.since = None;
    }

    /// Notes the kernel's answer to a call, and whether frames or chunks have moved. Returns `true`
    /// if another call is worth while at once.
    pub(super) fn called(&mut self, answer: Result<(), Errno>, has_progress: bool, now: Instant) -> bool {
        let error = match answer {
            Err(Errno::NXIO | Errno::NODEV) => {
                self.give_up("the network interface is gone");
                return false;
            }
            // A call sends a limited number of frames. A card without a carrier drops one a call,
            // which the kernel answers by EBUSY.
            _ if has_progress => {
                self.state = State::Up;
                self.progressed();
                return true;
            }
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOBUFS | Errno::NOMEM) => {
                self.state = State::Up;
                return false;
            }
            Err(error) => error,
        };
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < STALE {
            self.state = State::Down(error);
        } else if error == Errno::NETDOWN {
            self.give_up("the network interface is set down, and frames that wait for it are too old");
        } else {
            self.give_up(format!("the kernel sends no frames: {error}"));
        }
        false
    }

    /// Returns the time at which to call the kernel again, if something `waits`: the later, the
    /// longer there was no progress.
    pub(super) fn next_call(&mut self, waits: bool, now: Instant) -> Option<Instant> {
        if !waits || matches!(self.state, State::Gone(_)) {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        Some(now + (now.saturating_duration_since(since) / PARTS).clamp(SOONEST, LATEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the kernel, which always answers in this way, as often as the timer says, for ten
    /// seconds. Returns the number of calls.
    fn call_for_ten_seconds(wire: &mut Wire, answer: Result<(), Errno>) -> u32 {
        let begin = Instant::now();
        let (mut now, mut calls) = (begin, 0);
        loop {
            assert!(!wire.called(answer, false, now), "a call without progress is the last one");
            calls += 1;
            match wire.next_call(true, now) {
                Some(next) if next < begin + Duration::from_secs(10) => now = next,
                _ => return calls,
            }
        }
    }

    #[test]
    fn a_card_that_takes_nothing_is_called_less_and_less_often() {
        for answer in [Ok(()), Err(Errno::AGAIN), Err(Errno::BUSY), Err(Errno::NOBUFS)] {
            let mut wire = Wire::default();
            let calls = call_for_ten_seconds(&mut wire, answer);
            assert!((90..200).contains(&calls), "{calls} calls in 10 s for {answer:?}");
            assert_eq!(*wire.state(), State::Up, "frames wait for a card that is busy");
        }
    }

    #[test]
    fn a_card_that_goes_on_is_called_soon() {
        let mut wire = Wire::default();
        call_for_ten_seconds(&mut wire, Err(Errno::BUSY));
        let now = Instant::now() + Duration::from_secs(10);
        assert!(wire.called(Err(Errno::AGAIN), true, now), "there is more to send");
        assert_eq!(wire.next_call(true, now), Some(now + SOONEST));
        assert_eq!(wire.next_call(false, now), None);
    }

    #[test]
    fn frames_wait_for_a_card_that_is_down_but_not_until_they_are_old() {
        for error in [Errno::NETDOWN, Errno::INVAL] {
            let mut wire = Wire::default();
            let now = Instant::now();
            assert!(!wire.called(Err(error), false, now));
            assert_eq!(*wire.state(), State::Down(error));
            assert!(!wire.called(Err(error), false, now + STALE / 2));
            assert!(wire.called(Ok(()), true, now + STALE / 2), "it is up again");
            assert_eq!(*wire.state(), State::Up);

            let calls = call_for_ten_seconds(&mut wire, Err(error));
            assert!((40..150).contains(&calls), "{calls} calls until they are old");
            wire.nothing_waits();
            assert!(matches!(wire.state(), State::Gone(_)), "it does not come back");
        }
    }

    #[test]
    fn a_card_that_is_gone_is_given_up_at_once() {
        let mut wire = Wire::default();
        assert!(!wire.called(Err(Errno::NXIO), true, Instant::now()));
        assert_eq!(*wire.state(), State::Gone("the network interface is gone".to_owned()));
    }
}
