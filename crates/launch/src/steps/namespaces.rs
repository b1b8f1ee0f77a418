//! New namespaces, but for that of process numbers.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use taut_launch::{Namespaces, Step, Wall};

use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;
use crate::sys::calls::unshare;

/// Enters the namespaces except that for mounts.
pub(crate) fn enter(wanted: Namespaces, reporter: &mut Reporter) -> Result<(), Failed> {
    for (wall, flag, is_wanted) in [
        (Wall::NetNamespace, UnshareFlags::NEWNET, wanted.net),
        (Wall::IpcNamespace, UnshareFlags::NEWIPC, wanted.ipc),
        (Wall::UtsNamespace, UnshareFlags::NEWUTS, wanted.uts),
        // After joining the control groups, which become the roots of the namespace.
        (Wall::CgroupNamespace, UnshareFlags::NEWCGROUP, wanted.cgroup),
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
    move_into_link_name_space(skeleton.as_fd(), Some(LinkNameSpaceType::Mount))
        .within(Step::Namespaces, || "entering the skeleton".to_owned())?;
    unshare(UnshareFlags::NEWNS).within(Step::Namespaces, || "copying the skeleton".to_owned())?;
    Ok(true)
}

/// Enters a mount namespace with a copy of all mounts, which are private from then on.
pub(crate) fn copy_mounts() -> Result<(), Errno> {
    unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)
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
