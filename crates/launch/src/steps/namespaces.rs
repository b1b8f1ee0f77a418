//! New namespaces, but for that of process numbers.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};
use taut_launch::{Namespaces, Step, Wall};

use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;

/// Enters the namespaces except that for mounts.
pub(crate) fn enter(wanted: Namespaces, reporter: &mut Reporter) -> Result<(), Failed> {
    for (wall, flag, is_wanted) in [
        (Wall::NetNamespace, CloneFlags::CLONE_NEWNET, wanted.net),
        (Wall::IpcNamespace, CloneFlags::CLONE_NEWIPC, wanted.ipc),
        (Wall::UtsNamespace, CloneFlags::CLONE_NEWUTS, wanted.uts),
        // After joining the control groups, which become the roots of the namespace.
        (Wall::CgroupNamespace, CloneFlags::CLONE_NEWCGROUP, wanted.cgroup),
    ] {
        if is_wanted {
            tolerate(unshare(flag), wall, reporter)?;
        } else {
            reporter.note(wall, TURNED_OFF);
        }
    }
    Ok(())
}

/// Enters a mount namespace. Returns true if mounts are private to this process.
pub(crate) fn enter_mounts(skeleton: Option<OwnedFd>, reporter: &mut Reporter) -> Result<bool, Failed> {
    let Some(skeleton) = skeleton else { return tolerate(copy_mounts(), Wall::MountNamespace, reporter) };
    setns(&skeleton, CloneFlags::CLONE_NEWNS)
        .within(Step::Namespaces, || "entering the skeleton".to_owned())?;
    unshare(CloneFlags::CLONE_NEWNS).within(Step::Namespaces, || "copying the skeleton".to_owned())?;
    Ok(true)
}

/// Enters a mount namespace with a copy of all mounts, which are private from then on.
pub(crate) fn copy_mounts() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|error| Errno::from_raw(error.raw_os_error()))
}

/// Reason for a namespace that is turned off.
pub(crate) const TURNED_OFF: &str = "turned off by the document";

/// Returns true if a namespace was entered, and false if it may be and is missing.
fn tolerate(entered: Result<(), Errno>, wall: Wall, reporter: &mut Reporter) -> Result<bool, Failed> {
    match entered {
        Ok(()) => Ok(true),
        Err(error) => reporter.lack(Step::Namespaces, wall, error.to_string()).map(|()| false),
    }
}
