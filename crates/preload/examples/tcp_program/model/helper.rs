//! A process that was forked at the start. It gets sockets by messages and writes on them.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use super::writes::write_rest;
use crate::calls::{pass, receive_descriptor, start_child};

static HELPER: OnceLock<UnixStream> = OnceLock::new();
/// Numbers of a request: direction, position and count.
const LEN: usize = 24;

/// Starts the helper. It ends with this process.
pub(super) fn start() {
    let (own, mut other) = UnixStream::pair().unwrap();
    start_child(|| {
        // The child's copy of the parent's end would keep it from its end.
        crate::calls::raw_close(own.as_raw_fd());
        while let Some(fd) = receive_descriptor(other.as_raw_fd()) {
            let mut request = [0; LEN];
            other.read_exact(&mut request).unwrap();
            let number =
                |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| request[8 * at + byte])) as usize;
            let written = write_rest(fd.as_raw_fd(), [0, 1, 2].map(number));
            drop(fd);
            other.write_all(&[u8::from(written)]).unwrap();
        }
        0
    });
    HELPER.set(own).unwrap();
}

/// Passes a socket to the helper, which writes on it. Waits until it has.
pub(super) fn write_by_helper(fd: RawFd, numbers: [usize; 3]) -> bool {
    let Some(mut helper) = HELPER.get() else { return false };
    pass(helper.as_raw_fd(), fd).unwrap();
    helper.write_all(&numbers.map(|number| (number as u64).to_le_bytes()).concat()).unwrap();
    let mut answer = [0];
    helper.read_exact(&mut answer).unwrap();
    answer == [1]
}
