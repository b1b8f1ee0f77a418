//! Numbers and sets at the limits of the process.
#![allow(unsafe_code, reason = "C functions and limits")]

use std::ffi::{c_int, c_long, c_ulong};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::calls::{
    answer, fcntl, getsockopt, in_child, peer_ip, pipe, poll, raw_connect, recv, setsockopt, socket, write,
};
use crate::{Scenario, listener, pair};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("great_numbers", great_numbers),
    ("select_of_all_numbers", select_of_all_numbers),
    ("select_while_all_numbers_are_used", select_while_all_numbers_are_used),
    ("poll_of_too_many", poll_of_too_many),
    ("locks_are_denied", locks_are_denied),
    ("child_may_not_ask_for_options", child_may_not_ask_for_options),
    ("everything_else_is_closed_by_system_calls", everything_else_is_closed_by_system_calls),
];

/// Raises the limit of open files as far as it goes, at most to this number. Returns the limit.
pub(crate) fn allow(files: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this frame's.
    answer(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }).unwrap();
    limit.rlim_cur = files.min(limit.rlim_max);
    // SAFETY: as above.
    answer(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).unwrap();
    limit.rlim_cur
}

/// Ends of a connection at great numbers.
fn great_numbers() {
    const GREAT: i32 = 70_000;
    let (client, server) = pair();
    if allow(80_000) < 80_000 {
        println!("not allowed");
        return;
    }
    for end in [client, server] {
        let fd = fcntl(end.as_raw_fd(), libc::F_DUPFD_CLOEXEC, GREAT).unwrap();
        drop(end);
        println!("peer: {:?}", peer_ip(fd));
        println!("protocol: {:?}", getsockopt(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL));
        println!("nodelay: {:?}", setsockopt(fd, libc::SOL_TCP, libc::TCP_NODELAY, 1));
        // SAFETY: the number was just made.
        let end = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        println!("own: {}", end.local_addr().is_ok_and(|own| own.ip().is_loopback()));
    }
}

/// `getdtablesize` as the number of descriptors, with a set for fewer.
fn select_of_all_numbers() {
    /// A set, and what lies behind it.
    #[repr(C)]
    struct Sets {
        set: libc::fd_set,
        behind: [u64; 1024],
    }
    let count = i32::try_from(allow(1 << 16)).unwrap();
    let (listener, address) = listener();
    let fd = listener.as_raw_fd();
    for round in 0..2 {
        // SAFETY: a structure of numbers, for which zero is valid.
        let mut sets: Sets = unsafe { std::mem::zeroed() };
        sets.behind = [u64::MAX; 1024];
        // SAFETY: the set is this frame's and the descriptor below its size.
        unsafe { libc::FD_SET(fd, &raw mut sets.set) };
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let none = std::ptr::null_mut();
        // SAFETY: the kernel uses as many bits as the process has descriptors, which are few.
        let found = answer(unsafe { libc::select(count, &raw mut sets.set, none, none, &raw mut time) });
        println!("round {round}: {found:?} {}", sets.behind == [u64::MAX; 1024]);
        if round == 0 {
            std::mem::forget(TcpStream::connect(address).unwrap());
        }
    }
    // A bit at the count.
    // SAFETY: as above.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    for bit in [fd, fd + 1, 63] {
        // SAFETY: as above.
        unsafe { libc::FD_SET(bit, &raw mut set) };
    }
    let none = std::ptr::null_mut();
    // SAFETY: set and time are this frame's.
    println!("{:?}", answer(unsafe { libc::select(fd + 1, &raw mut set, none, none, &raw mut time) }));
}

