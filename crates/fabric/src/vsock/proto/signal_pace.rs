//! Signals for a stream by rings: which of them are held back.
//!
//! While a program streams, the fabric looks at its ring every 100 µs. If each look woke the
//! receiver, it would read a little and sleep again, and waking would cost more than the bytes. So
//! the fabric moves the bytes at each look, and signals once for some of the moves. Then the
//! receiver sleeps for longer and reads more at a time.
//!
//! A signal is held back only while a look follows soon: that look moves more, or releases the
//! signal. So a receiver waits at most [`MOST_HELD`] looks longer for its bytes.

/// Looks in a row that find bytes, after which a further one is taken to be of a stream. Whether
/// the other side sends something meanwhile is told by [`Exchanges`](super::Exchanges).
const LOOKS: u8 = 4;
/// Most moves in a row whose signal is held back.
const MOST_HELD: u8 = 3;

/// The rule that decides which signals of a flow are held back, with its counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SignalPace {
    /// Looks in a row that have found bytes.
    looks: u8,
    /// Moves since the last signal, whose signal is held back.
    held: u8,
}

impl SignalPace {
    /// Records a look that was scheduled, and whether it has found bytes.
    #[inline]
    pub(crate) fn on_look(&mut self, found: bool) {
        self.looks = if found { self.looks.saturating_add(1) } else { 0 };
    }

    /// Forgets the looks so far: the sender had paused and has rung a bell, or has another ring.
    #[inline]
    pub(crate) fn forget_looks(&mut self) {
        self.looks = 0;
    }

    /// Holds the signal of a move back. Returns `false` if it is due.
    #[inline]
    pub(crate) fn hold(&mut self) -> bool {
        let may = self.looks > LOOKS && self.held < MOST_HELD;
        self.held += u8::from(may);
        may
    }

    /// Releases the signal that is held back. Returns `false` if none is.
    #[inline]
    pub(crate) fn release(&mut self) -> bool {
        std::mem::take(&mut self.held) > 0
    }
}

#[cfg(any(test, feature = "rig"))]
impl SignalPace {
    /// Tells whether a signal is held back.
    pub(crate) fn is_held(self) -> bool {
        self.held > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_a_signal_for_every_fourth_move() {
        let mut pace = SignalPace::default();
        for _ in 0..LOOKS {
            pace.on_look(true);
            assert!(!pace.hold(), "not a stream yet");
        }
        for _ in 0..10 {
            pace.on_look(true);
            assert_eq!([(); 4].map(|()| pace.hold()), [true, true, true, false]);
            assert!(pace.is_held() && pace.release() && !pace.release());
        }
        pace.forget_looks();
        assert!(!pace.hold() && !pace.is_held());
        for _ in 0..100 {
            pace.on_look(true);
            pace.on_look(false);
            assert!(!pace.hold(), "not in a row");
        }
    }
}
