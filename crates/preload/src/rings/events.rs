//! What `poll` says about a connection with a channel.

use taut_queue_pair::{Direction, End};

use super::input::Input;
use super::record::{Pair, Stop};
use super::words::flag;

/// Events by which programs wait for bytes.
pub(super) const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;
/// Events by which programs wait for room.
pub(super) const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// The rings that a program waits for by some events. The stream's own socket says that the whole
/// connection has ended.
pub(super) fn directions(events: i16) -> impl Iterator<Item = Direction> {
    let reads = (events & READABLE != 0).then_some(Direction::In);
    let writes = (events & WRITABLE != 0).then_some(Direction::Out);
    reads.into_iter().chain(writes)
}

/// The events by which programs wait for a ring.
pub(super) const fn events_of(direction: Direction) -> i16 {
    match direction {
        Direction::In => READABLE,
        Direction::Out => WRITABLE,
    }
}

impl Pair {
    /// The events of a connection, as those of a TCP socket (`tcp_poll` in the kernel).
    pub(super) fn events(&self, wanted: i16) -> Result<i16, Stop> {
        let (is_readable, end) = {
            let input = Input::lock(self)?;
            (input.is_ready(), input.end())
        };
        let mut events = if is_readable { READABLE } else { 0 };
        if wanted & WRITABLE != 0 && self.is_ready(Direction::Out)? {
            events |= WRITABLE;
        }
        if end == End::Reset || self.has(flag::FAULT) {
            events |= READABLE | WRITABLE | libc::POLLRDHUP | libc::POLLHUP;
            if !self.has(flag::TOLD) {
                events |= libc::POLLERR;
            }
        }
        if end != End::Open || self.has(flag::SHUT_READ) {
            events |= READABLE | libc::POLLRDHUP;
            if self.has(flag::SHUT_WRITE) {
                events |= libc::POLLHUP;
            }
        }
        Ok(events & (wanted | libc::POLLHUP | libc::POLLERR))
    }
}
