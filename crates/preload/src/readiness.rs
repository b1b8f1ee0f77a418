//! The arguments of `poll` and `select` with the VMCI sockets of listeners added, and the results
//! without them.

use std::ffi::{c_int, c_ulong};

use libc::pollfd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;

use crate::few::Few;

/// Events by which programs wait for a connection.
pub(crate) const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// Number of descriptors for which nothing is allocated.
const FEW: usize = 64;
/// Number of words of a set for which nothing is allocated: 1024 descriptors (`FD_SETSIZE`).
const FEW_WORDS: usize = 16;

const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// The descriptors of a `poll`, and behind them the VMCI sockets.
#[derive(Debug)]
pub(crate) struct Polled {
    all: Few<pollfd, FEW>,
    /// Place of each VMCI socket's listener.
    listeners: Few<usize, FEW>,
}

impl Polled {
    /// Adds the VMCI sockets, which `vmci_of` returns for listeners.
    pub(crate) fn new(program: &[pollfd], vmci_of: &dyn Fn(c_int) -> Option<c_int>) -> Self {
        let mut this = Self { all: Few::of(program, NONE), listeners: Few::new(0) };
        for (place, one) in program.iter().enumerate() {
            if one.events & READABLE != 0
                && let Some(fd) = vmci_of(one.fd)
            {
                this.all.push(pollfd { fd, events: one.events & READABLE, revents: 0 });
                this.listeners.push(place);
            }
        }
        this
    }

    /// All descriptors.
    pub(crate) fn all(&mut self) -> &mut [pollfd] {
        self.all.items_mut()
    }

    /// Removes the events of VMCI sockets that `is_right` does not find to be their listener's. It
    /// gets the listener and the socket.
    pub(crate) fn check(&mut self, program: &[pollfd], is_right: &dyn Fn(c_int, c_int) -> bool) {
        let vmci = self.all.items_mut().iter_mut().skip(program.len());
        for (place, vmci) in self.listeners.items().iter().zip(vmci) {
            let listener = program.get(*place).map_or(-1, |one| one.fd);
            if vmci.revents != 0 && !is_right(listener, vmci.fd) {
                vmci.revents = 0;
            }
        }
    }

    /// Stores the events for the program. Returns the number of its descriptors that have some.
    pub(crate) fn give_back(&self, program: &mut [pollfd]) -> c_int {
        for (to, from) in program.iter_mut().zip(self.all.items()) {
            to.revents = from.revents;
        }
        let vmci = self.all.items().iter().skip(program.len());
        for (place, vmci) in self.listeners.items().iter().zip(vmci) {
            if let Some(listener) = program.get_mut(*place) {
                listener.revents |= vmci.revents & READABLE;
                // The VMCI socket has failed. The next accept notices that and gives it up.
                if vmci.revents & !READABLE != 0 {
                    listener.revents |= listener.events & READABLE;
                }
            }
        }
        c_int::try_from(program.iter().filter(|one| one.revents != 0).count()).unwrap_or(c_int::MAX)
    }
}

/// The sets of a `select`, with the VMCI sockets of the listeners to be read.
#[derive(Debug)]
pub(crate) struct Selected {
    sets: [Option<Few<c_ulong, FEW_WORDS>>; 3],
    /// Each listener and its VMCI socket.
    pairs: Few<(c_int, c_int), FEW>,
    /// Number of descriptors.
    count: c_int,
}

const BITS: usize = c_ulong::BITS as usize;

fn split(fd: c_int) -> Option<(usize, c_ulong)> {
    let fd = usize::try_from(fd).ok()?;
    Some((fd / BITS, 1 << (fd % BITS)))
}

fn set(words: &mut [c_ulong], fd: c_int, on: bool) {
    let Some((place, bit)) = split(fd) else { return };
    if let Some(word) = words.get_mut(place) {
        *word = if on { *word | bit } else { *word & !bit };
    }
}

/// Number of words of a set for descriptors below `count`.
pub(crate) fn words(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0).div_ceil(BITS)
}

/// `FD_SETSIZE`, the size of the usual set.
pub(crate) const USUAL: c_int = 1024;

/// The count of a `select` as the kernel limits it: to the size of the process's table of
/// descriptors. A program may pass more than its sets have bits for, such as `getdtablesize()`.
/// `None` if the size cannot be read, for example because there is no descriptor left for it.
pub(crate) fn limited(count: c_int) -> Option<c_int> {
    if count <= USUAL { Some(count) } else { Some(count.min(table_size()?)) }
}

