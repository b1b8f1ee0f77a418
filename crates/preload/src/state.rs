//! What one process has: the map it was started with and the table of its descriptors.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use rustix::process::getpid;

use crate::map::{DEFAULT_PATH, Map, MapError};
use crate::say::{complain, set_verbose};
use crate::sys::{option, wiped_on_fork};
use crate::table::Table;

/// The descriptors of this process.
pub(crate) static TABLE: Table = Table::new();

static MAP: OnceLock<Result<Map, MapError>> = OnceLock::new();

/// The process that the table is about, at a place that is 0 again in a child with memory of its own. A child of vfork has its parent's
/// memory, but descriptors of its own.
static OWNER: OnceLock<&'static AtomicI32> = OnceLock::new();

/// Reads the map and tells whether it can be used. Called when the library is loaded, while the process
/// may still read the file and nothing else runs.
pub(crate) fn load() -> bool {
    if let Ok(place) = wiped_on_fork() {
        let _ = OWNER.set(place);
    }
    owns();
    if std::env::var_os("TAUT_VMCI_LOG").is_some_and(|value| value == "1") {
        set_verbose();
    }
    read_map().is_ok()
}

fn read_map() -> &'static Result<Map, MapError> {
    MAP.get_or_init(|| {
        let path =
            std::env::var_os("TAUT_VMCI_MAP").map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from);
        Map::read(&path)
    })
}

/// The map, if it can be used.
pub(crate) fn map() -> Option<&'static Map> {
    read_map().as_ref().ok()
}

/// The map for what a program does with a socket. If it cannot be used, the program's user is told when it would first matter.
pub(crate) fn map_for(fd: RawFd) -> Option<&'static Map> {
    match read_map() {
        Ok(map) => Some(map),
        Err(error) => {
            if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP) {
                complain!("no VMCI sockets, TCP only: {error}");
            }
            None
        }
    }
}

/// May this process change the table?
pub(crate) fn owns() -> bool {
    // Without such a place, which every kernel since 4.14 gives, nobody is told from a child of vfork.
    let Some(owner) = OWNER.get() else { return true };
    let this = getpid().as_raw_nonzero().get();
    match owner.load(Relaxed) {
        0 => {
            owner.store(this, Relaxed);
            true
        }
        known => known == this,
    }
}
