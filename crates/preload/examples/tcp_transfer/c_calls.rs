//! Functions of the C library, called as by a C program. A library that is preloaded may replace
//! them.
#![allow(unsafe_code, reason = "C functions")]

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::io::{Error, Result};
use std::mem::{ManuallyDrop, size_of};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Converts `-1` and errno to a result.
fn answer(result: c_int) -> Result<c_int> {
    if result >= 0 { Ok(result) } else { Err(Error::last_os_error()) }
}

/// A second descriptor of the standard output, at a number that nothing else uses.
pub(crate) fn saved_output() -> File {
    // SAFETY: takes numbers.
    let fd = answer(unsafe { libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 200) }).expect("standard output");
    // SAFETY: the descriptor was just made and has no other owner.
    unsafe { File::from_raw_fd(fd) }
}

/// Writes to a descriptor without owning it.
pub(crate) fn writer(fd: c_int) -> ManuallyDrop<File> {
    // SAFETY: the value is never dropped, so the owner of the number keeps it. Callers use it while
    // the number is open.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// `fork(2)`. The child has this thread only; it writes, allocates memory and ends.
pub(crate) fn fork() -> Result<c_int> {
    // SAFETY: the C library makes its memory allocator usable in the child, and the child uses no
    // lock of another thread.
    answer(unsafe { libc::fork() })
}

/// `_exit(2)`.
pub(crate) fn exit(status: u8) -> ! {
    // SAFETY: ends the process without the parent's exit handlers.
    unsafe { libc::_exit(status.into()) }
}

/// Waits for a child, and requires status 0.
pub(crate) fn ended_well(child: c_int) -> Result<()> {
    let mut status = 0;
    // SAFETY: the number is this frame's.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if status == 0 { Ok(()) } else { Err(Error::other(format!("a child has ended with {status:#x}"))) }
}

/// A stream of the C library for writing, `fdopen(3)`. It is never closed, so its descriptor stays
/// open.
pub(crate) struct Stream(*mut libc::FILE);

impl Stream {
    pub(crate) fn of(fd: c_int) -> Result<Self> {
        // SAFETY: the mode ends in a zero.
        let stream = unsafe { libc::fdopen(fd, c"w".as_ptr()) };
        if stream.is_null() { Err(Error::last_os_error()) } else { Ok(Self(stream)) }
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the stream is open, and the bytes are as long.
        let written = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.0) };
        if written == bytes.len() { Ok(()) } else { Err(Error::last_os_error()) }
    }

    pub(crate) fn flush(&self) -> Result<()> {
        // SAFETY: the stream is open.
        answer(unsafe { libc::fflush(self.0) }).map(drop)
    }
}

/// A file in memory.
pub(crate) fn memory_file() -> Result<File> {
    // SAFETY: the name ends in a zero.
    let file = answer(unsafe { libc::memfd_create(c"rest".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// `sendfile(2)` from an offset, which moves on.
pub(crate) fn sendfile(to: c_int, from: &File, offset: &mut i64, count: usize) -> Result<()> {
    // SAFETY: the offset is the caller's.
    let count = unsafe { libc::sendfile(to, from.as_raw_fd(), offset, count) };
    answer(c_int::try_from(count).map_err(Error::other)?).map(drop)
}

/// A pipe: the reading end, the writing end.
pub(crate) fn pipe() -> Result<(OwnedFd, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    answer(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were just made and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// `splice(2)` from a pipe. Returns the number of bytes.
pub(crate) fn splice(from: &OwnedFd, to: c_int, count: usize) -> Result<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: takes numbers.
    let count = unsafe { libc::splice(from.as_raw_fd(), none, to, none, count, 0) };
    Ok(answer(c_int::try_from(count).map_err(Error::other)?)? as usize)
}

/// Replaces the program by `execv(3)`. The next one has the path of the first word, and inherits a
/// descriptor.
pub(crate) fn become_program(words: &[CString], inherited: c_int) -> ! {
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: takes numbers. The flag is that of this process's descriptor.
    unsafe { libc::fcntl(inherited, libc::F_SETFD, 0) };
    // SAFETY: strings that end in a zero, in a list that ends in a null pointer.
    unsafe { libc::execv(pointers[0], pointers.as_ptr()) };
    exit(127)
}

/// Starts a program by `posix_spawn(3)`, with a descriptor as its standard output. It has the path
/// of the first word. Returns the child's ID.
pub(crate) fn spawn(words: &[CString], output: c_int) -> Result<c_int> {
    unsafe extern "C" {
        static environ: *const *mut std::ffi::c_char;
    }
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let mut child = 0;
    // SAFETY: the actions are initialised before their use and freed after it, and all strings and
    // lists end as the function wants. No thread of this program changes the environment.
    let error = unsafe {
        let mut actions = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        libc::posix_spawn_file_actions_adddup2(&raw mut actions, output, 1);
        let none = std::ptr::null();
        let error = libc::posix_spawn(
            &raw mut child,
            pointers[0],
            &raw const actions,
            none,
            pointers.as_ptr(),
            environ,
        );
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        error
    };
    if error == 0 { Ok(child) } else { Err(Error::from_raw_os_error(error)) }
}

/// Puts a descriptor onto a standard descriptor by `dup2(2)`.
pub(crate) fn put(fd: c_int, number: c_int) -> Result<()> {
    // SAFETY: takes numbers. Nothing of this program uses the standard descriptors after its start.
    answer(unsafe { libc::dup2(fd, number) }).map(drop)
}

/// A pair of connected sockets.
pub(crate) fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    answer(unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr())
    })?;
    // SAFETY: both were just made and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Room for a descriptor in a message.
type Control = [u64; 4];

/// A message of these bytes with room for one descriptor.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a structure of numbers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize;
    message
}

/// Passes a descriptor with some bytes.
pub(crate) fn pass(socket: c_int, fd: c_int, bytes: &[u8]) -> Result<()> {
    let mut control = Control::default();
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
    let message = message(&mut part, &mut control);
    // SAFETY: there is room for a header and a number.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(fd);
    }
    // SAFETY: everything that the message points to lives in this frame or that of the caller.
    answer(unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) } as c_int).map(drop)
}

/// Receives a descriptor with some bytes. `None` at the end of the socket.
pub(crate) fn receive(socket: c_int, bytes: &mut [u8]) -> Result<Option<OwnedFd>> {
    let mut control = Control::default();
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    let mut message = message(&mut part, &mut control);
    // SAFETY: everything that the message points to lives in this frame or that of the caller.
    if answer(unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) } as c_int)? == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has written the header, if there is one, with a descriptor of this
    // process.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(Error::other("a message without a descriptor"));
        }
        Ok(Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<c_int>().read_unaligned())))
    }
}
