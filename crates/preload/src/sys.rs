//! System calls for which rustix has no safe form: on descriptors given by number, with `AF_VSOCK`
//! addresses, on options given by number. They do not enter this library's own hooks, with one
//! exception: `faults` asks for the program's signal handlers by `sigaction`, whose hook answers as
//! it answers the program.
#![allow(unsafe_code, reason = "descriptors by number and options by number")]

mod blocked;
mod deferred;
mod faults;
mod peek;
mod pieces;
mod shared;
mod threads;

use std::ffi::c_int;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, sockopt};

pub(crate) use blocked::{Blocked, first_handler};
pub(crate) use deferred::{
    Directly, Handled, Handling, Undisturbed, defer, defer_signals, restarts, thread_is_new,
};
pub(crate) use faults::{
    FAULTS, OF_INSTRUCTIONS, are_faults_handled, faults_are_handled, look_for_fault_handlers,
};
pub(crate) use peek::{MOST_COUNTED, count_unread};
pub(crate) use pieces::{Pieces, Room};
pub(crate) use shared::{Lock, Locked, Record, process_is_new, records};
pub(crate) use threads::{after_fork, around_fork, at_end_of_thread, start_thread};

/// Borrows the descriptor with this number, which belongs to the program.
pub(crate) fn at<'a>(fd: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not -1. The program may close the descriptor at any time, but the
    // number is only passed to the kernel, which then answers EBADF. The borrow itself reads,
    // writes and closes nothing.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Tells whether a descriptor is the socket with this cookie. `None` if the kernel does not tell: a
/// filter of system calls (`seccomp(2)`) may refuse `getsockopt`.
pub(crate) fn is_socket(fd: RawFd, cookie: u64) -> Option<bool> {
    match at(fd).and_then(sockopt::socket_cookie) {
        Ok(own) => Some(own == cookie),
        Err(Errno::BADF | Errno::NOTSOCK) => Some(false),
        Err(_) => None,
    }
}

fn checked(result: libc::c_long) -> Result<c_int, Errno> {
    if result < 0 {
        return Err(errno());
    }
    Ok(result as c_int)
}

/// The calling thread's `errno` after a failed call.
pub(crate) fn errno() -> Errno {
    // SAFETY: every thread has an errno of the C library.
    match unsafe { *libc::__errno_location() } {
        // The kernel sets no other values, but another preloaded library may.
        known @ 1..4096 => Errno::from_raw_os_error(known),
        _ => Errno::IO,
    }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: every thread has an errno of the C library.
    unsafe { *libc::__errno_location() = errno.raw_os_error() }
}

/// Tells whether the kernel sends `SIGPIPE` for `AF_VSOCK`: since Linux 6.7.
pub(crate) fn kernel_signals() -> bool {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_bytes().split(|byte| !byte.is_ascii_digit());
    let mut number =
        || numbers.next().and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok());
    (number(), number()) >= (Some(6), Some(7))
}

/// Sends `SIGPIPE` to the calling thread, as the kernel does for a write to a peer that has gone.
pub(crate) fn raise_sigpipe() {
    let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
    // SAFETY: takes numbers only.
    let _ = checked(unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            process.as_raw_nonzero().get(),
            thread.as_raw_nonzero().get(),
            libc::SIGPIPE,
        )
    });
}

/// Allocates a number that is 0 now, and again in each child that has memory of its own.
pub(crate) fn wiped_on_fork() -> Result<&'static AtomicI32, Errno> {
    const LEN: usize = 4096;
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: new memory, at an address of the kernel's choice.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, prot, flags) }?;
    // SAFETY: this is exactly the memory of the line above.
    unsafe { madvise(page, LEN, Advice::LinuxWipeOnFork) }?;
    // SAFETY: the memory is zeroed, aligned to a page, never unmapped, and not used for anything
    // else.
    Ok(unsafe { AtomicI32::from_ptr(page.cast()) })
}

