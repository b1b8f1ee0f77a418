//! More ways to write: streams of the C library, several messages at once, signal handlers. Ends of
//! threads and processes after that.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::alarms::Alarms;
use super::{answer, error};

/// Writes a text by a stream of the C library, `fdopen(3)`.
pub(crate) fn write_by_stream(fd: RawFd, text: &str) {
    let text = CString::new(text).unwrap();
    // SAFETY: strings that end in a zero.
    let stream = unsafe { libc::fdopen(fd, c"w".as_ptr()) };
    assert!(!stream.is_null(), "{}", error());
    // SAFETY: the stream was just opened. It is not closed, so the number stays open.
    unsafe {
        libc::fputs(text.as_ptr(), stream);
        libc::fflush(stream);
    }
}

/// Writes a text by `dprintf(3)`.
pub(crate) fn write_by_dprintf(fd: RawFd, text: &str) {
    unsafe extern "C" {
        fn dprintf(fd: c_int, format: *const std::ffi::c_char, ...) -> c_int;
    }
    let text = CString::new(text).unwrap();
    // SAFETY: the format takes strings that end in a zero, and a number.
    answer(unsafe { dprintf(fd, c"%s%.1f%d".as_ptr(), text.as_ptr(), 2.5f64, 7 as c_int) }).unwrap();
}

/// `recvmmsg(2)` into buffers of these lengths, with a limit of seconds or without one. Returns the
/// length of each message.
pub(crate) fn recvmmsg(
    fd: RawFd,
    lens: [usize; 3],
    flags: c_int,
    seconds: Option<i64>,
) -> Result<Vec<u32>, String> {
    let mut buffer = [[0u8; 16]; 3];
    let mut parts: Vec<libc::iovec> = buffer
        .iter_mut()
        .zip(lens)
        .map(|(one, len)| libc::iovec { iov_base: one.as_mut_ptr().cast(), iov_len: len.min(16) })
        .collect();
    // SAFETY: structures of numbers and pointers, for which zero is valid.
    let mut messages: [libc::mmsghdr; 3] = unsafe { std::mem::zeroed() };
    for (message, part) in messages.iter_mut().zip(&mut parts) {
        (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
    }
    let mut time = seconds.map(|seconds| libc::timespec { tv_sec: seconds, tv_nsec: 0 });
    let time = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: messages, parts, buffers and time are this frame's.
    let count = unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), 3, flags as _, time) };
    let count = answer(count)? as usize;
    Ok(messages[..count].iter().map(|message| message.msg_len).collect())
}

/// `sendmmsg(2)` of messages of one piece each.
pub(crate) fn sendmmsg(fd: RawFd, texts: &[&[u8]]) -> c_int {
    let mut parts: Vec<libc::iovec> = texts
        .iter()
        .map(|text| libc::iovec { iov_base: text.as_ptr().cast_mut().cast::<c_void>(), iov_len: text.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = parts
        .iter_mut()
        .map(|part| {
            // SAFETY: a structure of numbers and pointers, for which zero is valid.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    // SAFETY: everything that the messages point to lives in this frame or that of the caller.
    answer(unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), messages.len() as u32, libc::MSG_NOSIGNAL) })
        .unwrap()
}

/// `SO_SNDTIMEO` in milliseconds.
pub(crate) fn send_timeout(fd: RawFd, milliseconds: i64) {
    let time = libc::timeval { tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000 };
    let len = size_of::<libc::timeval>() as u32;
    // SAFETY: the value is this frame's.
    answer(unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, (&raw const time).cast(), len)
    })
    .unwrap();
}

static WRITES_TO: AtomicI32 = AtomicI32::new(-1);
/// Number of bytes that the handler of [`write_in_handler`] has written.
pub(crate) static WRITTEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn write_one(_signal: c_int) {
    // SAFETY: one byte of a constant.
    if unsafe { libc::write(WRITES_TO.load(Relaxed), c"!".as_ptr().cast(), 1) } == 1 {
        WRITTEN.fetch_add(1, Relaxed);
    }
}

