//! Moderation: news that a guest need not have at once, because each packet and each interrupt
//! takes the guest away from its work.
//!
//! A sender need not know of new credit while it may send half a buffer more. Linux asks for an
//! interrupt for every packet that it gets back, and needs none until its ring is nearly full. A
//! guest gets both with the next packet or interrupt that it needs, or after [`DELAY`]. So a guest
//! that waits for the news, against expectation, waits no longer than that.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::vsock::guest::Sender;
use crate::vsock::proto::{FlowId, GuestIdx};

/// Longest delay of news.
const DELAY: Duration = Duration::from_millis(1);

/// News that wait until they are due. Each list has the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Flows whose receiver is to be told the sender's new credit.
    updates: VecDeque<(Instant, FlowId)>,
    /// Guests to interrupt for transmitted packets that they have got back.
    interrupts: VecDeque<(Instant, GuestIdx)>,
    /// Guests whose transmit rings are crowded.
    reliefs: VecDeque<(Instant, GuestIdx)>,
}

impl Deferred {
    /// Schedules a credit update to the receiver of a flow.
    #[inline]
    pub(crate) fn update(&mut self, flow: FlowId, now: Instant) {
        self.updates.push_back((now + DELAY, flow));
    }

    /// Schedules an interrupt of a guest for packets that it has got back.
    #[inline]
    pub(crate) fn interrupt(&mut self, guest: GuestIdx, sender: &mut Sender, now: Instant) {
        if !std::mem::replace(&mut sender.owes_interrupt, true) {
            self.interrupts.push_back((now + DELAY, guest));
        }
    }

    /// Schedules a look at the transmit ring of a guest, which is crowded.
    #[inline]
    pub(crate) fn relief(&mut self, guest: GuestIdx, sender: &mut Sender, now: Instant) {
        if !std::mem::replace(&mut sender.relief_is_due, true) {
            self.reliefs.push_back((now + DELAY, guest));
        }
    }

    /// Time at which the first news is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let update = self.updates.front().map(|(at, _)| *at);
        let interrupt = self.interrupts.front().map(|(at, _)| *at);
        let relief = self.reliefs.front().map(|(at, _)| *at);
        update.into_iter().chain(interrupt).chain(relief).min()
    }

    /// Takes a credit update that is due.
    pub(crate) fn due_update(&mut self, now: Instant) -> Option<FlowId> {
        take_due(&mut self.updates, now)
    }

    /// Takes a guest whose transmit ring is to be looked at.
    pub(crate) fn due_relief(&mut self, now: Instant) -> Option<GuestIdx> {
        take_due(&mut self.reliefs, now)
    }

    /// Takes an interrupt that is due.
    pub(crate) fn due_interrupt(&mut self, now: Instant) -> Option<GuestIdx> {
        take_due(&mut self.interrupts, now)
    }
}

fn take_due<T: Copy>(list: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<T> {
    list.front().filter(|(at, _)| *at <= now)?;
    list.pop_front().map(|(_, item)| item)
}
