//! What a program does before others may get its connections, and before it ends.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::pool::{self, Used};
use super::{ENABLED, flush, flush_one, is_on};
use crate::say::complain;
use crate::state::{TABLE, owns};
use crate::sys::NotCancelled;

/// Longest time for which exit, exec, fork and dup wait for a peer that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prepares that another number or another process may get a connection. Its writes are no longer
/// gathered.
pub(crate) fn share(fd: RawFd) {
    if is_on() && (TABLE.set_shared(fd) || pool::may_have(fd)) {
        let stuck = || pool::of(fd).filter(|buffer| buffer.fd == fd && buffer.is_stuck());
        if !drain(|| flush(fd), &|| stuck().is_some()) {
            stuck().into_iter().for_each(give_up);
        }
    }
}

/// The same for all connections, before the program starts another one.
pub(crate) fn share_all() {
    if is_on() {
        share_each();
    }
}

/// Ends gathering for all connections that exist.
pub(super) fn set_all_shared() {
    TABLE.numbers().for_each(|fd| {
        TABLE.set_shared(fd);
    });
}

/// Prepares that other processes may get all connections. Waits for each peer that takes nothing
/// once. What the program has closed stays with this process.
fn share_each() {
    set_all_shared();
    let stuck = || pool::filled().filter_map(pool::at_place).filter(Used::is_stuck);
    if !drain(end_corks, &|| stuck().next().is_some()) {
        stuck().for_each(give_up);
    }
}

/// Records that nobody waits for a peer any more.
fn give_up(mut buffer: Used) {
    buffer.given_up = true;
    drop(buffer);
    complain!(
        "a peer has taken nothing for {} s: what a child process or a duplicate writes may come\n\
         before bytes that wait for that peer\n\
         hint: unset TAUT_VMCI_GATHER for this program",
        PATIENCE.as_secs()
    );
}

/// Prepares that another program replaces this one. What peers do not take in time is lost.
pub(crate) fn executes() {
    /// True once an exec, which then has failed, has waited in vain.
    static HAS_WAITED: AtomicBool = AtomicBool::new(false);
    if !is_on() {
        return;
    }
    if !owns() {
        // The bytes of a child of vfork stay with its parent.
        share_each();
    } else if HAS_WAITED.load(Relaxed) {
        end_corks();
    } else if !drain_all() {
        HAS_WAITED.store(true, Relaxed);
    }
}

/// Sends all bytes before the process loses them. Returns false if they are not taken in time.
fn drain_all() -> bool {
    set_all_shared();
    let is_done = drain(end_corks, &pool::has_bytes);
    if !is_done {
        loses();
    }
    is_done
}

fn loses() {
    complain!(
        "the program ends while a peer takes nothing: bytes that have waited for {} s are lost\n\
         hint: unset TAUT_VMCI_GATHER for this program",
        PATIENCE.as_secs()
    );
}

fn end_corks() {
    pool::filled().filter_map(pool::at_place).for_each(|mut buffer| flush_one(&mut buffer));
}

/// Sends bytes until none are left, but not for longer than [`PATIENCE`]. Returns whether that was
/// in time. The helper sends the rest.
fn drain(send: impl Fn(), is_left: &dyn Fn() -> bool) -> bool {
    send();
    let until = Instant::now() + PATIENCE;
    while is_left() {
        if Instant::now() >= until {
            return false;
        }
        pool::sleep(Duration::from_millis(1));
        send();
    }
    true
}

/// Sends everything before the process ends. From here on nothing is gathered.
pub(crate) fn ends() {
    if is_on() && owns() {
        drain_all();
        ENABLED.store(false, Relaxed);
    }
}

/// Runs before each fork by the C library.
pub(super) extern "C" fn forking() {
    if is_on() && owns() {
        let _not_cancelled = NotCancelled::begin();
        share_each();
    }
}

/// Runs after each fork in the parent. Another thread may have made a connection in between, which
/// the child has as well.
pub(super) extern "C" fn has_forked() {
    if is_on() && owns() {
        let _not_cancelled = NotCancelled::begin();
        set_all_shared();
        end_corks();
    }
}
