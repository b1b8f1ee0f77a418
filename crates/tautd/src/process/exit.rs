//! The exit status of an ended process: of a child, and of one that an earlier daemon started.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::libc;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::{Identity, start_time};

/// Index of the exit code in `/proc/PID/stat`, counted from the state, which follows the name.
const EXIT_CODE: usize = 49;

nix::ioctl_readwrite_bad!(pidfd_get_info, libc::PIDFD_GET_INFO, libc::pidfd_info);

/// Waits for the end of a child and returns its exit status; `None` if it was waited for before.
pub(super) fn reap(pidfd: &OwnedFd) -> Option<ExitStatus> {
    let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).ok()??;
    let code = ended.exit_status().map(|status| status << 8);
    // The status of a process that a signal has ended is the signal's number, with a bit for a core
    // dump.
    let signal = ended.terminating_signal().map(|signal| if ended.dumped() { signal | 0x80 } else { signal });
    code.or(signal).map(ExitStatus::from_raw)
}

/// Returns the exit status of an ended process, as far as the kernel tells it to others than the
/// parent.
pub(super) fn status(pidfd: &OwnedFd, identity: Identity) -> Option<ExitStatus> {
    // The parent may reap the process between the first two looks.
    let code = recorded(pidfd).or_else(|| unreaped(identity)).or_else(|| recorded(pidfd))?;
    Some(ExitStatus::from_raw(code))
}

/// Returns what the pidfd has recorded of a reaped process (since Linux 6.15).
fn recorded(pidfd: &OwnedFd) -> Option<i32> {
    // SAFETY: `pidfd_info` is plain data for which all zeros is a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = libc::PIDFD_INFO_EXIT.into();
    // SAFETY: the descriptor is open, and `info` has the type and size that the request states; the
    // kernel writes only into it. Neither `nix` nor `rustix` wraps this request.
    unsafe { pidfd_get_info(pidfd.as_raw_fd(), &raw mut info) }.ok()?;
    (info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0).then_some(info.exit_code)
}

/// Reads the exit code of a process that has ended and waits for its parent.
fn unreaped(identity: Identity) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", identity.pid)).ok()?;
    if start_time(&stat)? != identity.start_time {
        return None;
    }
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    if fields.first() == Some(&"Z") { fields.get(EXIT_CODE)?.parse().ok() } else { None }
}