/// Allocates memory of zeros that is never freed, without the program's allocator.
pub(crate) fn pages(len: usize) -> Result<&'static mut [u8], Errno> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: new memory, at an address of the kernel's choice.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
    // SAFETY: exactly the memory of the line above, which is zeroed, never unmapped, and has no
    // other user.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), len) })
}

/// Milliseconds of the monotonic clock.
pub(crate) fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is this frame's. This clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// The tick of the clock, whose last value the kernel keeps in the process's memory: some
/// milliseconds long.
pub(crate) fn tick() -> u32 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is this frame's. This clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

/// Ends the process.
pub(crate) fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: takes a number, and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Runs `handler` when the program ends by `exit` or by the end of its main function.
pub(crate) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the library, and with it the handler, is never unloaded.
    let _ = unsafe { libc::atexit(handler) };
}

/// This machine's context ID.
pub(crate) fn local_cid() -> Result<u32, Errno> {
    /// `IOCTL_VM_SOCKETS_GET_LOCAL_CID`.
    const LOCAL_CID: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(7, 0xb9);
    use rustix::fs::{Mode, OFlags, open};
    let device = open("/dev/vsock", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: this request writes a `u32` and nothing else.
    unsafe { rustix::ioctl::ioctl(&device, rustix::ioctl::Getter::<LOCAL_CID, u32>::new()) }
}

/// While it exists, the calling thread is not cancelled (`man 3 pthread_setcancelstate`). The
/// library's own work must not be unwound.
pub(crate) struct NotCancelled(c_int);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl NotCancelled {
    /// Begins.
    pub(crate) fn begin() -> Self {
        const DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: the number is this frame's. Disabling is no point of cancellation.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        // SAFETY: restores a value that the function has returned. With deferred cancellation, the
        // usual kind, it is no point of cancellation.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// True once a thread may be cancelled at any instruction.
static AT_ANY_INSTRUCTION: AtomicBool = AtomicBool::new(false);

/// Records that a thread may be cancelled at any instruction (`PTHREAD_CANCEL_ASYNCHRONOUS`).
pub(crate) fn cancels_at_any_instruction() {
    AT_ANY_INSTRUCTION.store(true, SeqCst);
}

/// Runs a short decision without a point of cancellation: the thread is not cancelled meanwhile.
/// Results in `otherwise` if that is not sure, and if the decision panics because of a bug in this
/// library.
#[inline]
pub(crate) fn briefly<T>(otherwise: T, decision: impl FnOnce() -> T) -> T {
    if AT_ANY_INSTRUCTION.load(Relaxed) {
        return otherwise;
    }
    let _undisturbed = Undisturbed::begin();
    catch_unwind(AssertUnwindSafe(decision)).unwrap_or(otherwise)
}

/// Runs a decision, during which the thread is not cancelled. If it panics because of a bug in this
/// library, the program continues with `otherwise`. Handlers of signals run at once, except within
/// [`Undisturbed`]: a decision such as that of `connect` may wait.
pub(crate) fn guard<T>(otherwise: T, decision: impl FnOnce() -> T) -> T {
    let _not_cancelled = NotCancelled::begin();
    catch_unwind(AssertUnwindSafe(decision)).unwrap_or(otherwise)
}

/// Closes a descriptor without the C library's function, so not as a point of cancellation.
pub(crate) fn close(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: the call takes only a number. Callers pass numbers that this library opened and hid,
    // or that the program closes now.
    checked(unsafe { libc::syscall(libc::SYS_close, fd) }).map(|_| ())
}

/// Tells whether a thread of this process exists.
pub(crate) fn is_thread(thread: u32) -> bool {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: takes numbers only; signal 0 is not sent.
    checked(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) }).is_ok()
}

/// Reads the signal number of a file (`F_GETSIG`, `man 2 fcntl`).
pub(crate) fn signal_number(fd: RawFd) -> Result<c_int, Errno> {
    const F_GETSIG: c_int = 11;
    // SAFETY: takes numbers only.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, F_GETSIG, 0) })
}

/// Sets the signal number of a file (`F_SETSIG`).
pub(crate) fn set_signal_number(fd: RawFd, number: c_int) -> Result<(), Errno> {
    const F_SETSIG: c_int = 10;
    // SAFETY: takes numbers only. The number has an effect on files with `O_ASYNC` only.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, F_SETSIG, number) }).map(|_| ())
}

/// Atomically replaces the descriptor `fd` by a duplicate of `with`.
pub(crate) fn replace(fd: RawFd, with: RawFd, cloexec: bool) -> Result<(), Errno> {
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the call takes only numbers. Replacing `fd` is the purpose of the program's connect.
    checked(unsafe { libc::syscall(libc::SYS_dup3, with, fd, flags) }).map(|_| ())
}

/// Reads an integer option of a socket.
pub(crate) fn option(fd: RawFd, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: value and len are this frame's, and len is value's size.
    checked(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, &raw mut value, &raw mut len) })?;
    Ok(value)
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(fd: RawFd, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let len = size_of::<c_int>();
    // SAFETY: value is this frame's, and len is its size.
    checked(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, &raw const value, len) })?;
    Ok(())
}

