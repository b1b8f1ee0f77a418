//! Starts and ends of threads and forks, by functions of the C library.
#![allow(unsafe_code, reason = "functions of the C library that take functions")]

use std::ffi::{CStr, c_void};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::{Errno, read};

use super::{Blocked, errno};

/// Runs `handler` in each child that the C library's fork makes.
pub(crate) fn after_fork(handler: extern "C" fn()) {
    // SAFETY: the library, and with it the handler, is never unloaded.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}

/// Runs a function before each fork by the C library, one after it in the parent, and one in the
/// child.
pub(crate) fn around_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: as above.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// Runs `handler` in the calling thread when it ends without the process: by `pthread_exit`,
/// `pthread_cancel` or `thrd_exit`. All calls pass the same handler.
pub(crate) fn at_end_of_thread(handler: extern "C" fn(*mut c_void)) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the number is this frame's. The library, and with it the handler, is never
        // unloaded.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(handler)) } == 0).then_some(key)
    });
    if let Some(key) = key {
        // SAFETY: the key exists. Nothing reads through the value, which only must not be null.
        let _ = unsafe { libc::pthread_setspecific(*key, (&raw const KEY).cast()) };
    }
}

/// Inode of the PID namespace in which the library was loaded; 0 if it is not known.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// Inode of the process's PID namespace; 0 if it cannot be found out.
fn namespace() -> u64 {
    stat(c"/proc/self/ns/pid").map_or(0, |about| about.st_ino)
}

/// Records the process's PID namespace.
pub(super) fn remember_namespace() {
    NAMESPACE.store(namespace(), Relaxed);
}

/// Tells whether the process has another PID namespace than that one.
pub(super) fn has_left_namespace() -> bool {
    namespace() != NAMESPACE.load(Relaxed)
}

/// Tells whether a thread of any process still runs. One that has ended may wait for its parent.
pub(super) fn is_alive(thread: u32) -> bool {
    // SAFETY: takes numbers only; signal 0 is not sent.
    if unsafe { libc::syscall(libc::SYS_tkill, thread, 0) } != 0 && errno() == Errno::SRCH {
        return false;
    }
    let mut name = [0; 32];
    let mut rest = name.as_mut_slice();
    let mut bytes = [0; 512];
    if write!(rest, "/proc/{thread}/stat\0").is_err() {
        return true;
    }
    let Ok(name) = CStr::from_bytes_until_nul(&name) else { return true };
    let Ok(file) = open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return true };
    let Ok((text, _)) = read(&file, &mut bytes).map(|count| bytes.split_at(count)) else { return true };
    // Behind the name of the program, which may have any character.
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|place| text.get(place + 2));
    !matches!(state, Some(b'Z' | b'X'))
}

/// Starts a thread that runs until the process ends, with all signals blocked.
pub(crate) fn start_thread(run: extern "C" fn(*mut c_void) -> *mut c_void) -> Result<(), Errno> {
    /// Enough for the C library's part of the stack in a program with many thread-local variables.
    const STACK: usize = 256 * 1024;
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // The thread inherits the mask.
    let _blocked = Blocked::begin();
    // SAFETY: the structure is this frame's; the call initializes it.
    if unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) } != 0 {
        return Err(Errno::NOMEM);
    }
    let attributes = attributes.as_mut_ptr();
    // SAFETY: initialized above. The function needs no argument and is never unloaded.
    let result = unsafe {
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes, STACK);
        let result = libc::pthread_create(thread.as_mut_ptr(), attributes, run, std::ptr::null_mut());
        libc::pthread_attr_destroy(attributes);
        result
    };
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_in_another_pid_namespace_knows_it() {
        remember_namespace();
        assert!(!has_left_namespace());
        let child = || -> i32 {
            let namespaces = libc::c_long::from(libc::CLONE_NEWUSER | libc::CLONE_NEWPID);
            // SAFETY: takes numbers only.
            if unsafe { libc::syscall(libc::SYS_unshare, namespaces) } != 0 {
                return 3;
            }
            // SAFETY: the child calls functions that are safe after a fork only.
            let grandchild = unsafe { libc::fork() };
            if grandchild == 0 {
                // SAFETY: takes a number only.
                unsafe { libc::_exit(i32::from(!has_left_namespace())) };
            }
            let mut status = 0;
            // SAFETY: the status is this frame's.
            unsafe { libc::waitpid(grandchild, &raw mut status, 0) };
            libc::WEXITSTATUS(status)
        };
        // SAFETY: the child calls functions that are safe after a fork only.
        let first = unsafe { libc::fork() };
        if first == 0 {
            let status = child();
            // SAFETY: takes a number only.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the status is this frame's.
        assert_eq!(unsafe { libc::waitpid(first, &raw mut status, 0) }, first);
        assert_eq!(libc::WEXITSTATUS(status), 0, "3: no namespaces");
    }
}
