//! The functions that the program calls instead of the C library's. They convert C arguments to
//! this library's safe functions and back.
//!
//! Each function first looks into the table with one atomic load. For other descriptors it calls
//! the real function at once. The library's own decisions run in [`guard`], in which a thread is
//! not cancelled. The real functions, in which it may be, are called outside.
#![allow(unsafe_code, reason = "C functions with C pointers")]

mod cancelling;
mod connections;
mod datagrams;
mod descriptors;
mod files;
mod handlers;
mod listeners;
mod options;
mod processes;
mod receives;
mod sends;
#[cfg(target_arch = "x86_64")]
mod variadic;
mod waits;

use std::ffi::c_int;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use crate::address::{LONGEST, decode, encode};
use crate::lookup::connection;
use crate::sys::{guard, set_errno};
use crate::{adopt, gather, rings, state};

/// Sends gathered bytes before the program waits.
fn before_waiting() {
    if gather::is_on() {
        guard((), gather::flush_all);
    }
}

/// Prepares that the kernel or the C library moves bytes of connections by itself.
fn before_files<const N: usize>(fds: [c_int; N]) {
    for fd in fds {
        if rings::concerns(fd) {
            guard((), || rings::leave(fd));
        }
    }
}

/// Prepares that a new process may get connections. Returns false, as there is nothing to undo.
fn before_sharing_all() -> bool {
    if rings::is_on() {
        guard((), || rings::leave_if(true));
    }
    if gather::is_on() {
        guard((), gather::share_all);
    }
    false
}

/// Prepares that another program replaces this one. Returns what `rings::goes_on` undoes if that
/// fails.
fn before_exec() -> bool {
    if rings::is_on() {
        guard((), || rings::leave_if(true));
    }
    if gather::is_on() {
        guard((), gather::executes);
    }
    rings::is_over()
}

/// Prepares that another number or writer may get a connection.
fn before_sharing(fd: c_int) {
    // The table does not know the numbers of a child of vfork, and the next program has no rings.
    if rings::concerns(fd) && !state::owns() {
        guard((), || rings::leave(fd));
    }
    if gather::is_on() {
        guard((), || gather::share(fd));
    }
}

/// Tells whether a descriptor is a VMCI connection.
fn is_vmci(fd: c_int) -> bool {
    state::TABLE.is_held(fd) && guard(false, || connection(fd).is_some())
}

/// Sets `errno` and returns `-1`.
fn fail<T: From<i8>>(errno: Errno) -> T {
    set_errno(errno);
    T::from(-1)
}

/// Reads the address that a program passes, if it is an IPv4 or IPv6 address.
///
/// # Safety
/// `address` is null or points to `len` bytes.
unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = (len as usize).min(LONGEST);
    if address.is_null() {
        return None;
    }
    // SAFETY: as the caller promises; bytes have no alignment and may have any value.
    decode(unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) })
}

/// Stores an address for a program, as far as there is room, and its length.
///
/// # Safety
/// `address` is null, or `len` points to the size of what it points to.
unsafe fn write_address(address: *mut sockaddr, len: *mut socklen_t, value: SocketAddr) -> c_int {
    if address.is_null() || len.is_null() {
        return fail(Errno::FAULT);
    }
    let (bytes, length) = encode(value);
    // SAFETY: as the caller promises.
    let room = unsafe { len.read_unaligned() } as usize;
    // SAFETY: not more bytes than source and target have.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), length.min(room)) };
    // SAFETY: as the caller promises.
    unsafe { len.write_unaligned(length as socklen_t) };
    0
}

extern "C" fn load() {
    crate::real::find_all();
    crate::waiting::load();
    crate::sys::after_fork(crate::tcp_accept::forked);
    guard((), || {
        if let Some(map) = state::load() {
            gather::load();
            rings::load(map);
            adopt::listeners(map);
        }
    });
    // After the handler of `state`, which makes the child the owner of the table.
    crate::sys::after_fork(crate::datagram::forked);
}

extern "C" fn unload() {
    processes::ends();
}

/// Runs [`load`] when the library is loaded, before the program's main function.
// SAFETY: the C library calls the functions of this section in turn, with arguments that `load`
// ignores.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code))]
static LOAD: extern "C" fn() = load;

/// Runs [`unload`] when the program ends by `exit`, after its own functions of that kind.
// SAFETY: as above.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
#[cfg_attr(test, allow(dead_code))]
static UNLOAD: extern "C" fn() = unload;
