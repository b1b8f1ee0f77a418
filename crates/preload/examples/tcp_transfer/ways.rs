//! Ways to go on with a socket in the middle of a transfer, and other calls of the C library.
#![allow(unsafe_code, reason = "C functions")]

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::io::{Error, Result, Write};
use std::mem::{ManuallyDrop, size_of};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::str::FromStr;

use crate::helper::send_by_helper;
use crate::pattern::PIECE;
use crate::rest::Rest;

/// What the sending thread does with its socket when half of the bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It goes on.
    Stay,
    /// A forked child goes on.
    Fork,
    /// It goes on by a stream of the C library, `fdopen(3)`.
    Fdopen,
    /// It goes on by `sendfile(2)`.
    Sendfile,
    /// It goes on by `splice(2)` from a pipe.
    Splice,
    /// It passes the socket to another process in a message, which goes on (`SCM_RIGHTS`).
    Pass,
    /// Another program goes on, which a child has become by `execv(3)`.
    Exec,
    /// Another program goes on, which gets the socket by `posix_spawn(3)` as its standard output.
    Spawn,
    /// It goes on by descriptor 0, onto which it puts the socket by `dup2(2)`.
    Stdin,
    /// The same with descriptor 1.
    Stdout,
    /// The same with descriptor 2.
    Stderr,
}

const WAYS: [(&str, Way); 11] = [
    ("stay", Way::Stay),
    ("fork", Way::Fork),
    ("fdopen", Way::Fdopen),
    ("sendfile", Way::Sendfile),
    ("splice", Way::Splice),
    ("pass", Way::Pass),
    ("exec", Way::Exec),
    ("spawn", Way::Spawn),
    ("stdin", Way::Stdin),
    ("stdout", Way::Stdout),
    ("stderr", Way::Stderr),
];

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = WAYS.iter().find(|(known, _)| *known == name);
        found.map(|(_, way)| *way).ok_or_else(|| format!("unknown way {name}"))
    }
}

impl Way {
    pub(crate) fn number(self) -> u64 {
        WAYS.iter().position(|(_, way)| *way == self).unwrap_or(0) as u64
    }

    pub(crate) fn of_number(number: u64) -> Option<Self> {
        WAYS.get(usize::try_from(number).ok()?).map(|(_, way)| *way)
    }

