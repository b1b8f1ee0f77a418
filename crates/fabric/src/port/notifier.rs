//! What interrupts a guest for one of its rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::counters::PortWord;

use crate::moderation::{Interrupt, Interrupts};
use crate::sys::counters::PortBlock;
use crate::sys::epoll::signal;

/// A ring's call descriptor, behind its moderator. Whatever tells a time wants to be asked again then: [`Self::due`].
#[derive(Debug)]
pub struct Notifier {
    call: Option<Arc<OwnedFd>>,
    moderator: Interrupts,
}

impl Notifier {
    /// The notifier of a ring of `size` entries.
    pub fn new(call: Option<Arc<OwnedFd>>, coalescing: Coalescing, size: u16) -> Self {
        Self { call, moderator: Interrupts::new(coalescing, size) }
    }

    /// The guest has been shown so many packets, and wants to be told, or not.
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

    /// Does what is due at this time.
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

    /// Nothing is held back any longer.
    pub fn release(&mut self, now: Instant, counters: &PortBlock) {
        if self.moderator.release(now) {
            self.act(Interrupt::Now, counters);
        }
    }

    /// The guest has nothing left to do.
    #[inline]
    pub fn idle(&mut self, now: Instant, counters: &PortBlock) {
        if self.moderator.idle(now) {
            self.act(Interrupt::Now, counters);
        }
    }

    /// Interrupts the guest, whether or not there is anything new.
    pub fn ring(&self) {
        if let Some(call) = &self.call {
            signal(call);
        }
    }

    /// Replaces the descriptor.
    pub fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.call = call;
    }

    /// Another scheme; [`Self::due`] is to be asked, soon.
    pub fn moderate(&mut self, coalescing: Coalescing) {
        self.moderator.set(coalescing);
    }
}
