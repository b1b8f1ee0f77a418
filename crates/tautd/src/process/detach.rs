//! Starting a program that keeps running without its parent.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::io::fcntl_dupfd_cloexec;

/// Above every number that a program is started with.
const OUT_OF_THE_WAY: i32 = 64;

/// Starts `command` in its own session with `fds` at the given numbers.
pub(super) fn spawn(command: &mut Command, fds: &[(BorrowedFd<'_>, i32)]) -> io::Result<Child> {
    // Moved up first: a target number may be the source of another.
    let moved = fds
        .iter()
        .map(|(fd, target)| Ok((fcntl_dupfd_cloexec(fd, OUT_OF_THE_WAY)?, *target)))
        .collect::<io::Result<Vec<(OwnedFd, i32)>>>()?;
    let in_child = move || {
        rustix::process::setsid()?;
        for (fd, target) in &moved {
            place(fd, *target)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only; it neither allocates nor takes a lock, and what it
    // reads was made before the fork.
    unsafe { command.pre_exec(in_child) };
    command.spawn()
}

/// Makes `target` another number for `fd`, open across exec.
fn place(fd: &OwnedFd, target: i32) -> io::Result<()> {
    // SAFETY: dup2 reads no memory of ours. `target` belongs to nobody else in this single-threaded child: the numbers in
    // use are either standard streams or close-on-exec.
    if unsafe { nix::libc::dup2(fd.as_raw_fd(), target) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
