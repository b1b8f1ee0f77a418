//! The functions that this library replaces: those that come next in the program's symbol search
//! order, usually the C library's.
#![allow(unsafe_code, reason = "C functions by name")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, off_t, off64_t, pid_t, posix_spawn_file_actions_t,
    posix_spawnattr_t, sighandler_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use rustix::io::Errno;

use crate::sys::set_errno;

fn find(slot: &AtomicPtr<c_void>, name: &'static CStr) -> *mut c_void {
    let known = slot.load(Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name ends in a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    slot.store(found, Relaxed);
    found
}

/// Looks up all functions now, so that no lookup happens later, for example in a signal handler.
pub(crate) fn find_all() {
    for (slot, name) in ALL {
        find(slot, name);
    }
    find_addresses();
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),* $(; $($more:tt)*)?) -> $result:ty;)*) => {
        static ALL: &[(&AtomicPtr<c_void>, &CStr)] = &[$((&slots::$name, symbols::$name)),*];

        #[allow(non_upper_case_globals, reason = "named like the functions")]
        mod slots {
            use std::ffi::c_void;
            use std::sync::atomic::AtomicPtr;

            $(pub(in crate::real) static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        #[allow(non_upper_case_globals, reason = "named like the functions")]
        mod symbols {
            use std::ffi::CStr;

            $(pub(in crate::real) const $name: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };)*
        }

        $(
            /// The next function of this name.
            ///
            /// # Safety
            /// As the C function's.
            #[allow(non_snake_case, reason = "named like the function")]
            pub(crate) unsafe fn $name($($argument: $type),* $(, $($more)*)?) -> $result {
                let found = find(&slots::$name, symbols::$name);
                if found.is_null() {
                    set_errno(Errno::NOSYS);
                    return -1;
                }
                real!(@call found, $result, ($($argument: $type),*) $(, ($($more)*))?)
            }
        )*
    };
    // "C-unwind": a thread may be cancelled in some of them.
    (@call $found:ident, $result:ty, ($($argument:ident: $type:ty),*)) => {{
        // SAFETY: the C library's function of this name has this type.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>($found)
        };
        // SAFETY: as the caller promises.
        unsafe { function($($argument),*) }
    }};
    (@call $found:ident, $result:ty, ($($argument:ident: $type:ty),*), ($last:ident: $last_type:ty)) => {{
        // SAFETY: the C library's function of this name has this type; its last argument is
        // variadic.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*, ...) -> $result>($found)
        };
        // SAFETY: as the caller promises.
        unsafe { function($($argument),*, $last) }
    }};
}

/// Functions with a variable number of arguments, which only their addresses are needed of.
macro_rules! addresses {
    ($($name:ident, $symbol:literal;)*) => {
        $(
            /// The address of the next function of this name.
            pub(crate) fn $name() -> *mut c_void {
                static SLOT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                find(&SLOT, $symbol)
            }
        )*

        fn find_addresses() {
            $($name();)*
        }
    };
}

addresses! {
    execl, c"execl";
    execlp, c"execlp";
    execle, c"execle";
    dprintf, c"dprintf";
    dprintf_chk, c"__dprintf_chk";
}

unsafe extern "C-unwind" {
    /// Ends the calling thread if it has been cancelled (`man 3 pthread_testcancel`).
    pub(crate) fn pthread_testcancel();
}

real! {
    socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    send(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    close(fd: c_int) -> c_int;
    close_range(first: libc::c_uint, last: libc::c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int; argument: usize) -> c_int;
    fcntl64(fd: c_int, command: c_int; argument: usize) -> c_int;
    ioctl(fd: c_int, request: libc::c_ulong; argument: usize) -> c_int;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    poll(polled: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    ppoll(polled: *mut libc::pollfd, count: libc::nfds_t, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    select(count: c_int, reading: *mut fd_set, writing: *mut fd_set, failing: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, reading: *mut fd_set, writing: *mut fd_set, failing: *mut fd_set, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t;
    splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t;
    epoll_wait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, signals: *const sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, signals: *const sigset_t) -> c_int;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    system(command: *const c_char) -> c_int;
    vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int;
    siginterrupt(signal: c_int, ends_calls: c_int) -> c_int;
    pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    // These return pointers.
    signal(signal: c_int, handler: sighandler_t) -> isize;
    bsd_signal(signal: c_int, handler: sighandler_t) -> isize;
    sysv_signal(signal: c_int, handler: sighandler_t) -> isize;
    __sysv_signal(signal: c_int, handler: sighandler_t) -> isize;
    ssignal(signal: c_int, handler: sighandler_t) -> isize;
    sigset(signal: c_int, handler: sighandler_t) -> isize;
    popen(command: *const c_char, kind: *const c_char) -> isize;
    fdopen(fd: c_int, mode: *const c_char) -> isize;
    // These do not return.
    _exit(status: c_int) -> c_int;
    _Exit(status: c_int) -> c_int;
}