/// Sets a 64-bit option of a socket.
pub(crate) fn set_option_u64(fd: RawFd, level: c_int, name: c_int, value: u64) -> Result<(), Errno> {
    let len = size_of::<u64>();
    // SAFETY: value is this frame's, and len is its size.
    checked(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, &raw const value, len) })?;
    Ok(())
}

/// The state of a TCP socket, such as `TCP_CLOSE`: the first byte of its `TCP_INFO`.
pub(crate) fn tcp_state(fd: RawFd) -> Result<u8, Errno> {
    let mut state = 0u8;
    let mut len = 1 as libc::socklen_t;
    // SAFETY: the kernel writes at most len bytes, one, to state; both are this frame's.
    checked(unsafe {
        libc::syscall(libc::SYS_getsockopt, fd, libc::SOL_TCP, libc::TCP_INFO, &raw mut state, &raw mut len)
    })?;
    Ok(state)
}

/// An address of `AF_VSOCK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VsockAddress {
    /// Context ID of the machine.
    pub(crate) cid: u32,
    /// Port.
    pub(crate) port: u32,
    /// True if the connection goes through the host although this machine may be a host itself.
    pub(crate) to_host: bool,
}

// SAFETY: pointer and size are those of a complete sockaddr_vm.
unsafe impl SocketAddrArg for VsockAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        /// `VMADDR_FLAG_TO_HOST`.
        const TO_HOST: u8 = 1;
        let address = libc::sockaddr_vm {
            svm_family: libc::AF_VSOCK as libc::sa_family_t,
            svm_reserved1: 0,
            svm_port: self.port,
            svm_cid: self.cid,
            // The first of these bytes is svm_flags.
            svm_zero: [if self.to_host { TO_HOST } else { 0 }, 0, 0, 0],
        };
        f((&raw const address).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
    }
}

/// The name of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// IPv4 or IPv6.
    Inet(SocketAddr),
    /// `AF_VSOCK`.
    Vsock(VsockAddress),
    /// `AF_UNIX`, with its path if it has one.
    Unix(Option<PathBuf>),
    /// Another family.
    Other,
}

impl From<SocketAddrAny> for Name {
    fn from(any: SocketAddrAny) -> Self {
        match any.address_family() {
            AddressFamily::VSOCK if any.addr_len() as usize >= size_of::<libc::sockaddr_vm>() => {
                // SAFETY: the kernel stored a sockaddr_vm: family and length say so.
                let address = unsafe { any.as_ptr().cast::<libc::sockaddr_vm>().read_unaligned() };
                Self::Vsock(VsockAddress { cid: address.svm_cid, port: address.svm_port, to_host: false })
            }
            AddressFamily::UNIX => Self::Unix(SocketAddrUnix::try_from(any).ok().and_then(|name| {
                use std::os::unix::ffi::OsStrExt;
                let path = name.path()?;
                Some(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes())))
            })),
            _ => SocketAddr::try_from(any).map_or(Self::Other, Self::Inet),
        }
    }
}