/// Lets a handler of `SIGALRM` write a byte to this descriptor each half millisecond, until the
/// result is dropped.
pub(crate) fn write_in_handler(fd: RawFd) -> Alarms {
    WRITES_TO.store(fd, Relaxed);
    // SAFETY: a structure of numbers, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = write_one as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the structure is this frame's, and the handler only does what handlers may.
    answer(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) }).unwrap();
    Alarms::every(Duration::from_micros(500))
}

/// A way for a thread to end without its process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// `pthread_exit(3)`.
    Exit,
    /// `pthread_cancel(3)`.
    Cancel,
    /// `thrd_exit`, the way of C11.
    C11,
}

impl End {
    fn take(self) -> ! {
        unsafe extern "C-unwind" {
            fn pthread_exit(value: *mut c_void) -> !;
            fn pthread_testcancel();
            fn thrd_exit(value: c_int) -> !;
        }
        // SAFETY: the callers' frames have nothing to drop.
        unsafe {
            match self {
                Self::Exit => pthread_exit(std::ptr::null_mut()),
                Self::Cancel => {
                    libc::pthread_cancel(libc::pthread_self());
                    pthread_testcancel();
                    unreachable!("cancelled")
                }
                Self::C11 => thrd_exit(0),
            }
        }
    }
}

/// Starts a child process whose only thread does some work and ends itself. Returns the child's ID.
///
/// The child is forked by a thread whose frames may be unwound. Rust's main thread may not.
pub(crate) fn start_thread_that_ends(work: fn(), end: End) -> c_int {
    extern "C-unwind" fn run(task: *mut c_void) -> *mut c_void {
        // SAFETY: the child has one thread, and the work may be done there.
        let pid = unsafe { libc::fork() };
        if pid != 0 {
            return std::ptr::without_provenance_mut(pid as usize);
        }
        // SAFETY: the caller below passes this, and waits for the thread.
        let (work, end) = unsafe { task.cast::<(fn(), End)>().read() };
        work();
        end.take()
    }
    let (mut thread, mut pid) = (0, std::ptr::null_mut());
    // SAFETY: a thread is started with this function, which does not end by unwinding in this
    // process.
    let start = unsafe {
        std::mem::transmute::<
            extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(run)
    };
    let mut task = (work, end);
    // SAFETY: thread, task and result are this frame's.
    unsafe {
        let task = (&raw mut task).cast();
        assert_eq!(libc::pthread_create(&raw mut thread, std::ptr::null(), start, task), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut pid), 0);
    }
    c_int::try_from(pid.addr()).unwrap()
}

/// Ends the process by `exit(3)`.
pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::exit(status) }
}

/// Replaces the program by `/bin/true`, by `execl(3)` or `execv(3)`.
pub(crate) fn become_true(by_list: bool) -> ! {
    let (path, end) = (c"/bin/true".as_ptr(), std::ptr::null::<std::ffi::c_char>());
    // SAFETY: strings that end in a zero, in lists that end in a null pointer.
    unsafe {
        if by_list {
            libc::execl(path, path, end);
        } else {
            libc::execv(path, [path, end].as_ptr());
        }
    }
    panic!("{}", error());
}

/// Replaces the program by `/bin/echo`, which writes a text to the standard output.
pub(crate) fn become_echo(text: &std::ffi::CStr) -> ! {
    let path = c"/bin/echo".as_ptr();
    // SAFETY: strings that end in a zero, in a list that ends in a null pointer.
    unsafe { libc::execv(path, [path, text.as_ptr(), std::ptr::null()].as_ptr()) };
    panic!("{}", error());
}

extern "C" fn exit_handler(_signal: c_int) {
    let text = b"handled\n";
    // SAFETY: bytes of a constant. The program has one lock at most, that of its write.
    unsafe {
        libc::write(1, text.as_ptr().cast(), text.len());
        libc::exit(0);
    }
}

/// Installs a handler of `SIGSEGV` that ends the process by `exit(3)`.
pub(crate) fn exit_at_fault() {
    // SAFETY: the handler does what programs do there.
    unsafe { libc::signal(libc::SIGSEGV, exit_handler as extern "C" fn(c_int) as usize) };
}

/// Writes bytes that cannot be read.
pub(crate) fn write_unreadable(fd: RawFd, len: usize) -> super::Answer {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the kernel refuses the address, or the handler of the fault ends the process.
    answer(unsafe { libc::write(fd, page, len) } as c_int)
}
