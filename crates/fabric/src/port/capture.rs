//! Captures of a port: copies of its frames for `tautd` (ESX: `pktcap-uw`).
//!
//! A copy goes into the socket of the capture at once. If the socket has no room, the copy is lost
//! and counted: the fabric never waits for a reader. The kernel's buffer of the socket is the only
//! queue, and `tautd` sets its size.
//!
//! A port keeps its captures, but only the next [`Switch`](crate::switch::Switch) knows them. So a
//! decision of the switch that is cached never belongs to a time before a capture.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::net::{SendFlags, send};
use taut_api::fabric::DropReason;
use taut_api::fabric::capture::{Direction, Directions, HEADER, MAX_SNAPLEN, Message, Record};

use crate::sys::lock::lock;

/// Neither waits for room nor raises a signal if the reader has gone.
const NOW: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// One capture of a port.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    directions: Directions,
    /// Longest part of a frame that is copied, in bytes.
    snaplen: usize,
    /// Locked last, also while other locks are held.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The reader knows that the capture is in force. Frames before that are not recorded.
    begun: bool,
    /// Number of frames that were lost.
    lost: u64,
    /// The same as the reader knows it.
    told: u64,
    /// Memory for one message.
    message: Box<[u8]>,
}

impl Capture {
    /// Makes a capture that sends its messages over a `SOCK_SEQPACKET` socket.
    pub fn new(socket: OwnedFd, snaplen: u32, directions: Directions) -> Self {
        let snaplen = snaplen.min(MAX_SNAPLEN) as usize;
        let message = vec![0; HEADER + snaplen].into_boxed_slice();
        let state = Mutex::new(State { begun: false, lost: 0, told: 0, message });
        Self { socket, directions, snaplen, state }
    }

    /// Tells the reader that the capture is in force, and records frames from now on.
    ///
    /// Workers take up the captures of a switch one by one, so some of them have frames before the
    /// reader is told. These must not precede the answer, nor fill the socket before it.
    pub fn begin(&self) {
        let mut state = lock(&self.state);
        // Without earlier messages there is room, so this fails only if the reader has gone.
        state.begun = self.tell(&Message::Begun);
    }

    /// Sends a message that is no frame. A reader that has no room for it does not get it.
    pub fn tell(&self, message: &Message<'_>) -> bool {
        send(&self.socket, &message.header(), NOW).is_ok()
    }

    /// Tells the reader how many frames were lost, if it does not know yet.
    pub fn tell_losses(&self) {
        let mut state = lock(&self.state);
        if state.told != state.lost && self.tell(&Message::Lost(state.lost)) {
            state.told = state.lost;
        }
    }

