//! The functions that this library replaces: those that come next in the program's symbol search
//! order, usually the C library's.
#![allow(unsafe_code, reason = "C functions by name")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    epoll_event, fd_set, iovec, msghdr, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
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

unsafe extern "C-unwind" {
    /// Ends the calling thread if it has been cancelled (`man 3 pthread_testcancel`).
    pub(crate) fn pthread_testcancel();
}

real! {
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
}
