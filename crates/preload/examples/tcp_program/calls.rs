//! Functions of the C library, called as by a C program.
#![allow(unsafe_code, reason = "C functions")]

mod alarms;
mod messages;
mod processes;
mod programs;
mod sockets;
mod streams;

use std::ffi::{c_int, c_void};
use std::io::Error;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) use alarms::with_alarms;
pub(crate) use messages::{Pieces, pass, pass_at_once, receive_descriptor};
pub(crate) use processes::{
    HANDLED, block, handle, in_child, in_vfork_child, is_asleep, kill, start_child,
    start_child_by_system_call, wait_child,
};
pub(crate) use programs::{execute_with, spawn_with, temporary};
pub(crate) use sockets::{linger_reset, select_writable, stream_of};
pub(crate) use streams::{
    End, WRITTEN, become_echo, become_true, exit, exit_at_fault, recvmmsg, send_timeout, sendmmsg,
    start_thread_that_ends, write_by_dprintf, write_by_stream, write_in_handler, write_unreadable,
};

/// A result, or the name of the error.
pub(crate) type Answer = Result<c_int, String>;

/// Converts `-1` and errno to a result.
pub(crate) fn answer(result: c_int) -> Answer {
    if result >= 0 { Ok(result) } else { Err(error()) }
}

/// The name of errno.
pub(crate) fn error() -> String {
    let error = Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => "EAGAIN".to_owned(),
        Some(libc::EBADF) => "EBADF".to_owned(),
        Some(libc::ECONNREFUSED) => "ECONNREFUSED".to_owned(),
        Some(libc::EINTR) => "EINTR".to_owned(),
        Some(libc::EINPROGRESS) => "EINPROGRESS".to_owned(),
        Some(libc::EINVAL) => "EINVAL".to_owned(),
        Some(libc::EISCONN) => "EISCONN".to_owned(),
        Some(libc::ENOTCONN) => "ENOTCONN".to_owned(),
        Some(libc::ENOPROTOOPT) => "ENOPROTOOPT".to_owned(),
        Some(libc::EPIPE) => "EPIPE".to_owned(),
        _ => error.to_string(),
    }
}

/// Takes ownership of the descriptor that a call returned.
pub(crate) fn owned(result: c_int) -> OwnedFd {
    let fd = answer(result).unwrap();
    // SAFETY: the descriptor was just made and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn sockaddr(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(v4) = address else { panic!("{address} is not IPv4") };
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: v4.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// A TCP socket, with flags such as `SOCK_NONBLOCK`.
pub(crate) fn socket(flags: c_int) -> OwnedFd {
    // SAFETY: takes numbers.
    owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0) })
}

/// `connect(2)`.
pub(crate) fn connect(fd: RawFd, to: SocketAddr) -> Answer {
    let to = sockaddr(to);
    // SAFETY: the address is this frame's.
    answer(unsafe { libc::connect(fd, (&raw const to).cast(), size_of::<libc::sockaddr_in>() as u32) })
}

/// The system call that `connect(2)` is, without the C library's function.
pub(crate) fn raw_connect(fd: RawFd, to: SocketAddr) -> Answer {
    let to = sockaddr(to);
    let len = size_of::<libc::sockaddr_in>();
    // SAFETY: the address is this frame's.
    answer(unsafe { libc::syscall(libc::SYS_connect, fd, &raw const to, len) } as c_int)
}

/// `connect(2)` with `AF_UNSPEC`, which dissolves a connection.
pub(crate) fn disconnect(fd: RawFd) -> Answer {
    let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: the address is this frame's.
    answer(unsafe { libc::connect(fd, &raw const none, size_of::<libc::sockaddr>() as u32) })
}

/// `bind(2)`.
pub(crate) fn bind(fd: RawFd, at: SocketAddr) -> Answer {
    let at = sockaddr(at);
    // SAFETY: the address is this frame's.
    answer(unsafe { libc::bind(fd, (&raw const at).cast(), size_of::<libc::sockaddr_in>() as u32) })
}