    /// Records a frame of `len` bytes, of which `copy` copies as many as there is room for and
    /// returns their number.
    fn record(
        &self,
        direction: Direction,
        dropped: Option<DropReason>,
        len: usize,
        copy: &dyn Fn(&mut [u8]) -> usize,
    ) {
        if !self.directions.include(direction) {
            return;
        }
        let mut state = lock(&self.state);
        let State { begun, lost, told, message } = &mut *state;
        if !*begun {
            return;
        }
        let (header, space) = message.split_at_mut(HEADER);
        let copied = copy(&mut space[..len.min(self.snaplen)]);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        // Under the lock, so that the reader gets frames in the order of their times.
        let record = Record { at_ns: now_ns(), lost: *lost, direction, dropped, len, bytes: &[] };
        header.copy_from_slice(&Message::Frame(record).header());
        if send(&self.socket, &message[..HEADER + copied], NOW).is_ok() {
            *told = *lost;
        } else {
            // There is no room, or the reader has gone, which the control thread notices.
            *lost += 1;
        }
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the wall clock in nanoseconds since the Unix epoch.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// All captures of one port.
#[derive(Debug, Clone, Default)]
pub struct Captures(Vec<Arc<Capture>>);

impl Captures {
    /// Tells whether there is a capture.
    #[inline]
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Has all captures record a frame of `len` bytes. `copy` copies as many of its bytes as there
    /// is room for, and returns their number; it is called once for each capture.
    pub fn record(
        &self,
        direction: Direction,
        dropped: Option<DropReason>,
        len: usize,
        copy: &dyn Fn(&mut [u8]) -> usize,
    ) {
        for capture in &self.0 {
            capture.record(direction, dropped, len, copy);
        }
    }
}

impl FromIterator<Arc<Capture>> for Captures {
    fn from_iter<I: IntoIterator<Item = Arc<Capture>>>(captures: I) -> Self {
        Self(captures.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    /// A capture that has begun, and its reader's socket.
    fn capture(snaplen: u32, directions: Directions) -> (OwnedFd, Capture) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let capture = Capture::new(theirs, snaplen, directions);
        record(&capture, Direction::Tx, None, 60);
        record(&capture, Direction::Rx, None, 60);
        capture.begin();
        let packet = next(&ours).unwrap();
        assert_eq!(Message::parse(&packet), Ok(Message::Begun), "no frame comes before");
        (ours, capture)
    }

    /// Has a frame recorded whose bytes are its length.
    fn record(capture: &Capture, direction: Direction, dropped: Option<DropReason>, len: usize) {
        capture.record(direction, dropped, len, &|space| {
            space.fill(len as u8);
            space.len()
        });
    }

    /// Returns the next message; `None` if there is none.
    fn next(reader: &OwnedFd) -> Option<Vec<u8>> {
        let mut packet = vec![0; HEADER + MAX_SNAPLEN as usize];
        let (got, _) = recv(reader, &mut packet[..], RecvFlags::DONTWAIT).ok()?;
        packet.truncate(got);
        Some(packet)
    }

    #[test]
    fn frames_are_cut_and_keep_their_length_direction_and_reason() {
        let (reader, capture) = capture(100, Directions::Both);
        record(&capture, Direction::Tx, Some(DropReason::ForgedTransmit), 60);
        record(&capture, Direction::Rx, None, 1514);
        let packet = next(&reader).unwrap();
        let Ok(Message::Frame(first)) = Message::parse(&packet) else { panic!("{packet:?}") };
        assert_eq!((first.direction, first.len, first.bytes), (Direction::Tx, 60, &[60; 60][..]));
        assert_eq!(first.dropped, Some(DropReason::ForgedTransmit));
        let packet = next(&reader).unwrap();
        let Ok(Message::Frame(second)) = Message::parse(&packet) else { panic!("{packet:?}") };
        assert_eq!((second.direction, second.len, second.bytes.len()), (Direction::Rx, 1514, 100));
        assert!(second.dropped.is_none() && second.at_ns >= first.at_ns && first.at_ns > 0);
        assert_eq!(next(&reader), None);
    }

    #[test]
    fn other_directions_are_not_recorded() {
        let (reader, capture) = capture(100, Directions::Rx);
        record(&capture, Direction::Tx, None, 60);
        assert_eq!(next(&reader), None);
        record(&capture, Direction::Rx, None, 60);
        assert!(next(&reader).is_some());
    }

    #[test]
    fn a_reader_that_does_not_read_loses_frames_and_hears_how_many() {
        let (reader, capture) = capture(2000, Directions::Both);
        let mut sent = 0_u64;
        while lock(&capture.state).lost < 10 {
            record(&capture, Direction::Tx, None, 1514);
            sent += 1;
        }
        // There is no room for this, either.
        capture.tell_losses();
        let mut seen = 0;
        while let Some(packet) = next(&reader) {
            assert!(matches!(Message::parse(&packet), Ok(Message::Frame(Record { lost: 0, .. }))));
            seen += 1;
        }
        assert_eq!(seen, sent - 10);
        capture.tell_losses();
        capture.tell_losses();
        assert_eq!(Message::parse(&next(&reader).unwrap()), Ok(Message::Lost(10)));
        assert_eq!(next(&reader), None, "it is told once");
        record(&capture, Direction::Tx, None, 60);
        let packet = next(&reader).unwrap();
        assert!(matches!(Message::parse(&packet), Ok(Message::Frame(Record { lost: 10, .. }))));
    }

    #[test]
    fn a_reader_that_has_gone_disturbs_nobody() {
        let (reader, capture) = capture(2000, Directions::Both);
        drop(reader);
        record(&capture, Direction::Tx, None, 60);
        assert!(!capture.tell(&Message::Begun));
    }
}
