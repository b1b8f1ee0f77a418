//! Functions that move bytes between files, and streams of the C library. Gathered bytes of a
//! connection go before theirs.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{off_t, off64_t, size_t, ssize_t};

use super::sends::cleared;
use super::{before_files, before_sharing, guard};
use crate::state::TABLE;
use crate::{gather, real, rings};

/// `sendfile(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    before_files([to, from]);
    if let Some(result) = cleared(to, 0) {
        return result;
    }
    // SAFETY: as the caller promises.
    unsafe { real::sendfile(to, from, offset, count) }
}

/// `sendfile(2)` of programs with 64-bit file offsets.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: size_t,
) -> ssize_t {
    before_files([to, from]);
    if let Some(result) = cleared(to, 0) {
        return result;
    }
    // SAFETY: as the caller promises.
    unsafe { real::sendfile64(to, from, offset, count) }
}

/// `splice(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    let waits = if flags & libc::SPLICE_F_NONBLOCK == 0 { 0 } else { libc::MSG_DONTWAIT };
    before_files([to, from]);
    if let Some(result) = cleared(to, waits) {
        return result;
    }
    let gathers = gather::is_on();
    if gathers {
        guard((), || gather::receives(from));
    }
    // SAFETY: as the caller promises.
    let moved = unsafe { real::splice(from, from_offset, to, to_offset, count, flags) };
    if gathers {
        gather::received(from, moved);
    }
    moved
}

/// `fdopen(3)`: what the stream writes is not seen by the library, so the writes to its descriptor
/// are no longer gathered.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    if gather::is_on() || rings::is_on() {
        TABLE.set_stream(fd);
    }
    before_files([fd]);
    before_sharing(fd);
    // SAFETY: as the caller promises.
    match unsafe { real::fdopen(fd, mode) } {
        -1 => std::ptr::null_mut(),
        stream => std::ptr::with_exposed_provenance_mut(stream.cast_unsigned()),
    }
}
