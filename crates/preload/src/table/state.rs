//! The parts of a listener that its threads change at any time, as one word.

use std::os::fd::RawFd;

/// State of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// The VMCI socket, at a hidden number of the table.
    pub(crate) vmci: Option<RawFd>,
    /// True once the VMCI socket accepts connections.
    pub(crate) armed: bool,
    /// True if the program is known to have made the TCP socket non-blocking.
    pub(crate) non_blocking: bool,
}

/// Bits of the number of the VMCI socket plus one; 0 for none.
const NUMBER: u64 = (1 << 20) - 1;
const ARMED: u64 = 1 << 20;
const NON_BLOCKING: u64 = 1 << 21;
/// Set in each word, so that 0 is no state.
const PRESENT: u64 = 1 << 22;
/// From here on, the lower bits of the listening socket's cookie.
const COOKIE: u32 = 24;

impl State {
    /// The word for this state of the socket with this cookie.
    pub(super) fn word(self, cookie: u64) -> u64 {
        let flag = |set, flag| if set { flag } else { 0 };
        let number = self.vmci.and_then(|fd| u64::try_from(fd).ok()).map_or(0, |fd| (fd + 1) & NUMBER);
        number | flag(self.armed, ARMED) | flag(self.non_blocking, NON_BLOCKING) | PRESENT | cookie << COOKIE
    }

    /// The state in a word; `None` if it is not of the socket with this cookie.
    pub(super) fn of(word: u64, cookie: u64) -> Option<Self> {
        if word & PRESENT == 0 || word >> COOKIE != cookie << COOKIE >> COOKIE {
            return None;
        }
        let vmci = match word & NUMBER {
            0 => None,
            number => RawFd::try_from(number - 1).ok(),
        };
        Some(Self { vmci, armed: word & ARMED != 0, non_blocking: word & NON_BLOCKING != 0 })
    }
}
