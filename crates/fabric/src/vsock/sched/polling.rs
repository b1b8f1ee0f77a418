//! Polling: how long a silent transmit ring is polled before its guest is asked to kick.
//!
//! The window adapts as KVM's halt polling does: it grows while silences turn out short and shrinks
//! when they turn out long. Polling in vain takes a CPU from the guests.

use std::time::{Duration, Instant};

use taut_api::fabric::config::WorkerMode;

use crate::vsock::proto::{GuestIdx, PerGuest};

/// Shortest window, once there has been a silence.
const SHORTEST: Duration = Duration::from_micros(20);

/// The adaptive window of one ring.
#[derive(Debug, Default)]
struct Window(Duration);

impl Window {
    /// The window, limited to `longest`.
    fn get(&self, longest: Duration) -> Duration {
        self.0.min(longest)
    }

    /// Adapts the window to a silence that has ended.
    fn adapt(&mut self, silence: Duration, longest: Duration) {
        self.0 = match self.0 / 2 {
            half if silence > longest => half.max(SHORTEST).min(longest),
            _ => self.0.saturating_mul(2).clamp(SHORTEST.min(longest), longest),
        };
    }
}

/// Polling state of one transmit ring.
#[derive(Debug, Default)]
struct Polled {
    /// The ring is in [`Polling::awake`].
    awake: bool,
    /// Time at which the ring last had a packet.
    last_packet: Option<Instant>,
    window: Window,
}

/// The transmit rings that are polled in each round.
#[derive(Debug)]
pub(crate) struct Polling {
    mode: WorkerMode,
    rings: PerGuest<Polled>,
    awake: Vec<GuestIdx>,
}

impl Polling {
    pub(crate) fn new() -> Self {
        Self { mode: WorkerMode::default(), rings: PerGuest::default(), awake: Vec::new() }
    }

    /// Changes when rings are polled.
    pub(crate) fn set_mode(&mut self, mode: WorkerMode) {
        self.mode = mode;
    }

    /// Provides the state of the ring of a guest whose index is new.
    pub(crate) fn provide_guest(&mut self, guest: GuestIdx) {
        if !self.rings.contains(guest) {
            self.rings.push(Polled::default());
        }
    }

    /// Polls a ring in each round until it has been silent for its window.
    pub(crate) fn wake(&mut self, guest: GuestIdx, now: Instant) {
        let longest = self.longest();
        let ring = &mut self.rings[guest];
        if !std::mem::replace(&mut ring.awake, true) {
            if let Some(last) = ring.last_packet.replace(now) {
                ring.window.adapt(now.saturating_duration_since(last), longest);
            }
            self.awake.push(guest);
        }
    }

    /// The polled ring at a place of the list.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<GuestIdx> {
        self.awake.get(place).copied()
    }

    /// Notes that a ring had packets.
    #[inline]
    pub(crate) fn on_packets(&mut self, guest: GuestIdx, now: Instant) {
        self.rings[guest].last_packet = Some(now);
    }

    /// Tells whether a ring has been silent for its window.
    pub(crate) fn is_silent(&self, guest: GuestIdx, now: Instant) -> bool {
        let longest = self.longest();
        let ring = &self.rings[guest];
        let window = match self.mode {
            WorkerMode::Polling => longest,
            _ => ring.window.get(longest),
        };
        ring.last_packet.is_none_or(|last| now.saturating_duration_since(last) >= window)
    }

    /// Ends the polling of the ring at a place of the list. Another ring moves there.
    pub(crate) fn sleep(&mut self, place: usize) {
        let guest = self.awake.swap_remove(place);
        self.rings[guest].awake = false;
    }

    /// Ends the polling of a guest's ring, which has stopped.
    pub(crate) fn stop(&mut self, guest: GuestIdx) {
        self.awake.retain(|&other| other != guest);
        self.rings[guest].awake = false;
    }

    /// Forgets everything about the ring of a removed guest.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.stop(guest);
        self.rings[guest] = Polled::default();
    }

    /// Tells whether no ring is polled.
    pub(crate) fn is_idle(&self) -> bool {
        self.awake.is_empty()
    }

    /// Tells whether rings are polled for a while, and not always or never.
    pub(crate) fn is_adaptive(&self) -> bool {
        matches!(self.mode, WorkerMode::Adaptive { .. })
    }

    /// Longest window that the mode allows.
    fn longest(&self) -> Duration {
        match self.mode {
            WorkerMode::Interrupt => Duration::ZERO,
            WorkerMode::Adaptive { poll_us } => Duration::from_micros(poll_us.into()),
            WorkerMode::Polling => Duration::MAX,
        }
    }
}

#[cfg(any(test, feature = "rig"))]
impl Polling {
    /// Checks that a ring is in the list once if it is awake, and not otherwise.
    pub(crate) fn check(&self, guest: GuestIdx) {
        let listed = self.awake.iter().filter(|&&other| other == guest).count();
        assert_eq!(listed, usize::from(self.rings[guest].awake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_with_short_silences_and_shrinks_with_long_ones() {
        let longest = Duration::from_micros(50);
        let mut window = Window::default();
        assert_eq!(window.get(longest), Duration::ZERO);
        let mut grows = |silence| {
            window.adapt(Duration::from_micros(silence), longest);
            window.get(longest).as_micros()
        };
        assert_eq!([grows(5), grows(50), grows(20)], [20, 40, 50]);
        assert_eq!([grows(51), grows(51), grows(9)], [25, 20, 40]);
        assert_eq!(window.get(Duration::ZERO), Duration::ZERO);
        // In polling mode there is no longest window, and a ring may start anew any number of
        // times.
        (0..200).for_each(|_| window.adapt(longest, Duration::MAX));
        window.adapt(longest, Duration::ZERO);
        assert_eq!(window.get(longest), Duration::ZERO);
    }
}