/// `FDSize` of `/proc/self/status`.
fn table_size() -> Option<c_int> {
    let mut bytes = [0; 2048];
    let file = open("/proc/self/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (text, _) = read(&file, &mut bytes).map(|count| bytes.split_at(count)).ok()?;
    let after = |line: &[u8]| std::str::from_utf8(line.strip_prefix(b"FDSize:")?).ok()?.trim().parse().ok();
    text.split(|byte| *byte == b'\n').find_map(after)
}

impl Selected {
    /// Tells whether a set has a descriptor.
    pub(crate) fn has(words: &[c_ulong], fd: c_int) -> bool {
        split(fd).and_then(|(place, bit)| Some(words.get(place)? & bit != 0)).unwrap_or(false)
    }

    /// Adds the VMCI sockets, which `vmci_of` returns for listeners. The sets are those for
    /// reading, writing and failures, with bits for `count` descriptors.
    pub(crate) fn new(
        count: c_int,
        program: &[Option<&mut [c_ulong]>; 3],
        vmci_of: &dyn Fn(c_int) -> Option<c_int>,
    ) -> Self {
        let (mut pairs, mut all) = (Few::new((-1, -1)), count);
        if let Some(reading) = &program[0] {
            for fd in (0..count).filter(|fd| Self::has(reading, *fd)) {
                if let Some(vmci) = vmci_of(fd) {
                    pairs.push((fd, vmci));
                    all = all.max(vmci.saturating_add(1));
                }
            }
        }
        let mut sets = program.each_ref().map(|program| {
            let program = program.as_ref()?;
            let mut copy = Few::filled(0, words(all));
            for (to, from) in copy.items_mut().iter_mut().zip(program.iter()) {
                *to = *from;
            }
            // The kernel ignores these bits of the program's last word. Here they would count.
            let rest = words(count).saturating_mul(BITS);
            (count..c_int::try_from(rest).unwrap_or(count)).for_each(|fd| set(copy.items_mut(), fd, false));
            Some(copy)
        });
        if let Some(reading) = &mut sets[0] {
            for (_, vmci) in pairs.items() {
                set(reading.items_mut(), *vmci, true);
            }
        }
        Self { sets, pairs, count: all }
    }

    /// Number of descriptors.
    pub(crate) fn count(&self) -> c_int {
        self.count
    }

    /// The sets.
    pub(crate) fn sets(&mut self) -> [Option<&mut [c_ulong]>; 3] {
        self.sets.each_mut().map(|set| set.as_mut().map(Few::items_mut))
    }

    /// Stores the results for the program. Returns the number of bits in its sets.
    pub(crate) fn give_back(&mut self, program: &mut [Option<&mut [c_ulong]>; 3]) -> c_int {
        if let Some(reading) = &mut self.sets[0] {
            for (listener, vmci) in self.pairs.items() {
                if Self::has(reading.items(), *vmci) {
                    set(reading.items_mut(), *listener, true);
                    set(reading.items_mut(), *vmci, false);
                }
            }
        }
        let mut bits = 0;
        for (to, from) in program.iter_mut().zip(&self.sets) {
            let (Some(to), Some(from)) = (to, from) else { continue };
            for (to, from) in to.iter_mut().zip(from.items()) {
                *to = *from;
                bits += from.count_ones();
            }
        }
        bits.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmci_of(fd: c_int) -> Option<c_int> {
        (fd == 5).then_some(970)
    }

    #[test]
    fn a_listener_is_readable_if_one_of_its_sockets_is() {
        let one = |fd| pollfd { fd, events: libc::POLLIN, revents: 9 };
        let mut program = [one(4), one(5), one(-1)];
        let mut polled = Polled::new(&program, &vmci_of);
        assert_eq!(polled.all().iter().map(|one| one.fd).collect::<Vec<_>>(), [4, 5, -1, 970]);
        for (one, revents) in polled.all().iter_mut().zip([0, 0, 0, libc::POLLIN]) {
            one.revents = revents;
        }
        assert_eq!(polled.give_back(&mut program), 1);
        assert_eq!(program.map(|one| one.revents), [0, libc::POLLIN, 0]);
    }

    #[test]
    fn a_failed_vmci_socket_wakes_its_listener() {
        let mut program = [pollfd { fd: 5, events: libc::POLLIN, revents: 0 }];
        let mut polled = Polled::new(&program, &vmci_of);
        polled.all()[1].revents = libc::POLLHUP;
        assert_eq!(polled.give_back(&mut program), 1);
        assert_eq!(program[0].revents, libc::POLLIN);
    }

    #[test]
    fn events_of_a_socket_that_is_not_the_listeners_do_not_count() {
        let one = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut program = [one(4), one(5)];
        let mut polled = Polled::new(&program, &vmci_of);
        for is_right in [true, false] {
            polled.all()[2].revents = libc::POLLIN;
            polled.check(&program, &|fd, vmci| is_right && (fd, vmci) == (5, 970));
            assert_eq!(polled.give_back(&mut program), c_int::from(is_right));
        }
    }

    #[test]
    fn a_selected_listener_is_readable_if_one_of_its_sockets_is() {
        let mut reading = [1 << 5 | 1 << 4];
        let mut writing = [1 << 4];
        let mut program = [Some(&mut reading[..]), Some(&mut writing[..]), None];
        let mut selected = Selected::new(6, &program, &vmci_of);
        assert_eq!(selected.count(), 971);
        let [from_reading, from_writing, none] = selected.sets();
        assert!(none.is_none());
        let (from_reading, from_writing) = (from_reading.unwrap(), from_writing.unwrap());
        assert!(Selected::has(from_reading, 970) && Selected::has(from_reading, 5));
        for fd in [4, 5] {
            set(from_reading, fd, false);
        }
        assert!(Selected::has(from_writing, 4));
        assert_eq!(selected.give_back(&mut program), 2);
        assert_eq!((reading, writing), ([1 << 5], [1 << 4]));
    }

    #[test]
    fn bits_above_the_count_are_ignored() {
        let mut reading = [1 << 5 | 1 << 6 | 1 << 63];
        let mut program = [Some(&mut reading[..]), None, None];
        let mut selected = Selected::new(6, &program, &vmci_of);
        let [from_reading, ..] = selected.sets();
        let from_reading = from_reading.unwrap();
        assert!(Selected::has(from_reading, 5) && Selected::has(from_reading, 970));
        assert!(!Selected::has(from_reading, 6) && !Selected::has(from_reading, 63));
        assert_eq!(selected.give_back(&mut program), 1);
        assert_eq!(reading, [1 << 5]);
    }

    #[test]
    fn counts_are_limited_to_the_table_of_descriptors() {
        let size = table_size().unwrap();
        assert!((64..=1 << 20).contains(&size) && size % 64 == 0, "{size}");
        assert_eq!([limited(-1), limited(6), limited(1024)], [Some(-1), Some(6), Some(1024)]);
        assert_eq!(limited(c_int::MAX), Some(size));
    }
}
