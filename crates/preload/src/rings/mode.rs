//! Whether calls on a connection wait, and for how long, without asking the kernel each time.
//!
//! The answer is in the record of the channel, since processes that share a connection share its
//! `O_NONBLOCK` and its time limits, too. The functions that change these have it asked anew.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::sockopt::{self, Timeout};

use super::record::Pair;
use crate::sys::at;

/// Bits of the word. The rest of it counts the changes.
const KIND: u32 = 3;
/// Calls do not wait.
const NONBLOCKING: u32 = 1;
/// Calls wait without a limit.
const UNLIMITED: u32 = 2;
const CHANGE: u32 = KIND + 1;

/// Time until which a call waits, if that is limited; `None` if it does not wait.
#[allow(clippy::option_option, reason = "waits, and for how long")]
pub(super) fn limit_of(fd: RawFd, flags: i32, timeout: Timeout) -> Option<Option<Instant>> {
    if flags & libc::MSG_DONTWAIT != 0 {
        return None;
    }
    let pair = Pair::known(fd);
    let known = pair.as_ref().map_or(0, |pair| pair.mode().load(Acquire));
    match known & KIND {
        NONBLOCKING => return None,
        UNLIMITED => return Some(None),
        _ => {}
    }
    let socket = at(fd).ok()?;
    // Not stored if it has changed meanwhile.
    let store = |kind: u32| {
        if let Some(pair) = &pair {
            let _ = pair.mode().compare_exchange(known, known & !KIND | kind, AcqRel, Acquire);
        }
    };
    if fcntl_getfl(socket).ok()?.contains(OFlags::NONBLOCK) {
        store(NONBLOCKING);
        return None;
    }
    let limit = |timeout| sockopt::socket_timeout(socket, timeout).ok().flatten();
    let limits = [Timeout::Recv, Timeout::Send].map(limit);
    if limits == [None, None] {
        store(UNLIMITED);
    }
    let [receive, send] = limits;
    let limit = if timeout == Timeout::Recv { receive } else { send };
    Some(limit.map(|limit| Instant::now() + limit))
}

/// Records that the program may have changed `O_NONBLOCK` or a time limit of a connection.
pub(crate) fn mode_changed(fd: RawFd) {
    if let Some(pair) = Pair::known(fd) {
        let next = |word: u32| Some((word & !KIND).wrapping_add(CHANGE));
        let _ = pair.mode().fetch_update(AcqRel, Acquire, next);
    }
}
