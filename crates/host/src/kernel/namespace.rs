//! Network namespaces: by name, as `ip netns` of iproute2 makes, finds and removes them, and of
//! confined processes.
//!
//! A name is a file in `/run/netns` with the namespace mounted on it. Namespaces made here are
//! visible to `ip netns`, and the other way round.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
    move_into_thread_name_spaces,
};

use super::unshare::unshare;

/// The folder of names.
const NAMES: &str = "/run/netns";
/// The network namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
const NONE: Option<&str> = None;

/// Returns whether there is a namespace of this name.
pub fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Returns a text that tells the namespace of this name from a later one of the same name; none if
/// there is no namespace. The kernel uses inode numbers again, and their time of creation differs.
pub fn identity(name: &str) -> Option<String> {
    let file = std::fs::metadata(path(name)).ok()?;
    Some(format!("{}@{}.{:09}", file.ino(), file.ctime(), file.ctime_nsec()))
}

/// Makes a namespace, as `ip netns add` does.
pub fn create(name: &str) -> io::Result<()> {
    make_folder()?;
    share_names()?;
    let file = path(name);
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(&file, flags, Mode::empty())?;
    let made = in_thread(|| {
        unshare(UnshareFlags::NEWNET)?;
        // The mount keeps the namespace when this thread, its only member, ends.
        Ok(mount(Some(OWN), &file, NONE, MsFlags::MS_BIND, NONE)?)
    });
    if made.is_err() {
        // The first error says more than one about the file that was just made.
        let _ = std::fs::remove_file(&file);
    }
    made
}

/// Makes the folder of names. Every user may list them, as those that `ip netns` makes.
fn make_folder() -> io::Result<()> {
    if Path::new(NAMES).is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(NAMES)?;
    std::fs::set_permissions(NAMES, Permissions::from_mode(0o755))
}

/// Removes a name, as `ip netns del` does. The namespace ends with its last process and socket.
pub fn remove(name: &str) -> io::Result<()> {
    let file = path(name);
    match umount2(&file, MntFlags::MNT_DETACH) {
        // A name without a namespace: left behind by a creation that was interrupted.
        Ok(()) | Err(Errno::EINVAL) => std::fs::remove_file(&file),
        Err(error) => Err(error.into()),
    }
}

/// Runs `work` on a thread inside a namespace. Sockets and devices that it opens belong to it.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let namespace = File::open(path(name))?;
    in_thread(|| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    })
}

/// Runs `work` on a thread inside the network namespace of a process, which a pidfd stands for.
pub fn within_process<T: Send>(
    process: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    in_thread(|| {
        move_into_thread_name_spaces(process, ThreadNameSpaceType::NETWORK)?;
        work()
    })
}

/// Starts a program inside a namespace, with the namespace's own interfaces in `/sys`, as
/// `ip netns exec` does.
pub fn spawn(name: &str, command: &mut Command) -> io::Result<Child> {
    within(name, || {
        // A private copy of the mounts, so that the other `/sys` is this program's only.
        unshare(UnshareFlags::NEWNS)?;
        mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)?;
        // Fails if no file system is mounted there.
        let _ = umount2("/sys", MntFlags::MNT_DETACH);
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE)?;
        command.spawn()
    })
}

fn path(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// Makes mounts on names visible to every mount namespace that shares this folder.
///
/// Without this, a namespace could not be removed while a process with a private copy of the
/// mounts exists.
fn share_names() -> io::Result<()> {
    let share = || mount(NONE, NAMES, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE);
    match share() {
        // Only a mount point can be shared: the folder becomes one.
        Err(Errno::EINVAL) => {
            mount(Some(NAMES), NAMES, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
            Ok(share()?)
        }
        other => Ok(other?),
    }
}

/// Runs `work` on a thread of its own: namespaces are changed for one thread, and for good.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let outcome = thread::scope(|scope| scope.spawn(work).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_absent_cannot_be_entered_or_removed() {
        let name = "taut-absent";
        assert!(!exists(name));
        assert_eq!(identity(name), None);
        assert_eq!(within(name, || Ok(())).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(remove(name).is_err());
    }
}
