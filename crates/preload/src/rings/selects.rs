//! A `select` as a `poll`: the sets as a list of descriptors, and back.

use std::ffi::{c_int, c_ulong};

use libc::pollfd;

use super::plain::{events_of, may_skip};
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

/// The descriptors in these sets.
pub(crate) fn selected(count: c_int, sets: [Option<&[c_ulong]>; 3]) -> impl Iterator<Item = c_int> {
    (0..count).filter(move |fd| sets.iter().any(|set| has(*set, *fd)))
}

/// Words of a set that are answered plainly: 1024 descriptors (`FD_SETSIZE`).
const USUAL: usize = 16;

/// Answers a `select` that finds something if nothing but bytes has come and gone on its
/// connections. Most such calls do not ask the kernel about other descriptors. Otherwise the sets
/// stay as they are.
pub(crate) fn select_plainly(count: c_int, sets: [Option<&mut [c_ulong]>; 3]) -> Option<c_int> {
    match usize::try_from(count).ok()?.div_ceil(BITS) {
        0 | 1 => select_words::<1>(count, sets),
        2..=USUAL => select_words::<USUAL>(count, sets),
        _ => None,
    }
}

/// Answers a `select` whose sets have at most `WORDS` words.
fn select_words<const WORDS: usize>(count: c_int, mut sets: [Option<&mut [c_ulong]>; 3]) -> Option<c_int> {
    let (mut found, mut bits, mut others) = ([[0; WORDS]; 3], 0, None);
    for place in 0..WORDS {
        let asked =
            sets.each_ref().map(|set| set.as_ref().and_then(|set| set.get(place)).map_or(0, |word| *word));
        let [reading, writing, failing] = asked;
        let mut left = reading | writing | failing;
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let fd = ((place * BITS) as u32 + bit.trailing_zeros()).cast_signed();
            if fd >= count {
                break;
            }
            let wanted = asked.iter().zip(SETS).filter(|(word, _)| **word & bit != 0);
            let wanted = wanted.fold(0, |sum, (_, (events, _))| sum | events);
            let events = events_of(fd, wanted, &mut others)?;
            for ((found, word), (_, counting)) in found.iter_mut().zip(asked).zip(SETS) {
                if word & bit != 0 && events & counting != 0 {
                    *found.get_mut(place)? |= bit;
                    bits += 1;
                }
            }
        }
    }
    if bits == 0 || !may_skip(others) {
        return None;
    }
    for (set, found) in sets.iter_mut().zip(found) {
        for (word, found) in set.iter_mut().flat_map(|set| set.iter_mut()).zip(found) {
            *word = found;
        }
    }
    Some(bits)
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
    fn sets_without_connections_are_left_to_the_kernel() {
        for count in [-1, 0, 1, 63, 64, 65, 1024, 1025, c_int::MAX] {
            let mut reading = [c_ulong::MAX; USUAL];
            let words = reading.len().min(usize::try_from(count).unwrap_or(0).div_ceil(BITS));
            assert_eq!(select_plainly(count, [Some(&mut reading[..words]), None, None]), None, "{count}");
            assert_eq!(reading, [c_ulong::MAX; USUAL], "they stay as they are");
        }
    }

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
