//! Entering the new root.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, openat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{chdir, chroot, fchdir, pivot_root};

use super::tree::{PATH, attach};

/// Makes `root` the root of this mount namespace and detaches the old one.
pub(super) fn enter(root: &OwnedFd) -> io::Result<()> {
    fchdir(root)?;
    // Both names are the new root, onto which the old one is mounted, and taken off again.
    match pivot_root(".", ".") {
        Ok(()) => unmount(".", UnmountFlags::DETACH)?,
        // A host that runs from its initial file system has a root that cannot be replaced. It is
        // covered instead, and nothing leads below: nobody here may change the root again.
        Err(Errno::INVAL) => {
            attach(root, openat(CWD, "/", PATH, Mode::empty())?)?;
            chroot(".")?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(chdir("/")?)
}
