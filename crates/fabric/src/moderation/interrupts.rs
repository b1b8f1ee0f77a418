//! The moderator of interrupts.

use std::time::Instant;

use super::Coalescing;
use super::adapt::Adapt;
use super::clock::{self, MAX_DELAY};
use super::pending::PendingInterrupt;
use super::rbc::Rbc;

/// The decision about an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// No interrupt is needed.
    No,
    /// Interrupt now. The moderator says so once: the caller must send the interrupt.
    Now,
    /// Not yet. The caller asks [`Interrupts::due`] at this time.
    At(Instant),
}

/// The scheme in force, with its state. A pending interrupt stays pending when the scheme changes.
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
    /// Largest number of packets for which an interrupt is held back.
    most: u32,
}

impl Interrupts {
    /// Creates the moderator of a ring with `size` entries.
    pub fn new(coalescing: Coalescing, size: u16) -> Self {
        Self { scheme: Scheme::of(coalescing), pending: None, most: u32::from(size / 2).max(1) }
    }

    /// Changes the scheme. The caller then asks [`Self::due`].
    pub fn set(&mut self, coalescing: Coalescing) {
        self.scheme = Scheme::of(coalescing);
    }

    /// Notes that the guest was shown packets. `wanted` says whether it asked for an interrupt
    /// since the last one.
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

    /// Decides whether an interrupt is due at this time. An unneeded call does no harm.
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

    /// Ends the delay. Returns `true` if an interrupt was pending, which the caller must send.
    pub fn release(&mut self, now: Instant) -> bool {
        let Some(pending) = self.pending.take() else { return false };
        match &mut self.scheme {
            Scheme::Disabled | Scheme::Static(_) | Scheme::Dense => {}
            Scheme::Rbc(rbc) => rbc.sent(now, &pending),
            Scheme::Adapt(adapt) => adapt.sent(now, &pending),
        }
        true
    }

    /// Notes that the guest's transmit ring is empty. `static` and `dense` then end the delay: the
    /// guest may wait for its buffers. Returns `true` if the caller must send an interrupt.
    pub fn idle(&mut self, now: Instant) -> bool {
        matches!(self.scheme, Scheme::Static(_) | Scheme::Dense) && self.release(now)
    }
}
