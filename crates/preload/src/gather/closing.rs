//! Connections that the program closes or shuts down while bytes wait. As with TCP, the peer gets
//! the bytes before the end.

use std::os::fd::RawFd;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::{flush_one, is_on, pool, share};
use crate::hidden::hide;
use crate::state::{TABLE, owns};
use crate::sys::at;

/// Prepares that the program closes a number. Bytes that the kernel does not take now keep the
/// connection open, as with TCP.
pub(crate) fn closes(fd: RawFd) {
    if !is_on() || !pool::may_have(fd) || !owns() {
        return;
    }
    let Some(mut buffer) = pool::of(fd).filter(|buffer| buffer.fd == fd) else { return };
    flush_one(&mut buffer);
    if buffer.is_empty() || buffer.closed {
        return;
    }
    if let Ok(hidden) = hide(fd, true) {
        (buffer.fd, buffer.closed) = (hidden, true);
    } else {
        drop(buffer);
        share(fd);
    }
}

/// Shuts down both halves or the sending one after the bytes of a connection. Returns false if that
/// is left to the program's own call, since no bytes wait.
pub(crate) fn shuts_down(fd: RawFd, how: i32) -> bool {
    if !is_on() || !matches!(how, libc::SHUT_WR | libc::SHUT_RDWR) {
        return false;
    }
    TABLE.set_shared(fd);
    if !pool::may_have(fd) {
        return false;
    }
    let Some(mut buffer) = pool::of(fd).filter(|buffer| buffer.fd == fd) else { return false };
    flush_one(&mut buffer);
    if buffer.is_empty() || !buffer.is_here() {
        return false;
    }
    buffer.shuts = true;
    if how == libc::SHUT_RDWR
        && let Ok(socket) = at(fd)
    {
        let _ = shutdown(socket, Shutdown::Read);
    }
    true
}

/// Moves the hidden descriptor of a closed connection away from a number that the program is about
/// to use. The caller closes the old one.
pub(crate) fn makes_way(number: RawFd) -> Result<(), Errno> {
    if !is_on() || !TABLE.is_hidden(number) || !owns() {
        return Ok(());
    }
    let mut all = pool::filled().filter_map(pool::at_place);
    if let Some(mut buffer) = all.find(|buffer| buffer.closed && buffer.fd == number) {
        buffer.fd = hide(number, true)?;
    }
    Ok(())
}
