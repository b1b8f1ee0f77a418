//! Whether this process has queue pairs, decided once when the library is loaded.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use taut_queue_pair::Region;
use taut_vmci_client::NotAttached;

use super::attach::{attach_all, forked as has_forked};
use super::service::Service;
use crate::map::Map;
use crate::say::{complain, tell};
use crate::state::{TABLE, when_forked_unseen};
use crate::sys::{
    Record, around_fork, defer_signals, guard, look_for_fault_handlers, process_is_new, records,
    thread_is_new,
};
use crate::table::Way;

/// Names a device and a Unix socket that stand for those of a guest, as `DEVICE,SOCKET`. For tests.
const TRIAL: &str = "TAUT_VMCI_RINGS_TRIAL";

/// True if there are queue pairs.
static ON: AtomicBool = AtomicBool::new(false);
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// What all connections have in common.
pub(super) struct Settings {
    pub(super) region: Region,
    /// One record for each channel.
    pub(super) records: &'static [Record],
    pub(super) service: Service,
    /// Longest time that a call looks before it sleeps.
    pub(super) poll: Duration,
}

/// The settings. `None` if there are no queue pairs.
#[inline]
pub(super) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Tells whether there are queue pairs. Costs one load.
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Tells whether a call on a descriptor concerns this module: it is a connection that has a channel
/// or may get one now.
pub(crate) fn concerns(fd: RawFd) -> bool {
    is_on() && !matches!(TABLE.way(fd), Way::Packets | Way::Refused)
}

/// Finds the memory for queue pairs and maps it, since a program may give up its rights later.
pub(crate) fn load(map: &Map) {
    let wanted = match std::env::var_os("TAUT_VMCI_RINGS") {
        Some(value) if value == "1" => true,
        Some(value) if value == "0" => false,
        _ => map.rings,
    };
    if !wanted {
        return;
    }
    let (device, service) = match std::env::var_os(TRIAL).and_then(trial) {
        Some((device, socket)) => (Some(device), Service::Trial(socket)),
        None => (None, Service::Host),
    };
    match open(device.as_deref(), service, map.poll) {
        Ok(settings) => {
            if SETTINGS.set(settings).is_ok() {
                ON.store(true, Relaxed);
                defer_signals();
                look_for_fault_handlers();
                around_fork(forking, nothing, forked);
                when_forked_unseen(forked_unseen);
            }
        }
        Err(reason) => tell!("no queue pairs: {reason}\nhint: {}", reason.hint()),
    }
}

extern "C" fn forking() {
    guard((), attach_all);
}

extern "C" fn nothing() {}

extern "C" fn forked() {
    child_begins(false);
}

extern "C" fn forked_unseen() {
    child_begins(true);
}

/// Prepares a child. `unseen`: it was made without the C library's fork.
fn child_begins(unseen: bool) {
    thread_is_new();
    process_is_new();
    TABLE.nobody_waits();
    has_forked(unseen);
}

fn trial(value: OsString) -> Option<(PathBuf, PathBuf)> {
    let value = value.into_string().ok()?;
    let (device, socket) = value.split_once(',')?;
    Some((device.into(), socket.into()))
}

fn open(device: Option<&Path>, service: Service, poll: Duration) -> Result<Settings, NotAttached> {
    let region = taut_vmci_client::region(device)?;
    let records = records(region.geometry().channels() as usize).map_err(std::io::Error::from)?;
    Ok(Settings { region, records, service, poll })
}

/// Says why a connection is closed although its channel is not known.
pub(super) fn complain_of_unclear(reason: &NotAttached) {
    complain!(
        "a connection is shut down: the host may have given it a queue pair, but {reason}\nhint: {}",
        reason.hint()
    );
}
