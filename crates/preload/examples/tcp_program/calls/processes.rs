//! Child processes and signals.

use std::ffi::{c_int, c_void};
use std::thread;
use std::time::Duration;

use super::{answer, error};

/// Runs a function in a child process and returns its exit status. If other threads run, the
/// function may do only what is allowed between fork and exec.
pub(crate) fn in_child(child: impl FnOnce() -> u8) -> c_int {
    wait_child(start_child(child))
}

/// Starts a child process that runs a function, and returns its ID.
pub(crate) fn start_child(child: impl FnOnce() -> u8) -> c_int {
    // SAFETY: the scenarios fork before they start threads.
    let pid = answer(unsafe { libc::fork() }).unwrap();
    if pid == 0 {
        let code = child();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code.into()) };
    }
    pid
}

/// Starts a child process that runs a function, by a system call and without the C library's fork.
/// Returns its ID. The function may do only what is allowed between fork and exec: the library may
/// have threads.
pub(crate) fn start_child_by_system_call(child: impl FnOnce() -> u8) -> c_int {
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: takes numbers: no new stack, no shared memory.
    let pid =
        answer(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) } as c_int)
            .unwrap();
    if pid == 0 {
        let code = child();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code.into()) };
    }
    pid
}

/// Runs a function in a child that shares this process's memory but has its own descriptors, as
/// between vfork and exec. Returns its exit status.
pub(crate) fn in_vfork_child(child: extern "C" fn(*mut c_void) -> c_int) -> c_int {
    let mut stack = vec![0u128; 8192];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.as_mut_ptr_range().end.cast();
    // SAFETY: the stack is this frame's until the child has ended, since this thread waits for
    // that. The function ignores its argument.
    wait_child(answer(unsafe { libc::clone(child, top, flags, std::ptr::null_mut()) }).unwrap())
}

/// Waits for a child. Returns its exit status, or the negative number of the signal that ended it.
pub(crate) fn wait_child(pid: c_int) -> c_int {
    let mut status = 0;
    // SAFETY: the number is this frame's.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        assert_eq!(error(), "EINTR");
    }
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// Tells whether a child, or a thread of this process, sleeps in three looks in a row. A task that
/// only lacks a processor does not sleep, nor does one that has ended.
pub(crate) fn is_asleep(task: c_int) -> bool {
    (0..3).all(|_| {
        thread::sleep(Duration::from_millis(3));
        let text = std::fs::read_to_string(format!("/proc/{task}/stat")).unwrap_or_default();
        // The state is behind the name in parentheses.
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// `kill(2)`.
pub(crate) fn kill(pid: c_int, signal: c_int) {
    // SAFETY: takes numbers; the process is a child of the caller.
    answer(unsafe { libc::kill(pid, signal) }).unwrap();
}

/// Number of signals that [`handle`] has counted.
pub(crate) static HANDLED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn count(_signal: c_int) {
    HANDLED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// Installs a handler that counts a signal, with flags such as `SA_RESTART`.
pub(crate) fn handle(signal: c_int, flags: c_int) {
    // SAFETY: a structure of numbers, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the structure is this frame's, and the handler only counts.
    answer(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }).unwrap();
}

/// Leaves the handling of a signal to the other threads.
pub(crate) fn block(signal: c_int) {
    // SAFETY: a set of bits, for which zero is empty.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is this frame's, and the mask before is not asked for.
    unsafe {
        libc::sigaddset(&raw mut set, signal);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()), 0);
    }
}
