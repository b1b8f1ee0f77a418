//! Waits for new bytes on an end's two sockets. Each arrival wakes a thread once, even if nobody
//! reads it, so signals can stay unread.
//!
//! Since version 6.8, Linux answers each read that empties a socket with a packet, which costs a
//! guest as much as a request.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::time::timespec;

/// Longest wait. Kernels before 5.11 know no limit that is much longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Marks of the sockets.
const CONTROL: u64 = 0;
const STREAM: u64 = 1;

/// An instance of epoll that watches the sockets.
#[derive(Debug)]
pub(crate) struct Edges(OwnedFd);

/// The result of a wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Signals have come on the control connection, or it has ended.
    pub(crate) signals: bool,
    /// The control connection has ended.
    pub(crate) end: bool,
    /// The peer has ended its direction of the stream, or both.
    pub(crate) hangup: bool,
}

impl Edges {
    /// Watches both sockets. Bytes that are already there count as an arrival.
    pub(crate) fn new(control: BorrowedFd<'_>, stream: BorrowedFd<'_>) -> Result<Self, Errno> {
        let instance = epoll::create(CreateFlags::CLOEXEC)?;
        let hangup = EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&instance, control, EventData::new_u64(CONTROL), EventFlags::IN | hangup)?;
        epoll::add(&instance, stream, EventData::new_u64(STREAM), hangup)?;
        Ok(Self(instance))
    }

    /// Waits once for an arrival or an end, and returns what was seen: nothing if the time is over.
    /// The kernel counts the time in milliseconds, and a wait takes a day at most.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Result<Seen, Errno> {
        let mut events = [MaybeUninit::uninit(); 2];
        let time = time.map(|time| timespec(time.min(LONGEST)));
        let (events, _) = epoll::wait(&self.0, &mut events, time.as_ref())?;
        let mut seen = Seen::default();
        for event in events {
            let flags = event.flags;
            if event.data.u64() == CONTROL {
                seen.signals = true;
                seen.end |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            } else {
                seen.hangup = true;
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn each_arrival_is_seen_once() {
        let [(control, mut fabric), (stream, peer)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        fabric.write_all(b"x").unwrap();
        let edges = Edges::new(control.as_fd(), stream.as_fd()).unwrap();
        let signals = Seen { signals: true, ..Seen::default() };
        assert_eq!([edges.wait(NOW), edges.wait(NOW)], [Ok(signals), Ok(Seen::default())]);
        fabric.write_all(b"y").unwrap();
        assert_eq!(edges.wait(None), Ok(signals), "although nobody has read the first one");
        (&control).read_exact(&mut [0; 2]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(edges.wait(None), Ok(Seen { hangup: true, ..Seen::default() }));
        assert_eq!(edges.wait(NOW), Ok(Seen::default()));
        drop(fabric);
        assert_eq!(edges.wait(None), Ok(Seen { signals: true, end: true, hangup: false }));
    }
}