    /// Sends the rest in this way.
    pub(crate) fn send(self, fd: c_int, rest: Rest) -> Result<()> {
        match self {
            Self::Stay => rest.write(fd),
            Self::Fork => match fork()? {
                0 => exit(u8::from(rest.write(fd).is_err())),
                child => ended_well(child),
            },
            Self::Fdopen => send_by_stream(fd, rest),
            Self::Sendfile => send_by_sendfile(fd, rest),
            Self::Splice => send_by_splice(fd, rest),
            Self::Pass => send_by_helper(fd, rest),
            Self::Exec => send_by_next_program(fd, rest),
            Self::Spawn => send_by_spawned_program(fd, rest),
            Self::Stdin => send_by_number(fd, 0, rest),
            Self::Stdout => send_by_number(fd, 1, rest),
            Self::Stderr => send_by_number(fd, 2, rest),
        }
    }
}

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
fn ended_well(child: c_int) -> Result<()> {
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

/// The rest in pieces, each with its length.
fn pieces(rest: Rest) -> impl Iterator<Item = Vec<u8>> {
    let mut at = rest.from;
    std::iter::from_fn(move || {
        let len = (rest.end - at).min(PIECE as u64) as usize;
        let mut piece = vec![0; len];
        rest.pattern.fill(at, &mut piece);
        at += len as u64;
        (len > 0).then_some(piece)
    })
}

fn send_by_stream(fd: c_int, rest: Rest) -> Result<()> {
    // SAFETY: the mode ends in a zero.
    let stream = unsafe { libc::fdopen(fd, c"w".as_ptr()) };
    if stream.is_null() {
        return Err(Error::last_os_error());
    }
    for piece in pieces(rest) {
        // SAFETY: the stream was just opened, and the piece is as long. The stream is not closed,
        // so the number stays open.
        let written = unsafe { libc::fwrite(piece.as_ptr().cast(), 1, piece.len(), stream) };
        if written != piece.len() {
            return Err(Error::last_os_error());
        }
    }
    // SAFETY: the stream is open.
    answer(unsafe { libc::fflush(stream) }).map(drop)
}

fn send_by_sendfile(fd: c_int, rest: Rest) -> Result<()> {
    // SAFETY: the name ends in a zero.
    let file = answer(unsafe { libc::memfd_create(c"rest".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor was just made and has no other owner.
    let mut file = unsafe { File::from_raw_fd(file) };
    let (mut written, mut sent) = (0, 0);
    for piece in pieces(rest) {
        file.write_all(&piece)?;
        written += i64::try_from(piece.len()).map_err(Error::other)?;
        while sent < written {
            let left = (written - sent) as usize;
            // SAFETY: the offset is this frame's.
            let count = unsafe { libc::sendfile(fd, file.as_raw_fd(), &raw mut sent, left) };
            answer(c_int::try_from(count).map_err(Error::other)?)?;
        }
        if written > 16 << 20 {
            // The file does not keep what was sent.
            file.set_len(0)?;
            std::io::Seek::rewind(&mut file)?;
            (written, sent) = (0, 0);
        }
    }
    Ok(())
}

fn send_by_splice(fd: c_int, rest: Rest) -> Result<()> {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    answer(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were just made and have no other owner.
    let (from, mut to) = unsafe { (OwnedFd::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    for piece in pieces(rest) {
        // A pipe has room for 64 KiB.
        for part in piece.chunks(32 << 10) {
            to.write_all(part)?;
            let mut left = part.len();
            while left > 0 {
                let none = std::ptr::null_mut();
                // SAFETY: takes numbers.
                let count = unsafe { libc::splice(from.as_raw_fd(), none, fd, none, left, 0) };
                left -= answer(c_int::try_from(count).map_err(Error::other)?)? as usize;
            }
        }
    }
    Ok(())
}

/// The program's own path and words, for `execv(3)`.
fn next_program(fd: c_int, rest: Rest) -> Result<Vec<CString>> {
    let program = std::env::current_exe()?;
    let words = std::iter::once(program.to_string_lossy().into_owned()).chain(rest.words(fd));
    words.map(|word| CString::new(word).map_err(Error::other)).collect()
}

fn send_by_next_program(fd: c_int, rest: Rest) -> Result<()> {
    let words = next_program(fd, rest)?;
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    match fork()? {
        0 => {
            // SAFETY: takes numbers. The flag is that of the child's descriptor.
            unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
            // SAFETY: strings that end in a zero, in a list that ends in a null pointer.
            unsafe { libc::execv(pointers[0], pointers.as_ptr()) };
            exit(127)
        }
        child => ended_well(child),
    }
}

fn send_by_spawned_program(fd: c_int, rest: Rest) -> Result<()> {
    unsafe extern "C" {
        static environ: *const *mut std::ffi::c_char;
    }
    let words = next_program(1, rest)?;
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let mut child = 0;
    // SAFETY: the actions are initialised before their use and freed after it, and all strings and
    // lists end as the function wants. No thread of this program changes the environment.
    let error = unsafe {
        let mut actions = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        libc::posix_spawn_file_actions_adddup2(&raw mut actions, fd, 1);
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
    if error == 0 { ended_well(child) } else { Err(Error::from_raw_os_error(error)) }
}

fn send_by_number(fd: c_int, number: c_int, rest: Rest) -> Result<()> {
    // SAFETY: takes numbers. Nothing of this program uses the standard descriptors after its start.
    answer(unsafe { libc::dup2(fd, number) })?;
    let sent = rest.write(number);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: as above. The socket's end is that of its other number.
    answer(unsafe { libc::dup2(null.as_raw_fd(), number) })?;
    sent
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names_and_numbers() {
        for (name, way) in WAYS {
            assert_eq!(name.parse(), Ok(way));
            assert_eq!(Way::of_number(way.number()), Some(way));
        }
        assert!("fly".parse::<Way>().is_err());
        assert_eq!(Way::of_number(99), None);
    }
}
