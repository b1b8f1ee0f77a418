//! How long a ring that has fallen silent is looked at before its guest is asked to kick: as KVM polls for halted vCPUs, longer where
//! the silence turns out short, shortly where it turns out long. To look in vain takes a CPU from the guests.

use std::time::Duration;

/// The shortest, once there has been a silence.
const SHORTEST: Duration = Duration::from_micros(20);

/// The state of it, for one ring.
#[derive(Debug, Default)]
pub(super) struct Polling {
    window: Duration,
}

impl Polling {
    /// How long to look, `longest` at most.
    pub(super) fn window(&self, longest: Duration) -> Duration {
        self.window.min(longest)
    }

    /// A silence has ended that took so long.
    pub(super) fn was_silent(&mut self, silence: Duration, longest: Duration) {
        self.window = match self.window / 2 {
            half if silence > longest => half.max(SHORTEST).min(longest),
            _ => self.window.saturating_mul(2).clamp(SHORTEST.min(longest), longest),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_silences_are_waited_for_and_long_ones_less() {
        let longest = Duration::from_micros(50);
        let mut polling = Polling::default();
        assert_eq!(polling.window(longest), Duration::ZERO);
        let mut grows = |silence| {
            polling.was_silent(Duration::from_micros(silence), longest);
            polling.window(longest).as_micros()
        };
        assert_eq!([grows(5), grows(50), grows(20)], [20, 40, 50]);
        assert_eq!([grows(51), grows(51), grows(9)], [25, 20, 40]);
        assert_eq!(polling.window(Duration::ZERO), Duration::ZERO);
        // One that always polls has no longest; its ring may begin anew however often.
        (0..200).for_each(|_| polling.was_silent(longest, Duration::MAX));
        polling.was_silent(longest, Duration::ZERO);
        assert_eq!(polling.window(longest), Duration::ZERO);
    }
}
