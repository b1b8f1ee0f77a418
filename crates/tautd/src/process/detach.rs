//! Starting a program that survives its parent.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::io::fcntl_dupfd_cloexec;

/// Lower bound of temporary descriptors, above every target number: a VM has at most 32 cards.
const TEMPORARY: i32 = 512;

/// Starts `command` in its own session with `fds` at the given numbers.
pub(super) fn spawn(command: &mut Command, fds: &[(BorrowedFd<'_>, i32)]) -> io::Result<Child> {
    // Duplicated above all targets first, since a target number may be the source of another.
    let moved = fds
        .iter()
        .map(|(fd, target)| Ok((fcntl_dupfd_cloexec(fd, TEMPORARY)?, *target)))
        .collect::<io::Result<Vec<(OwnedFd, i32)>>>()?;
    let in_child = move || {
        rustix::process::setsid()?;
        for (fd, target) in &moved {
            place(fd, *target)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls. It neither allocates nor
    // takes a lock, and everything that it reads was allocated before the fork.
    unsafe { command.pre_exec(in_child) };
    command.spawn()
}

/// Duplicates `fd` to the number `target`, which stays open across exec.
fn place(fd: &OwnedFd, target: i32) -> io::Result<()> {
    // SAFETY: dup2 accesses no memory. No other code in this single-threaded child uses `target`:
    // the descriptors in use are standard streams or close-on-exec.
    if unsafe { nix::libc::dup2(fd.as_raw_fd(), target) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
