//! What was decided a moment ago: the receive queues of senders' simple frames, by their addresses.
//!
//! A worker's own, so nothing is shared and nothing is locked. An answer is good for [`GOOD_FOR`]: so long at the most do
//! frames go on to where an address was before it moved, or was learnt anew. A new configuration forgets everything.

use std::time::{Duration, Instant};

use taut_api::fabric::PortId;

use super::ethernet::Stations;
use super::forward::Target;

/// Long against a burst, short against anything that a guest or a user could wait for.
const GOOD_FOR: Duration = Duration::from_millis(1);
/// Entries, a power of two. Two that share a place take turns.
const SIZE: usize = 512;

#[derive(Debug, Clone, Copy)]
struct Entry {
    stations: Stations,
    sender: PortId,
    /// Answers of an older generation are none.
    generation: u32,
    target: Target,
}

/// A worker's recent decisions.
#[derive(Debug)]
pub struct Recent {
    entries: Box<[Entry; SIZE]>,
    generation: u32,
    until: Instant,
}

impl Default for Recent {
    fn default() -> Self {
        let nothing = Entry {
            stations: Stations::default(),
            sender: PortId(0),
            generation: 0,
            target: Target { member: 0, pair: 0 },
        };
        Self { entries: Box::new([nothing; SIZE]), generation: 1, until: Instant::now() + GOOD_FOR }
    }
}

impl Recent {
    /// Forgets everything.
    pub fn forget(&mut self, now: Instant) {
        self.until = now + GOOD_FOR;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // Once in weeks: no entry may be mistaken for a new one.
            *self = Self::default();
        }
    }

    /// A burst begins.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        if now >= self.until {
            self.forget(now);
        }
    }

    /// What was decided on a frame like this.
    #[inline(always)]
    pub fn find(&self, sender: PortId, stations: Stations) -> Option<Target> {
        let entry = &self.entries[stations.place::<SIZE>()];
        let same =
            entry.stations == stations && entry.sender == sender && entry.generation == self.generation;
        same.then_some(entry.target)
    }

    /// Remembers a decision.
    pub fn insert(&mut self, sender: PortId, stations: Stations, target: Target) {
        let generation = self.generation;
        self.entries[stations.place::<SIZE>()] = Entry { stations, sender, generation, target };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stations(dst: u8, src: u8) -> Stations {
        Stations::of(&[2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0])
    }

    #[test]
    fn an_answer_is_the_senders_own_and_ages() {
        let now = Instant::now();
        let mut recent = Recent::default();
        recent.begin(now);
        let target = Target { member: 7, pair: 0 };
        recent.insert(PortId(1), stations(1, 2), target);
        assert_eq!(recent.find(PortId(1), stations(1, 2)), Some(target));
        assert_eq!(recent.find(PortId(2), stations(1, 2)), None, "another sender's");
        assert_eq!(recent.find(PortId(1), stations(1, 3)), None, "from another address");
        assert_eq!(recent.find(PortId(1), stations(3, 2)), None, "to another address");
        recent.begin(now + 2 * GOOD_FOR);
        assert_eq!(recent.find(PortId(1), stations(1, 2)), None, "too old");
        recent.insert(PortId(1), stations(1, 2), target);
        recent.forget(now);
        assert_eq!(recent.find(PortId(1), stations(1, 2)), None, "another configuration");
    }

    #[test]
    fn generations_never_meet_again() {
        let mut recent = Recent { generation: u32::MAX, ..Recent::default() };
        recent.insert(PortId(1), stations(1, 2), Target { member: 7, pair: 0 });
        recent.forget(Instant::now());
        assert_eq!((recent.generation, recent.find(PortId(1), stations(1, 2))), (1, None));
    }
}
