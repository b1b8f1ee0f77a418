//! A `select` as a `poll`: the sets as a list of descriptors, and back.

use std::ffi::{c_int, c_ulong};

use libc::pollfd;

use crate::few::Few;

const FEW: usize = 64;
const BITS: usize = c_ulong::BITS as usize;
/// For each set, the events that the program asks for, and those that count (`select(2)`).
const SETS: [(i16, i16); 3] = [
    (
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND,
        libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    ),
    (
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    ),
    (libc::POLLPRI, libc::POLLPRI),
];

fn bit(fd: c_int) -> Option<(usize, c_ulong)> {
    let fd = usize::try_from(fd).ok()?;
    Some((fd / BITS, 1 << (fd % BITS)))
}

fn has(set: Option<&[c_ulong]>, fd: c_int) -> bool {
    bit(fd).is_some_and(|(place, bit)| set.and_then(|set| set.get(place)).is_some_and(|word| word & bit != 0))
}

/// The descriptors of the sets.
#[derive(Debug)]
pub(crate) struct Selecting {
    all: Few<pollfd, FEW>,
    /// Number of descriptors as the program has passed it.
    count: c_int,
}

impl Selecting {
    /// Tells whether descriptors are in the sets that concern the rings.
    pub(crate) fn concerns(count: c_int, sets: [Option<&[c_ulong]>; 3]) -> bool {
        super::is_on() && (0..count).any(|fd| super::concerns(fd) && sets.iter().any(|set| has(*set, fd)))
    }

    /// The descriptors of the sets for reading, writing and failures.
    pub(crate) fn new(count: c_int, sets: [Option<&[c_ulong]>; 3]) -> Self {
        let mut all = Few::new(pollfd { fd: -1, events: 0, revents: 0 });
        for fd in 0..count {
            let events = sets.iter().zip(SETS).filter(|(set, _)| has(**set, fd));
            let events = events.fold(0, |sum, (_, (asked, _))| sum | asked);
            if events != 0 {
                all.push(pollfd { fd, events, revents: 0 });
            }
        }
        Self { all, count }
    }

    /// All descriptors.
    pub(crate) fn all(&mut self) -> &mut [pollfd] {
        self.all.items_mut()
    }

    /// Tells whether a descriptor is not open (`EBADF`).
    pub(crate) fn has_bad(&self) -> bool {
        self.all.items().iter().any(|one| one.revents & libc::POLLNVAL != 0)
    }

    /// Stores the results in the sets. Returns the number of bits in them.
    pub(crate) fn give_back(&self, sets: [Option<&mut [c_ulong]>; 3]) -> c_int {
        let mut bits = 0;
        for (set, (asked, counting)) in sets.into_iter().zip(SETS) {
            let Some(set) = set else { continue };
            for one in self.all.items().iter().filter(|one| one.events & asked != 0) {
                let Some((place, bit)) = bit(one.fd) else { continue };
                let Some(word) = set.get_mut(place).filter(|word| **word & bit != 0) else { continue };
                if one.revents & counting == 0 {
                    *word &= !bit;
                } else {
                    bits += 1;
                }
            }
            // The kernel clears these.
            for fd in self.count..c_int::try_from(set.len() * BITS).unwrap_or(self.count) {
                if let Some((place, bit)) = bit(fd)
                    && let Some(word) = set.get_mut(place)
                {
                    *word &= !bit;
                }
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_become_a_list_and_results_become_sets() {
        let (mut reading, mut writing) = ([1 << 3 | 1 << 5], [1 << 5 | 1 << 9 | 1 << 20]);
        let mut selecting = Selecting::new(10, [Some(&reading), Some(&writing), None]);
        let numbers: Vec<_> = selecting.all().iter().map(|one| one.fd).collect();
        assert_eq!(numbers, [3, 5, 9]);
        let events: Vec<_> = selecting.all().iter().map(|one| one.events).collect();
        assert_eq!(events, [SETS[0].0, SETS[0].0 | SETS[1].0, SETS[1].0]);
        assert!(!selecting.has_bad());
        selecting.all()[1].revents = libc::POLLOUT;
        selecting.all()[2].revents = libc::POLLHUP;
        assert_eq!(selecting.give_back([Some(&mut reading), Some(&mut writing), None]), 1);
        assert_eq!((reading, writing), ([0], [1 << 5]));
        selecting.all()[0].revents = libc::POLLNVAL;
        assert!(selecting.has_bad());
    }
}
