//! Starting a program that survives its parent.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
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
    let _reserved = reserve(&moved)?;
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

/// Takes the free numbers up to the highest target. Otherwise the pipe by which the child reports
/// that the program cannot be started may have the number of a target, and write its report there.
fn reserve(moved: &[(OwnedFd, i32)]) -> io::Result<Vec<OwnedFd>> {
    let mut reserved = Vec::new();
    let Some(highest) = moved.iter().map(|(_, target)| *target).max() else { return Ok(reserved) };
    for (fd, _) in moved.iter().cycle() {
        let free = fcntl_dupfd_cloexec(fd.as_fd(), 0)?;
        if free.as_raw_fd() > highest {
            break;
        }
        reserved.push(free);
    }
    Ok(reserved)
}

/// Duplicates `fd` to the number `target`, which stays open across exec.
fn place(fd: &OwnedFd, target: i32) -> io::Result<()> {
    // SAFETY: dup2 accesses no memory. No other code in this single-threaded child uses `target`:
    // the descriptors that it uses are standard streams, or have higher numbers (`reserve`).
    if unsafe { nix::libc::dup2(fd.as_raw_fd(), target) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_program_that_cannot_be_started_leaves_its_descriptors_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::create(&path).unwrap();
        let targets: Vec<_> = (3..200).map(|target| (file.as_fd(), target)).collect();
        let error = spawn(&mut Command::new("/does/not/exist"), &targets).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(path.metadata().unwrap().len(), 0);
    }
}
