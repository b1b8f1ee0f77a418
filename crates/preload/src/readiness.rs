//! The arguments of `poll` and `select` with the VMCI sockets of listeners added, and the results
//! without them.

use std::ffi::{c_int, c_ulong};

use libc::pollfd;

/// Events by which programs wait for a connection.
pub(crate) const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;

/// The descriptors of a `poll`, and behind them the VMCI sockets.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    all: Vec<pollfd>,
    /// Place of each VMCI socket's listener.
    listeners: Vec<usize>,
}

impl Polled {
    /// Adds the VMCI sockets, which `vmci_of` returns for listeners.
    pub(crate) fn new(program: &[pollfd], vmci_of: &dyn Fn(c_int) -> Option<c_int>) -> Self {
        let mut this = Self { all: program.to_vec(), listeners: Vec::new() };
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
        &mut self.all
    }

    /// Stores the events for the program. Returns the number of its descriptors that have some.
    pub(crate) fn give_back(&self, program: &mut [pollfd]) -> c_int {
        for (to, from) in program.iter_mut().zip(&self.all) {
            to.revents = from.revents;
        }
        let vmci = self.all.iter().skip(program.len());
        for (place, vmci) in self.listeners.iter().zip(vmci) {
            if let Some(listener) = program.get_mut(*place) {
                listener.revents |= vmci.revents & READABLE;
            }
        }
        c_int::try_from(program.iter().filter(|one| one.revents != 0).count()).unwrap_or(c_int::MAX)
    }
}

/// The sets of a `select`, with the VMCI sockets of the listeners to be read.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    sets: [Option<Vec<c_ulong>>; 3],
    /// Each listener and its VMCI socket.
    pairs: Vec<(c_int, c_int)>,
    /// Number of descriptors of the program's sets, and of these.
    counts: (c_int, c_int),
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

impl Selected {
    /// Tells whether a set has a descriptor.
    pub(crate) fn has(words: &[c_ulong], fd: c_int) -> bool {
        split(fd).and_then(|(place, bit)| Some(words.get(place)? & bit != 0)).unwrap_or(false)
    }

    /// Adds the VMCI sockets, which `vmci_of` returns for listeners. The sets are those for
    /// reading, writing and failures.
    pub(crate) fn new(
        count: c_int,
        program: &[Option<&mut [c_ulong]>; 3],
        vmci_of: &dyn Fn(c_int) -> Option<c_int>,
    ) -> Self {
        let mut sets = program.each_ref().map(|set| set.as_ref().map(|set| set.to_vec()));
        let (mut pairs, mut all) = (Vec::new(), count);
        if let Some(reading) = &mut sets[0] {
            for fd in (0..count).filter(|fd| Self::has(reading, *fd)) {
                if let Some(vmci) = vmci_of(fd) {
                    pairs.push((fd, vmci));
                    all = all.max(vmci.saturating_add(1));
                }
            }
        }
        let words = usize::try_from(all).unwrap_or(0).div_ceil(BITS);
        for set in sets.iter_mut().flatten() {
            set.resize(words, 0);
        }
        if let Some(reading) = &mut sets[0] {
            for (_, vmci) in &pairs {
                set(reading, *vmci, true);
            }
        }
        Self { sets, pairs, counts: (count, all) }
    }

    /// Number of descriptors.
    pub(crate) fn count(&self) -> c_int {
        self.counts.1
    }

    /// The sets.
    pub(crate) fn sets(&mut self) -> [Option<&mut [c_ulong]>; 3] {
        self.sets.each_mut().map(|set| set.as_deref_mut())
    }

    /// Stores the results for the program. Returns the number of bits in its sets.
    pub(crate) fn give_back(&mut self, program: &mut [Option<&mut [c_ulong]>; 3]) -> c_int {
        if let Some(reading) = &mut self.sets[0] {
            for (listener, vmci) in &self.pairs {
                if Self::has(reading, *vmci) {
                    set(reading, *listener, true);
                    set(reading, *vmci, false);
                }
            }
        }
        let mut bits = 0;
        for (to, from) in program.iter_mut().zip(&self.sets) {
            let (Some(to), Some(from)) = (to, from) else { continue };
            for (to, from) in to.iter_mut().zip(from) {
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
}
