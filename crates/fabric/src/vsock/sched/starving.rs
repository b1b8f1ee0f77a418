//! Receivers that take nothing: guests without buffers for which something waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::vsock::guest::Receiver;
use crate::vsock::proto::GuestIdx;

/// A guest that has had no buffer for this long is reported.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// Guests without buffers, the one that is to be looked at first in front.
#[derive(Debug, Default)]
pub(crate) struct Starving(VecDeque<(Instant, GuestIdx)>);

impl Starving {
    /// Schedules a look at a guest that has had no buffer since then.
    #[inline]
    pub(crate) fn watch(&mut self, guest: GuestIdx, receiver: &mut Receiver, since: Instant) {
        if !std::mem::replace(&mut receiver.check_is_due, true) {
            self.0.push_back((since + LONG, guest));
        }
    }

    /// Forgets a removed guest.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.0.retain(|&(_, other)| other != guest);
    }

    /// Time of the next look.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Takes a guest that is to be looked at now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<GuestIdx> {
        self.0.front().filter(|(at, _)| *at <= now)?;
        self.0.pop_front().map(|(_, guest)| guest)
    }
}
