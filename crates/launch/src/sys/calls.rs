//! System calls that neither rustix nor nix wraps, or wraps only as unsafe functions.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::mount::MountAttrFlags;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The two processes behind [`create_sibling`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The caller, with the number of the new process.
    Caller(u32),
    /// The new process.
    Sibling,
}

/// Creates a process in a new pid namespace. It is a child of this process's parent, and tells its
/// end by the same signal as this process (`CLONE_PARENT`).
pub(crate) fn create_sibling() -> io::Result<Side> {
    let flags = libc::c_long::from(libc::CLONE_NEWPID | libc::CLONE_PARENT);
    let none: libc::c_long = 0;
    // SAFETY: without a stack and `CLONE_VM` the new process goes on with a copy of this one's
    // memory, as after fork. The process has one thread, so no lock is held by another thread that
    // the copy lacks. The remaining arguments are unused with these flags. Neither nix nor rustix
    // has `CLONE_PARENT` without a function to run on another stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match u32::try_from(pid) {
        Ok(0) => Ok(Side::Sibling),
        Ok(pid) => Ok(Side::Caller(pid)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Marks all descriptors from this number on to be closed when the program starts.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    let (first, last) = (libc::c_long::from(first), libc::c_long::from(u32::MAX));
    let flags = libc::c_long::from(libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: the call accesses no memory and closes nothing now, so owners of descriptors are not
    // affected.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    succeeded(done)
}

/// Closes all descriptors from this number on. No value may own one of them.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    let (first, last) = (libc::c_long::from(first), libc::c_long::from(u32::MAX));
    let flags: libc::c_long = 0;
    // SAFETY: the call accesses no memory. By the contract of this function no value owns a
    // descriptor that is closed.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    succeeded(done)
}

/// Sets attributes of a mount, of those below it too if `recursive`, and makes them private, so
/// that no mount or unmount passes from or to another namespace.
pub(crate) fn set_mount(mount: impl AsFd, set: MountAttrFlags, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: u64::from(set.bits()),
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty string that ends in a zero byte. `attributes` has the size that
    // is passed, lives during the call, and the kernel only reads it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    succeeded(done)
}

/// Moves this process into new namespaces. `namespaces` may not contain [`UnshareFlags::FILES`].
///
/// nix has a safe function, which passes the flags as an `int`. The kernel reads 64 bits, and
/// refuses the call if the compiler left other bits in the upper half of the register.
pub(crate) fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    if namespaces.contains(UnshareFlags::FILES) {
        return Err(rustix::io::Errno::INVAL);
    }
    // SAFETY: the call is unsafe only with `FILES`, which would give this thread a table of
    // descriptors of its own. It was excluded above.
    unsafe { unshare_unsafe(namespaces) }
}

/// Restores the default effect of SIGPIPE, which Rust's runtime ignores and programs would inherit.
pub(crate) fn restore_sigpipe() -> io::Result<()> {
    // SAFETY: the default effect runs no code of this process.
    let former = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if former == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn succeeded(done: libc::c_long) -> io::Result<()> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
