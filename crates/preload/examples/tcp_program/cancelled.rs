//! Threads that are cancelled in calls that wait.
#![allow(unsafe_code, reason = "threads of the C library, which can be cancelled")]

use std::ffi::{c_int, c_void};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::Duration;

use crate::calls::{bind, connect, handle, listen, open_descriptors, socket};
use crate::{Scenario, listener};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("accept_is_cancelled", accept_is_cancelled), ("connect_is_cancelled", connect_is_cancelled)];

/// These calls may unwind the thread.
mod c {
    use super::{c_int, c_void};

    unsafe extern "C-unwind" {
        pub(super) fn accept(fd: c_int, address: *mut c_void, len: *mut c_void) -> c_int;
        pub(super) fn poll(polled: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
        pub(super) fn connect(fd: c_int, address: *const libc::sockaddr_in, len: u32) -> c_int;
        pub(super) fn pthread_create(
            thread: *mut libc::pthread_t,
            attributes: *const c_void,
            start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
        pub(super) fn pthread_cancel(thread: libc::pthread_t) -> c_int;
        pub(super) fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int;
    }
}

/// The descriptor that the thread uses.
static FD: AtomicI32 = AtomicI32::new(-1);
/// The port that the thread connects to.
static PORT: AtomicI32 = AtomicI32::new(0);

extern "C-unwind" fn accepts(_: *mut c_void) -> *mut c_void {
    // SAFETY: asks for no address.
    unsafe { c::accept(FD.load(SeqCst), std::ptr::null_mut(), std::ptr::null_mut()) };
    std::ptr::null_mut()
}

extern "C-unwind" fn polls(_: *mut c_void) -> *mut c_void {
    let mut polled = libc::pollfd { fd: FD.load(SeqCst), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, this frame's.
    unsafe { c::poll(&raw mut polled, 1, -1) };
    std::ptr::null_mut()
}

extern "C-unwind" fn connects(_: *mut c_void) -> *mut c_void {
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: (PORT.load(SeqCst) as u16).to_be(),
        sin_addr: libc::in_addr { s_addr: 0x7f00_0001_u32.to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: the address is this frame's.
    unsafe { c::connect(FD.load(SeqCst), &raw const to, size_of::<libc::sockaddr_in>() as u32) };
    std::ptr::null_mut()
}

/// Starts a thread, cancels it while it waits, and tells whether that ended it.
fn is_cancelled(start: extern "C-unwind" fn(*mut c_void) -> *mut c_void) -> bool {
    /// `PTHREAD_CANCELED`.
    const CANCELLED: usize = usize::MAX;
    let (mut thread, mut result) = (0, std::ptr::null_mut());
    let none = std::ptr::null_mut();
    // SAFETY: the number is this frame's, and the function ignores its argument.
    assert_eq!(unsafe { c::pthread_create(&raw mut thread, none, start, none) }, 0);
    std::thread::sleep(Duration::from_millis(50));
    // SAFETY: the thread was not joined yet.
    assert_eq!(unsafe { c::pthread_cancel(thread) }, 0);
    // SAFETY: as above; the result is this frame's.
    assert_eq!(unsafe { c::pthread_join(thread, &raw mut result) }, 0);
    result.addr() == CANCELLED
}

fn accept_is_cancelled() {
    let (listener, _) = listener();
    FD.store(listener.as_raw_fd(), SeqCst);
    println!("poll: {}", is_cancelled(polls));
    println!("accept: {}", is_cancelled(accepts));
    // Handlers of both kinds.
    handle(libc::SIGCHLD, libc::SA_RESTART);
    handle(libc::SIGALRM, 0);
    let before = open_descriptors();
    for _ in 0..3 {
        println!("accept: {}", is_cancelled(accepts));
    }
    println!("descriptors: {}", open_descriptors() == before);
}

/// A listener whose queue is full does not answer.
fn connect_is_cancelled() {
    let full = socket(0);
    bind(full.as_raw_fd(), "127.0.0.1:0".parse().unwrap()).unwrap();
    listen(full.as_raw_fd(), 0).unwrap();
    let full = TcpListener::from(full);
    let address = full.local_addr().unwrap();
    let waiting: Vec<_> = (0..4).map(|_| socket(libc::SOCK_NONBLOCK)).collect();
    for socket in &waiting {
        let _ = connect(socket.as_raw_fd(), address);
    }
    // A machine that did not answer by VMCI is tried again after a second.
    std::thread::sleep(Duration::from_millis(1100));
    let last = socket(0);
    FD.store(last.as_raw_fd(), SeqCst);
    PORT.store(address.port().into(), SeqCst);
    println!("connect: {}", is_cancelled(connects));
}
