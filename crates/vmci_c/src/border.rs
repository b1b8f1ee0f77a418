//! The functions that C programs call. They trust their callers as the C library does: handles are
//! those that [`taut_vmci_attach`] has returned and that are not closed, and buffers are as long as
//! the caller says.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_short, c_uint, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;
use std::slice;
use std::time::{Duration, Instant};

use taut_vmci_client::{Attached, Interest, Options, Ready, Wait};

use crate::errors;

/// Attaches a connected stream socket of `AF_VSOCK`.
///
/// # Safety
/// `reason` is null, or points to `reason_size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_attach(
    fd: c_int,
    poll_us: c_uint,
    reason: *mut c_char,
    reason_size: usize,
) -> *mut Attached {
    if fd < 0 {
        set_errno(libc::EBADF);
        return ptr::null_mut();
    }
    // SAFETY: the number is not negative, and the caller keeps the descriptor open for the call, as
    // for every function of the C library. A number that is not open is refused by the kernel.
    let stream = unsafe { BorrowedFd::borrow_raw(fd) };
    let options = Options { poll: Duration::from_micros(poll_us.into()), ..Options::default() };
    match Attached::attach(&stream, &options) {
        Ok(attached) => Box::into_raw(Box::new(attached)),
        Err(found) => {
            if !reason.is_null() && reason_size > 0 {
                let text = errors::text(&found);
                let len = text.len().min(reason_size - 1);
                // SAFETY: the caller says that `reason_size` bytes may be written, and `len` and
                // the terminating zero are no more than that.
                unsafe {
                    ptr::copy_nonoverlapping(text.as_ptr(), reason.cast(), len);
                    *reason.add(len) = 0;
                }
            }
            set_errno(errors::of_reason(&found));
            ptr::null_mut()
        }
    }
}

/// Reads at least one byte.
///
/// # Safety
/// `line` is an open handle, and `buffer` points to `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_read(
    line: *mut Attached,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> isize {
    if size == 0 {
        return 0;
    }
    // SAFETY: see the function's contract. The bytes are the caller's alone during the call, and
    // any bytes are valid `u8`s.
    let (line, buffer) = unsafe { (&*line, slice::from_raw_parts_mut(buffer.cast::<u8>(), capped(size))) };
    counted(line.read_within(buffer, wait(timeout_ms)))
}

/// Writes at least one byte.
///
/// # Safety
/// `line` is an open handle, and `bytes` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_write(
    line: *mut Attached,
    bytes: *const c_void,
    size: usize,
    timeout_ms: c_int,
) -> isize {
    if size == 0 {
        return 0;
    }
    // SAFETY: see the function's contract. Nobody changes the bytes during the call.
    let (line, bytes) = unsafe { (&*line, slice::from_raw_parts(bytes.cast::<u8>(), capped(size))) };
    counted(line.write_within(bytes, wait(timeout_ms)))
}

/// Says that no more bytes follow.
///
/// # Safety
/// `line` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_shutdown(line: *mut Attached) -> c_int {
    // SAFETY: see the function's contract.
    let line = unsafe { &*line };
    match line.shutdown_write() {
        Ok(()) => 0,
        Err(error) => {
            set_errno(errors::of_call(&error));
            -1
        }
    }
}

/// Begins a wait of the program's own.
///
/// # Safety
/// `line` is an open handle, `fds` points to two entries and `longest_ms` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_arm(
    line: *mut Attached,
    events: c_short,
    fds: *mut libc::pollfd,
    longest_ms: *mut c_int,
) -> c_short {
    // SAFETY: see the function's contract.
    let line = unsafe { &*line };
    let interest = interest(events);
    let ready = line.arm(interest);
    let longest = line.longest_wait().map_or(-1, |longest| longest.as_millis().clamp(1, 60_000) as c_int);
    let entries = line.descriptors(interest).map(|polled| {
        // `poll` leaves out entries with negative descriptors.
        let fd = if polled.events == 0 { -1 } else { polled.fd.as_raw_fd() };
        libc::pollfd { fd, events: polled.events, revents: 0 }
    });
    // SAFETY: see the function's contract.
    unsafe {
        fds.cast::<[libc::pollfd; 2]>().write(entries);
        longest_ms.write(longest);
    }
    flags(ready)
}

/// Ends a wait of the program's own.
///
/// # Safety
/// `line` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_disarm(line: *mut Attached, events: c_short) -> c_short {
    // SAFETY: see the function's contract.
    let line = unsafe { &*line };
    flags(line.disarm(interest(events)))
}

/// Ends the use of the queue pair, and frees the handle.
///
/// # Safety
/// `line` is null or an open handle, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_vmci_close(line: *mut Attached) {
    if !line.is_null() {
        // SAFETY: the handle comes from `Box::into_raw` in `taut_vmci_attach`, and is closed once.
        drop(unsafe { Box::from_raw(line) });
    }
}

/// A slice is at most `isize::MAX` bytes long. Calls return fewer than were asked for at times.
fn capped(size: usize) -> usize {
    size.min(isize::MAX as usize)
}

fn wait(timeout_ms: c_int) -> Wait {
    match u64::try_from(timeout_ms) {
        Err(_) => Wait::Forever,
        Ok(0) => Wait::No,
        Ok(ms) => Wait::Until(Instant::now() + Duration::from_millis(ms)),
    }
}

fn interest(events: c_short) -> Interest {
    Interest { readable: events & libc::POLLIN != 0, writable: events & libc::POLLOUT != 0 }
}

fn flags(ready: Ready) -> c_short {
    let flag = |is_ready, flag| if is_ready { flag } else { 0 };
    flag(ready.readable, libc::POLLIN) | flag(ready.writable, libc::POLLOUT)
}

fn counted(done: std::io::Result<usize>) -> isize {
    match done {
        Ok(count) => count.cast_signed(),
        Err(error) => {
            set_errno(errors::of_call(&error));
            -1
        }
    }
}

fn set_errno(value: c_int) {
    // SAFETY: the C library returns a valid pointer to this thread's `errno`.
    unsafe { *libc::__errno_location() = value };
}
