//! `poll` and `select`: a listener is readable if a connection of either kind is waiting, and a
//! connection with rings if these say so. Before the program waits, also by `epoll_wait`, gathered
//! bytes are sent.

mod epoll;
mod poll;
mod select;

use std::ffi::c_int;
use std::time::Duration;

use libc::{nfds_t, sigset_t, timespec};
use rustix::process::{Resource, getrlimit};

use crate::listener::arm;
use crate::lookup::listener;
use crate::state::TABLE;
use crate::table::{Held, Listener};

/// The VMCI socket of a listener that the program waits for now.
fn vmci_of(fd: c_int) -> Option<c_int> {
    arm(fd, listener(fd)?).vmci
}

/// The VMCI socket of a listener that the program looks at without a wait. The kernel is asked what
/// the sockets are only if the VMCI socket has an event.
fn vmci_known(fd: c_int) -> Option<c_int> {
    match TABLE.get(fd) {
        Held::Listener(Listener { armed: true, vmci: Some(vmci), .. }) => Some(vmci),
        _ => vmci_of(fd),
    }
}

/// Tells whether the kernel refuses so many descriptors (`EINVAL`) and reads none of them.
fn is_refused(count: nfds_t) -> bool {
    /// The usual limit of open files. Asking for the limit only beyond it saves a system call.
    const USUAL: nfds_t = 1024;
    count > USUAL && getrlimit(Resource::Nofile).current.is_some_and(|limit| count > limit)
}

fn spec(time: Duration) -> timespec {
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}

/// How long a call may wait.
#[derive(Debug, Clone, Copy)]
struct WaitLimit {
    /// `None` for no limit.
    time: Option<Duration>,
    /// The call has a set of signals of its own, which are blocked meanwhile. A signal that the
    /// thread handles between two steps of the call may be one of them, and does not end the call.
    has_signals: bool,
}

impl WaitLimit {
    /// The limit of a call without a set of signals.
    fn of(time: Option<Duration>) -> Self {
        Self { time, has_signals: false }
    }

    /// The limit of a call with a set of signals, or null.
    fn with(time: Option<Duration>, signals: *const sigset_t) -> Self {
        Self { time, has_signals: !signals.is_null() }
    }
}

/// A limit in milliseconds; `None` for none.
fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A limit of a program; `None` for none.
///
/// # Safety
/// `timeout` is null or points to a time.
pub(super) unsafe fn duration(timeout: *const timespec) -> Option<Duration> {
    if timeout.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let time = unsafe { timeout.read_unaligned() };
    Some(Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32))
}
