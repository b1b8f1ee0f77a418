//! The carriers of this process: starts them, also in forked children, and waits for them at the
//! end of the process.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::carrier::Carrier;
use super::slots::{self, Slot, is_ready};
use crate::hidden::unhide;
use crate::say::complain;
use crate::sys;

/// Longest time for which the end of the program waits for its carriers.
const EXIT: Duration = Duration::from_secs(1);

/// Starts the carrier of a bound socket.
pub(super) fn start(slot: &'static Slot) -> Result<(), Errno> {
    let builder = std::thread::Builder::new().name("taut-vmci".into()).stack_size(256 << 10);
    // The handlers of the program run in the program's own threads.
    let _blocked = sys::Blocked::begin();
    let spawned = builder.spawn(move || Carrier::new(slot).run());
    spawned.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

/// Prepares for forks and for the end of the process, once.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_exit(drain));
}

/// True in a forked child that has sockets of its parent.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Runs in a forked child. The streams of the parent's carriers stay the parent's. A child that
/// uses a socket of its parent, for example a daemon that the parent started, gets a carrier for
/// it. If the parent uses it, too, each datagram goes to one of them.
pub(crate) extern "C" fn forked() {
    for slot in slots::all() {
        slot.take_streams().for_each(unhide);
        if slot.listener() >= 0 {
            slot.inherit();
            INHERITED.store(true, Relaxed);
        }
    }
}

/// Makes a socket one that this process has from its parent.
#[cfg(test)]
pub(crate) fn inherited(socket: std::os::fd::RawFd) -> &'static Slot {
    let slot = slots::find(socket).expect("a datagram socket");
    slot.inherit();
    INHERITED.store(true, Relaxed);
    slot
}

/// Tells whether this process may have sockets of its parent without a carrier.
pub(crate) fn may_be_inherited() -> bool {
    INHERITED.load(Relaxed)
}

/// Starts the carrier of a socket of the parent, if that needs one.
pub(super) fn revive(slot: &'static Slot) {
    if slot.needs_carrier()
        && let Err(error) = start(slot)
    {
        complain!("the thread that carries datagrams cannot be started: {error}");
    }
}

/// Starts the carriers of all sockets of the parent, for a program that waits for some of them.
pub(crate) fn revive_all() {
    slots::all().for_each(revive);
}

/// Waits until the datagrams that the program has sent are with the kernel, for a second at most.
extern "C" fn drain() {
    let end = Instant::now() + EXIT;
    let waits = |slot: &Slot| {
        slot.listener() >= 0
            && !slot.is_inherited()
            && (is_ready(slot.carrier_end(), PollFlags::IN) || slot.is_busy())
    };
    while slots::all().any(waits) && Instant::now() < end {
        sleep(Duration::from_millis(1));
    }
}

/// Frees the slots of sockets that were closed before they were bound.
pub(super) fn free_closed_unbound() {
    for slot in slots::all() {
        if slot.port().is_none()
            && is_ready(slot.carrier_end(), PollFlags::RDHUP)
            && slot.is_ours_to_release()
        {
            unhide(slot.carrier_end());
            slot.release();
        }
    }
}