/// The address of the peer of an IPv4 socket, without its port, by `getpeername(2)`.
pub(crate) fn peer_ip(fd: RawFd) -> Result<std::net::Ipv4Addr, String> {
    let mut peer = sockaddr("0.0.0.0:0".parse().unwrap());
    let mut len = size_of::<libc::sockaddr_in>() as u32;
    // SAFETY: address and length are this frame's.
    answer(unsafe { libc::getpeername(fd, (&raw mut peer).cast(), &raw mut len) })?;
    Ok(u32::from_be(peer.sin_addr.s_addr).into())
}

/// `listen(2)`.
pub(crate) fn listen(fd: RawFd, backlog: c_int) -> Answer {
    // SAFETY: takes numbers.
    answer(unsafe { libc::listen(fd, backlog) })
}

/// `accept4(2)` without the address.
pub(crate) fn accept4(fd: RawFd, flags: c_int) -> Answer {
    // SAFETY: no address is asked for.
    answer(unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

/// An integer option.
pub(crate) fn getsockopt(fd: RawFd, level: c_int, name: c_int) -> Answer {
    let (mut value, mut len): (c_int, libc::socklen_t) = (0, size_of::<c_int>() as u32);
    // SAFETY: value and length are this frame's.
    answer(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Sets an integer option.
pub(crate) fn setsockopt(fd: RawFd, level: c_int, name: c_int, value: c_int) -> Answer {
    // SAFETY: the value is this frame's.
    answer(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<c_int>() as u32) })
}

/// `SO_RCVTIMEO` in milliseconds.
pub(crate) fn receive_timeout(fd: RawFd, milliseconds: i64) -> Answer {
    let time = libc::timeval { tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000 };
    let len = size_of::<libc::timeval>() as u32;
    // SAFETY: the value is this frame's.
    answer(unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), len)
    })
}

/// The state in a connection's `struct tcp_info`.
pub(crate) fn tcp_state(fd: RawFd) -> u8 {
    let mut info = [0u8; 104];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: buffer and length are this frame's.
    answer(unsafe {
        libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    })
    .unwrap();
    info[0]
}

/// `fcntl(2)` with a number.
pub(crate) fn fcntl(fd: RawFd, command: c_int, argument: c_int) -> Answer {
    // SAFETY: takes numbers.
    answer(unsafe { libc::fcntl(fd, command, argument) })
}

/// `FIONREAD`.
pub(crate) fn unread(fd: RawFd) -> c_int {
    let mut count: c_int = -1;
    // SAFETY: the number is this frame's.
    answer(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) }).unwrap();
    count
}

/// `dup(2)`.
pub(crate) fn dup(fd: RawFd) -> RawFd {
    // SAFETY: takes a number.
    answer(unsafe { libc::dup(fd) }).unwrap()
}

/// `dup2(2)`.
pub(crate) fn dup2(fd: RawFd, to: RawFd) -> Answer {
    // SAFETY: takes numbers; the caller owns both.
    answer(unsafe { libc::dup2(fd, to) })
}

/// `dup3(2)`.
pub(crate) fn dup3(fd: RawFd, to: RawFd, flags: c_int) -> Answer {
    // SAFETY: takes numbers; the caller owns both.
    answer(unsafe { libc::dup3(fd, to, flags) })
}

/// `close(2)`.
pub(crate) fn close(fd: RawFd) -> Answer {
    // SAFETY: takes a number; the caller owns it.
    answer(unsafe { libc::close(fd) })
}

/// The system call that `close(2)` is, without the C library's function.
pub(crate) fn raw_close(fd: RawFd) {
    // SAFETY: takes a number; the caller owns it.
    let result = unsafe { libc::syscall(libc::SYS_close, fd) };
    assert_eq!(result, 0);
}

/// `close_range(2)`.
pub(crate) fn close_range(first: u32, last: u32, flags: c_int) -> Answer {
    // SAFETY: takes numbers; the callers own what is there.
    answer(unsafe { libc::close_range(first, last, flags) })
}

/// `shutdown(2)`.
pub(crate) fn shutdown(fd: RawFd, how: c_int) -> Answer {
    // SAFETY: takes numbers.
    answer(unsafe { libc::shutdown(fd, how) })
}

