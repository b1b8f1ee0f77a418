//! When the guest is interrupted.

use std::time::Instant;

use super::adapt::Adapt;
use super::rbc::Rbc;
use super::{Coalescing, LONGEST, clock};

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

/// An interrupt that the guest wants and has not got.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owed {
    /// Since when.
    pub(super) since: Instant,
    /// Packets that came with the wish.
    pub(super) first: u32,
    /// Packets that it will be for.
    pub(super) packets: u32,
}

/// One answer to the question a scheme. An interrupt that is owed stays so whatever scheme follows.
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
    owed: Option<Owed>,
    /// Packets that are held back at most.
    most: u32,
}

impl Interrupts {
    /// The moderator of a ring of `size` entries.
    pub fn new(coalescing: Coalescing, size: u16) -> Self {
        Self { scheme: Scheme::of(coalescing), owed: None, most: u32::from(size / 2).max(1) }
    }

    /// Another scheme. What was owed is to be asked for with [`Self::due`], soon.
    pub fn set(&mut self, coalescing: Coalescing) {
        self.scheme = Scheme::of(coalescing);
    }

    /// The guest has been shown so many packets, and for what it has seen since its last interrupt it wants one, or not.
    #[inline]
    pub fn published(&mut self, now: Instant, packets: u32, wanted: bool) -> Interrupt {
        if let Scheme::Adapt(adapt) = &mut self.scheme {
            adapt.count(now, packets);
        }
        match &mut self.owed {
            Some(owed) => owed.packets = owed.packets.saturating_add(packets),
            None if wanted => self.owed = Some(Owed { since: now, first: packets, packets }),
            None => return Interrupt::No,
        }
        self.due(now)
    }

    /// Is an interrupt due at this time? Asking too often, or for nothing, does no harm.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Interrupt {
        let Some(owed) = self.owed else { return Interrupt::No };
        let latest = match &self.scheme {
            Scheme::Disabled => owed.since,
            Scheme::Static(packets) if owed.packets >= *packets => owed.since,
            Scheme::Static(_) => owed.since + LONGEST,
            Scheme::Dense if owed.packets >= u32::from(Coalescing::DEFAULT_PACKETS) => owed.since,
            Scheme::Dense => clock::tick(owed.since),
            Scheme::Rbc(rbc) => rbc.latest(&owed),
            Scheme::Adapt(adapt) => adapt.latest(&owed),
        };
        if now < latest && owed.packets < self.most {
            return Interrupt::At(latest);
        }
        self.release(now);
        Interrupt::Now
    }

    /// No more waiting: tells whether an interrupt was owed, which the caller then sends.
    pub fn release(&mut self, now: Instant) -> bool {
        let Some(owed) = self.owed.take() else { return false };
        match &mut self.scheme {
            Scheme::Disabled | Scheme::Static(_) | Scheme::Dense => {}
            Scheme::Rbc(rbc) => rbc.sent(now, &owed),
            Scheme::Adapt(adapt) => adapt.sent(now, &owed),
        }
        true
    }

    /// The guest has nothing left to do that would need no interrupt: `static` and `dense` do not let it wait then.
    pub fn idle(&mut self, now: Instant) -> bool {
        matches!(self.scheme, Scheme::Static(_) | Scheme::Dense) && self.release(now)
    }
}
