//! Threads with a descriptor table of their own.
//!
//! A file system that does not answer can hold up a thread for ever, even after SIGKILL. A thread
//! that shares the daemon's table would then keep its locks and sockets from the next daemon. A
//! forked child has the same problem: it closes copies of all descriptors of its parent's table
//! when it starts its program, and closing a file may wait for its file system. Files that users
//! name are therefore open only in tables of such threads.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::mpsc::channel;
use std::thread::Builder;

use nix::libc;

/// Number of the first descriptor behind the standard streams.
const FIRST: u32 = 3;

/// Runs `work` on a thread whose table has only the standard streams. Numbers of descriptors that
/// `work` brings along mean nothing there.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let apart = move || {
        leave(None);
        work();
    };
    Builder::new().name(name.to_owned()).spawn(apart).map(drop)
}

/// Runs `work` like [`spawn`], and moves `given` to the thread's table.
pub(crate) fn spawn_with(
    name: &str,
    given: OwnedFd,
    work: impl FnOnce(OwnedFd) + Send + 'static,
) -> io::Result<()> {
    let number = given.as_raw_fd();
    let (left, has_left) = channel();
    let apart = move || {
        // The receiver waits for this.
        let _ = left.send(leave(Some(number)));
        work(given);
    };
    Builder::new().name(name.to_owned()).spawn(apart)?;
    if has_left.recv() == Ok(true) {
        // SAFETY: `given` now owns the descriptor of this number in the thread's table alone. The
        // one in this table is open, because only `given` could have closed it, and has no owner.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
    Ok(())
}

/// Gives the calling thread a table of its own with the standard streams and `kept`. Returns false
/// if the kernel refuses (before Linux 5.9): then the thread keeps the shared table, and nothing is
/// closed.
fn leave(kept: Option<RawFd>) -> bool {
    let kept = kept.and_then(|number| u32::try_from(number).ok());
    let ranges = match kept {
        Some(number) => [(FIRST, number.saturating_sub(1)), (number.saturating_add(1), u32::MAX)],
        None => [(FIRST, u32::MAX), (u32::MAX, 0)],
    };
    ranges.into_iter().filter(|(first, last)| first <= last).all(|(first, last)| {
        // SAFETY: the call accesses no memory. It closes descriptors only in a table that this
        // thread does not share: the flag makes the table its own first, or the call fails. The
        // thread has just begun and owns no other descriptor than `kept`.
        unsafe { libc::close_range(first, last, libc::CLOSE_RANGE_UNSHARE.cast_signed()) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use super::*;

    /// Returns whether the table of the calling thread has a file at this number.
    fn names(number: RawFd, path: &Path) -> bool {
        std::fs::read_link(format!("/proc/thread-self/fd/{number}")).is_ok_and(|link| link == path)
    }

    #[test]
    fn descriptors_of_both_tables_are_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let (number, other) = (file.as_raw_fd(), path.clone());
        let (seen, sees) = channel();
        spawn("apart", move || {
            let before = names(number, &other);
            let opened = File::open(&other).unwrap();
            seen.send((before, opened.as_raw_fd(), names(opened.as_raw_fd(), &other))).unwrap();
        })
        .unwrap();
        let (before, opened, after) = sees.recv().unwrap();
        assert!(!before && after, "the thread sees its own file alone");
        assert!(opened == number || !names(opened, &path));
        assert!(names(number, &path), "the file of this table stays open");
    }

    #[test]
    fn a_descriptor_moves_to_the_thread() {
        let (mut here, there) = UnixStream::pair().unwrap();
        spawn_with("apart", there.into(), |given| {
            UnixStream::from(given).write_all(b"from there").unwrap();
        })
        .unwrap();
        // Reading ends when no table has the other end any more.
        let mut text = String::new();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(text, "from there");
    }
}
