//! The state of a process: its map and the table of its descriptors.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::getpid;

use crate::map::{DEFAULT_PATH, Map, MapError};
use crate::say::{complain, set_verbose};
use crate::sys::{self, option, wiped_on_fork};
use crate::table::Table;

/// The descriptors of this process.
pub(crate) static TABLE: Table = Table::new();

static MAP: OnceLock<Result<Map, MapError>> = OnceLock::new();

/// ID of the process that the table is about. A child of vfork shares its parent's memory but has
/// its own descriptors, so it must not become the owner. A forked child becomes it at once, by
/// [`forked`]. The word is 0 only in a child that was made without the C library's fork.
static OWNER: OnceLock<&'static AtomicI32> = OnceLock::new();

/// Runs in a child that was made without the C library's fork, when that is recognised.
static UNSEEN: [OnceLock<extern "C" fn()>; 2] = [const { OnceLock::new() }; 2];

/// Reads the map and returns it if it can be used. Called when the library is loaded, while the
/// process may still read the file and nothing else runs.
pub(crate) fn load() -> Option<&'static Map> {
    if let Ok(place) = wiped_on_fork() {
        let _ = OWNER.set(place);
    }
    owns();
    sys::after_fork(forked);
    if std::env::var_os("TAUT_VMCI_LOG").is_some_and(|value| value == "1") {
        set_verbose();
    }
    map()
}

/// Runs in a forked child before its program does. A child of vfork does not run it.
extern "C" fn forked() {
    if let Some(owner) = OWNER.get() {
        owner.store(getpid().as_raw_nonzero().get(), Relaxed);
    }
}

fn read_map() -> &'static Result<Map, MapError> {
    MAP.get_or_init(|| {
        let path =
            std::env::var_os("TAUT_VMCI_MAP").map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from);
        Map::read(&path)
    })
}

/// The map; `None` if it cannot be used.
pub(crate) fn map() -> Option<&'static Map> {
    read_map().as_ref().ok()
}

/// The map for an operation on a socket. If it cannot be used, the first operation that needs it
/// prints the error.
pub(crate) fn map_for(fd: RawFd) -> Option<&'static Map> {
    match read_map() {
        Ok(map) => Some(map),
        Err(error) => {
            if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP) {
                complain!("TCP only: {error}");
            }
            None
        }
    }
}

/// Recognises a child that was made without the C library's fork. Costs one load in others.
pub(crate) fn recognise_child() {
    if OWNER.get().is_some_and(|owner| owner.load(Relaxed) == 0) {
        owns();
    }
}

/// Runs `handler`, of which there are two at most, in each child that was made without the C
/// library's fork, as soon as it is recognised.
pub(crate) fn when_forked_unseen(handler: extern "C" fn()) {
    let _ = UNSEEN.iter().find(|place| place.set(handler).is_ok());
}

/// Tells whether this process may change the table.
pub(crate) fn owns() -> bool {
    // Kernels before 4.14 cannot provide the word. A child of vfork is not recognised there.
    let Some(owner) = OWNER.get() else { return true };
    let this = getpid().as_raw_nonzero().get();
    match owner.load(Relaxed) {
        0 => {}
        known => return known == this,
    }
    match owner.compare_exchange(0, this, Relaxed, Relaxed) {
        Ok(_) => {
            UNSEEN.iter().filter_map(OnceLock::get).for_each(|handler| handler());
            true
        }
        Err(known) => known == this,
    }
}
