//! Programs that go on with a socket.

use std::ffi::{CString, c_char, c_int};
use std::fs::File;
use std::os::fd::RawFd;

use super::{answer, error, owned};

/// Path of this program and words for it, each with a zero at its end.
fn command_line(words: &[String]) -> Vec<CString> {
    let program = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    std::iter::once(&program).chain(words).map(|word| CString::new(word.as_str()).unwrap()).collect()
}

/// Starts this program with these words by fork and `execv(3)`. It inherits a descriptor. Returns
/// the child's ID.
pub(crate) fn execute_with(fd: RawFd, words: &[String]) -> c_int {
    let words = command_line(words);
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    super::start_child(|| {
        // SAFETY: takes numbers. The flag is that of the child's descriptor.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        // SAFETY: strings that end in a zero, in a list that ends in a null pointer.
        unsafe { libc::execv(pointers[0], pointers.as_ptr()) };
        127
    })
}

/// Starts this program with these words by `posix_spawn(3)`, with a descriptor as its standard
/// output. Returns the child's ID.
pub(crate) fn spawn_with(fd: RawFd, words: &[String]) -> c_int {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    let words = command_line(words);
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let (mut child, none) = (0, std::ptr::null());
    // SAFETY: the actions are initialised before their use and freed after it, and all strings and
    // lists end as the function wants. No thread of this program changes the environment.
    let failed = unsafe {
        let mut actions = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        libc::posix_spawn_file_actions_adddup2(&raw mut actions, fd, 1);
        let (path, list) = (pointers[0], pointers.as_ptr());
        let failed = libc::posix_spawn(&raw mut child, path, &raw const actions, none, list, environ);
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        failed
    };
    assert_eq!(failed, 0, "{}", std::io::Error::from_raw_os_error(failed));
    child
}

/// A file in memory.
pub(crate) fn temporary() -> File {
    // SAFETY: the name ends in a zero.
    let fd = unsafe { libc::memfd_create(c"temporary".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(answer(fd).is_ok(), "{}", error());
    owned(fd).into()
}
