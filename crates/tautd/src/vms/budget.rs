//! Memory for the copies of kernels and initrds that starts make.
//!
//! Each start takes room for all its copies before it makes the first one, so that none waits for
//! another one half-way. Copies that running VMs use are not counted: a guest's memory is larger
//! than its kernel and initrd.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::copies::PIECE;
use super::preparation::Progress;

/// Maximum number of bytes of one owner. A start that needs more is alone.
const MOST_OF_OWNER: u64 = 2 << 30;
/// Maximum number of bytes of all owners.
const MOST: u64 = 8 << 30;
/// Time between two looks for room.
const LOOK: Duration = Duration::from_millis(50);

/// The memory that starts have taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget(Arc<Mutex<Vec<Arc<Taken>>>>);

#[derive(Debug)]
struct Taken {
    owner: u32,
    bytes: u64,
    copied: AtomicU64,
    progress: Arc<Progress>,
}

impl Taken {
    /// Returns the bytes that the start may use. One that was cancelled ends with its next piece.
    fn bytes(&self) -> u64 {
        let most = if self.progress.is_cancelled() {
            self.copied.load(Ordering::Relaxed).saturating_add(PIECE)
        } else {
            u64::MAX
        };
        self.bytes.min(most)
    }
}

/// Room for the copies of one start. Dropping it gives the room back.
#[derive(Debug)]
pub(super) struct Room {
    budget: Budget,
    taken: Arc<Taken>,
}

impl Budget {
    /// Waits for room.
    ///
    /// # Errors
    /// The start was cancelled.
    pub(super) fn take(&self, owner: u32, bytes: u64, progress: &Arc<Progress>) -> io::Result<Room> {
        loop {
            if let Some(room) = self.try_take(owner, bytes, progress) {
                return Ok(room);
            }
            std::thread::sleep(LOOK);
            // Others' memory is no fault of this start.
            progress.advance()?;
        }
    }

    fn try_take(&self, owner: u32, bytes: u64, progress: &Arc<Progress>) -> Option<Room> {
        let mut all = self.lock();
        let own = all.iter().filter(|taken| taken.owner == owner).map(|taken| taken.bytes()).sum();
        let of_all = all.iter().map(|taken| taken.bytes()).sum();
        let fits = |used: u64, most: u64| used == 0 || used.saturating_add(bytes) <= most;
        if !fits(own, MOST_OF_OWNER) || !fits(of_all, MOST) {
            return None;
        }
        let taken = Arc::new(Taken { owner, bytes, copied: AtomicU64::new(0), progress: progress.clone() });
        all.push(taken.clone());
        drop(all);
        Some(Room { budget: self.clone(), taken })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Taken>>> {
        self.0.lock().expect("no holder of the budget panics")
    }
}

impl Room {
    /// Notes that so many bytes of the room are in use now.
    pub(super) fn note_copied(&self, bytes: u64) {
        self.taken.copied.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.lock().retain(|taken| !Arc::ptr_eq(taken, &self.taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn progress() -> Arc<Progress> {
        Arc::new(Progress::new())
    }

    #[test]
    fn an_owner_and_all_owners_have_a_budget() {
        let budget = Budget::default();
        let take = |owner, bytes| budget.try_take(owner, bytes, &progress());
        let first = take(1, GIB).unwrap();
        let _second = take(1, GIB).unwrap();
        assert!(take(1, 1).is_none(), "it has 2 GiB");
        let others: Vec<Room> = (2..5).map(|owner| take(owner, 2 * GIB).unwrap()).collect();
        assert!(take(5, 1).is_none(), "all have 8 GiB");
        drop(first);
        take(5, GIB).unwrap();
        drop(others);
        let _large = take(6, 4 * GIB).expect("one that needs more is alone");
        assert!(take(6, 1).is_none());
    }

    #[test]
    fn a_start_that_was_given_up_keeps_what_it_has_copied() {
        let budget = Budget::default();
        let stuck = progress();
        let room = budget.try_take(1, 2 * GIB, &stuck).unwrap();
        room.note_copied(GIB);
        assert!(budget.try_take(1, GIB / 2, &progress()).is_none());
        assert!(stuck.cancel());
        let _other = budget.try_take(1, GIB / 2, &progress()).unwrap();
        assert!(budget.try_take(1, GIB / 2, &progress()).is_none(), "it has copied 1 GiB");
    }

    #[test]
    fn a_start_waits_until_there_is_room_or_it_is_given_up() {
        let budget = Budget::default();
        let room = budget.try_take(1, 2 * GIB, &progress()).unwrap();
        let waits = progress();
        assert!(waits.cancel());
        assert!(budget.take(1, GIB, &waits).is_err());
        let (other, waits) = (budget.clone(), progress());
        let waiting = std::thread::spawn(move || other.take(1, GIB, &waits).is_ok());
        drop(room);
        assert!(waiting.join().unwrap());
    }
}