/// Events of one descriptor by `poll(2)` within the timeout; -1 means no timeout.
pub(crate) fn poll(fd: RawFd, events: i16, milliseconds: c_int) -> i16 {
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one structure, this frame's.
    answer(unsafe { libc::poll(&raw mut polled, 1, milliseconds) }).unwrap();
    polled.revents
}

/// Tells whether `select(2)` finds the descriptor readable at once.
pub(crate) fn select_readable(fd: RawFd) -> bool {
    // SAFETY: sets of bits, for which zero is empty.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: the set is this frame's and the descriptor below its size.
    unsafe { libc::FD_SET(fd, &raw mut set) };
    let none = std::ptr::null_mut();
    // SAFETY: set and time are this frame's.
    answer(unsafe { libc::select(fd + 1, &raw mut set, none, none, &raw mut time) }).unwrap() == 1
}

/// A new epoll instance.
pub(crate) fn epoll() -> OwnedFd {
    // SAFETY: takes a number.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// `epoll_ctl(2)`.
pub(crate) fn epoll_ctl(epoll: RawFd, operation: c_int, fd: RawFd, events: c_int, data: u64) -> Answer {
    let mut event = libc::epoll_event { events: events as u32, u64: data };
    // SAFETY: the event is this frame's.
    answer(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) })
}

/// Waits for one event within the timeout. Returns its flags and data.
pub(crate) fn epoll_wait(epoll: RawFd, milliseconds: c_int) -> Option<(u32, u64)> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: one event, this frame's.
    let count = answer(unsafe { libc::epoll_wait(epoll, &raw mut event, 1, milliseconds) }).unwrap();
    (count == 1).then_some((event.events, event.u64))
}

/// `recv(2)`.
pub(crate) fn recv(fd: RawFd, buffer: &mut [u8], flags: c_int) -> Result<usize, String> {
    // SAFETY: the buffer is as long.
    let count = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    usize::try_from(count).map_err(|_| error())
}

/// `sendto(2)` with an address, which TCP ignores.
pub(crate) fn sendto(fd: RawFd, bytes: &[u8], to: SocketAddr) -> Result<usize, String> {
    let to = sockaddr(to);
    let (address, len) = ((&raw const to).cast(), size_of::<libc::sockaddr_in>() as u32);
    // SAFETY: bytes and address are as long.
    let count =
        unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL, address, len) };
    usize::try_from(count).map_err(|_| error())
}

/// `sendmsg(2)` of several pieces with an address, which TCP ignores.
pub(crate) fn sendmsg(fd: RawFd, pieces: &[&[u8]], to: SocketAddr) -> Result<usize, String> {
    let mut to = sockaddr(to);
    let mut pieces: Vec<libc::iovec> = pieces
        .iter()
        .map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut to).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    // SAFETY: everything that the message points to lives in this frame or that of the caller.
    let count = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).map_err(|_| error())
}

/// `sendfile(2)` from the current position of a file.
pub(crate) fn sendfile(to: RawFd, from: RawFd, count: usize) -> Result<usize, String> {
    // SAFETY: takes numbers.
    usize::try_from(unsafe { libc::sendfile(to, from, std::ptr::null_mut(), count) }).map_err(|_| error())
}

/// `splice(2)`.
pub(crate) fn splice(from: RawFd, to: RawFd, count: usize) -> Result<usize, String> {
    let none = std::ptr::null_mut();
    // SAFETY: takes numbers.
    usize::try_from(unsafe { libc::splice(from, none, to, none, count, 0) }).map_err(|_| error())
}

/// A pipe: the reading end, the writing end.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    answer(unsafe { libc::pipe(ends.as_mut_ptr()) }).unwrap();
    (owned(ends[0]), owned(ends[1]))
}

/// `write(2)`.
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> Result<usize, String> {
    // SAFETY: the bytes are as long.
    usize::try_from(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }).map_err(|_| error())
}

/// `send(2)`.
pub(crate) fn send(fd: RawFd, bytes: &[u8], flags: c_int) -> Result<usize, String> {
    // SAFETY: the bytes are as long.
    usize::try_from(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) }).map_err(|_| error())
}

/// Number of descriptors of this process.
pub(crate) fn open_descriptors() -> usize {
    // The listing itself uses one.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}