/// The process has no number left, and waits for one beyond the usual size of a set.
fn select_while_all_numbers_are_used() {
    const GREAT: i32 = 1500;
    let (listener, _) = listener();
    let (reading, writing) = pipe();
    if allow(2048) < 2048 {
        println!("not allowed");
        return;
    }
    let great = fcntl(reading.as_raw_fd(), libc::F_DUPFD_CLOEXEC, GREAT).unwrap();
    write(writing.as_raw_fd(), b"x").unwrap();
    while fcntl(writing.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0).is_ok() {}
    let mut set = [0u64; 32];
    for fd in [listener.as_raw_fd(), great] {
        set[fd as usize / 64] |= 1 << (fd % 64);
    }
    let (mut time, none) = (libc::timeval { tv_sec: 0, tv_usec: 0 }, std::ptr::null_mut());
    // SAFETY: the set is this frame's and has more bits.
    let found =
        answer(unsafe { libc::select(GREAT + 1, set.as_mut_ptr().cast(), none, none, &raw mut time) });
    println!("{found:?}: {}", set[GREAT as usize / 64] == 1 << (GREAT % 64));
}

/// More descriptors than a process may have. The kernel reads none of them.
fn poll_of_too_many() {
    let (listener, _) = listener();
    let mut one = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel refuses the number before it uses the structure.
    println!("{:?}", answer(unsafe { libc::poll(&raw mut one, libc::nfds_t::MAX >> 8, 0) }));
}

/// A security module denies record locks. A client comes by TCP.
fn locks_are_denied() {
    let (listener, address) = listener();
    deny(libc::SYS_fcntl, libc::F_SETLK, libc::EACCES);
    let client = socket(0);
    println!("connect: {:?}", raw_connect(client.as_raw_fd(), address));
    println!("accept: {}", listener.accept().is_ok());
}

/// A filter lets `getsockopt` fail in a child. The child and its parent go on with a connection.
fn child_may_not_ask_for_options() {
    let (client, mut server) = pair();
    let fd = client.as_raw_fd();
    server.write_all(b"1").unwrap();
    println!("read: {:?}", recv(fd, &mut [0; 8], 0));
    server.write_all(b"for the child").unwrap();
    let code = in_child(|| {
        deny(libc::SYS_getsockopt, libc::SOL_SOCKET, libc::EPERM);
        let is_denied = getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).is_err();
        let has_bytes = poll(fd, libc::POLLIN, 10_000) == libc::POLLIN;
        let is_read = has_bytes && recv(fd, &mut [0; 16], 0) == Ok(13);
        u8::from(!is_denied || !is_read || write(fd, b"child") != Ok(5))
    });
    println!("child: {code}");
    println!("read: {:?}", recv(server.as_raw_fd(), &mut [0; 16], 0));
    println!("write: {:?}", write(fd, b"parent"));
    println!("read: {:?}", recv(server.as_raw_fd(), &mut [0; 16], 0));
}

/// Installs a filter of system calls (`man 2 seccomp`) that lets calls with this number and this
/// second argument fail with an error.
fn deny(call: c_long, second: c_int, error: c_int) {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Offsets in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const SECOND_ARGUMENT: u32 = 24;
    let step =
        |code: u32, k: u32, otherwise: u8| libc::sock_filter { code: code as u16, jt: 0, jf: otherwise, k };
    let mut steps = [
        step(LOAD, NUMBER, 0),
        step(IS, call as u32, 3),
        step(LOAD, SECOND_ARGUMENT, 0),
        step(IS, second as u32, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | error as u32, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let (on, off, mode): (c_ulong, c_ulong, c_ulong) = (1, 0, libc::SECCOMP_MODE_FILTER.into());
    // SAFETY: takes numbers.
    answer(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, off, off, off) }).unwrap();
    // SAFETY: the program is this frame's.
    answer(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }).unwrap();
}

/// As daemons do, without the C library's function.
fn everything_else_is_closed_by_system_calls() {
    let (listener, address) = listener();
    let first = listener.as_raw_fd() + 1;
    for fd in first..2048 {
        // SAFETY: takes a number; the numbers are nobody's, or the library's.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
    println!("nobody: {:#x}", poll(listener.as_raw_fd(), libc::POLLIN, 0));
    let file = std::fs::File::open("/dev/null").unwrap();
    let number = fcntl(file.as_raw_fd(), libc::F_DUPFD, 960).unwrap();
    println!("the number: {number}");
    println!("close: {:?}", crate::calls::close(number));
    println!("close: {:?}", crate::calls::close(number));
    let client = TcpStream::connect(address).unwrap();
    println!("accept: {}", listener.accept().is_ok());
    drop(client);
}
