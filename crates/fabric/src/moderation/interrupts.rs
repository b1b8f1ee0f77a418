//! When the guest is interrupted.

use std::time::Instant;

use super::Coalescing;
use super::adapt::Adapt;
use super::clock::{self, MAX_DELAY};
use super::pending::PendingInterrupt;
use super::rbc::Rbc;

/// May the guest be interrupted?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// There is no need.
    No,
    /// Now. The answer is given once: whoever gets it interrupts.
    Now,
    /// Not yet; ask [`Interrupts::due`] at this time.
    At(Instant),
}

/// One answer to the question a scheme. An interrupt that is pending stays so, whatever scheme follows.
#[derive(Debug)]
enum Scheme {
    Disabled,
    Static(u32),
    Rbc(Rbc),
    Adapt(Adapt),
    Dense,
}

impl Scheme {
    fn of(coalescing: Coalescing) -> Self {
        match coalescing {
            Coalescing::Disabled => Self::Disabled,
            Coalescing::Static { packets } => Self::Static(packets.into()),
            Coalescing::Rbc { rate } => Self::Rbc(Rbc::new(rate)),
            Coalescing::Adapt => Self::Adapt(Adapt::default()),
            Coalescing::Dense => Self::Dense,
        }
    }
}

/// The moderator of a queue's interrupts.
#[derive(Debug)]
pub struct Interrupts {
    scheme: Scheme,
    pending: Option<PendingInterrupt>,
    /// Packets that are held back at most.
    most: u32,
}

impl Interrupts {
    /// The moderator of a ring of `size` entries.
    pub fn new(coalescing: Coalescing, size: u16) -> Self {
        Self { scheme: Scheme::of(coalescing), pending: None, most: u32::from(size / 2).max(1) }
    }

    /// Another scheme. What is pending has to be asked for with [`Self::due`], soon.
    pub fn set(&mut self, coalescing: Coalescing) {
        self.scheme = Scheme::of(coalescing);
    }

    /// The guest has been shown so many packets, and for what it has seen since its last interrupt it wants one, or not.
    #[inline]
    pub fn published(&mut self, now: Instant, packets: u32, wanted: bool) -> Interrupt {
        if let Scheme::Adapt(adapt) = &mut self.scheme {
            adapt.count(now, packets);
        }
        match &mut self.pending {
            Some(pending) => pending.packets = pending.packets.saturating_add(packets),
            None if wanted => self.pending = Some(PendingInterrupt { since: now, first: packets, packets }),
            None => return Interrupt::No,
        }
        self.due(now)
    }

    /// Is an interrupt due at this time? Asking too often, or for nothing, does no harm.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Interrupt {
        let Some(pending) = self.pending else { return Interrupt::No };
        let latest = match &self.scheme {
            Scheme::Disabled => pending.since,
            Scheme::Static(packets) if pending.packets >= *packets => pending.since,
            Scheme::Static(_) => pending.since + MAX_DELAY,
            Scheme::Dense if pending.packets >= u32::from(Coalescing::DEFAULT_PACKETS) => pending.since,
            Scheme::Dense => clock::tick(pending.since),
            Scheme::Rbc(rbc) => rbc.latest(&pending),
            Scheme::Adapt(adapt) => adapt.latest(&pending),
        };
        if now < latest && pending.packets < self.most {
            return Interrupt::At(latest);
        }
        self.release(now);
        Interrupt::Now
    }

    /// No more waiting: tells whether an interrupt was pending, which the caller then sends.
    pub fn release(&mut self, now: Instant) -> bool {
        let Some(pending) = self.pending.take() else { return false };
        match &mut self.scheme {
            Scheme::Disabled | Scheme::Static(_) | Scheme::Dense => {}
            Scheme::Rbc(rbc) => rbc.sent(now, &pending),
            Scheme::Adapt(adapt) => adapt.sent(now, &pending),
        }
        true
    }

    /// The guest has nothing left to do that would need no interrupt: `static` and `dense` do not let it wait then.
    pub fn idle(&mut self, now: Instant) -> bool {
        matches!(self.scheme, Scheme::Static(_) | Scheme::Dense) && self.release(now)
    }
}
