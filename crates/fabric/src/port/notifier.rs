//! The interrupt of one ring.

use std::sync::Arc;
use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::counters::PortWord;

use crate::moderation::{Interrupt, Interrupts};
use crate::sys::counters::PortBlock;
use crate::sys::event_fd::EventFd;

/// A ring's call descriptor behind its moderator.
///
/// A method that returns a time wants [`Self::due`] to be called at that time.
#[derive(Debug)]
pub struct Notifier {
    call: Option<Arc<EventFd>>,
    moderator: Interrupts,
}

impl Notifier {
    /// Creates the notifier of a ring with `size` entries.
    pub fn new(call: Option<Arc<EventFd>>, coalescing: Coalescing, size: u16) -> Self {
        Self { call, moderator: Interrupts::new(coalescing, size) }
    }

    /// Notes that the guest was shown packets; `wanted` says whether it asked for an interrupt.
    #[inline]
    pub fn published(
        &mut self,
        packets: usize,
        wanted: bool,
        now: Instant,
        counters: &PortBlock,
    ) -> Option<Instant> {
        let packets = packets.try_into().unwrap_or(u32::MAX);
        let answer = self.moderator.published(now, packets, wanted);
        self.act(answer, counters)
    }

    /// Sends the interrupt if it is due.
    #[inline]
    pub fn due(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        let answer = self.moderator.due(now);
        self.act(answer, counters)
    }

    #[inline]
    fn act(&self, answer: Interrupt, counters: &PortBlock) -> Option<Instant> {
        match answer {
            Interrupt::No => None,
            Interrupt::Now => {
                self.ring();
                counters.add_shared(PortWord::Interrupts, 1);
                None
            }
            Interrupt::At(when) => Some(when),
        }
    }

    /// Sends a pending interrupt without further delay.
    pub fn release(&mut self, now: Instant, counters: &PortBlock) {
        if self.moderator.release(now) {
            self.act(Interrupt::Now, counters);
        }
    }

    /// Notes that the guest's ring is empty, which ends the delay of some schemes.
    #[inline]
    pub fn idle(&mut self, now: Instant, counters: &PortBlock) {
        if self.moderator.idle(now) {
            self.act(Interrupt::Now, counters);
        }
    }

    /// Interrupts the guest, whether or not there is anything new.
    pub fn ring(&self) {
        if let Some(call) = &self.call {
            call.signal();
        }
    }

    /// Replaces the call descriptor.
    pub fn set_call(&mut self, call: Option<Arc<EventFd>>) {
        self.call = call;
    }

    /// Changes the moderation. The caller then has a worker call [`Self::due`].
    pub fn moderate(&mut self, coalescing: Coalescing) {
        self.moderator.set(coalescing);
    }
}
