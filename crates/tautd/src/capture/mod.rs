//! Captures of ports (ESX: `pktcap-uw`): the frames that the fabric sends over a socket, as pcapng.
//!
//! The daemon has no queue of frames. It reads them from the socket when the client of the API
//! takes more, and the fabric counts those that find the socket full.

mod answer;
mod pcapng;
mod reader;

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::fabric::capture::{Ended, MOST_CAPTURES, Message};
use tokio::net::UnixDatagram;

use answer::Answer;
use reader::Reader;

/// Room for frames in the socket of a capture, in bytes. The kernel takes twice as much, for what
/// it needs itself: about 10,000 short frames, or 100 of the longest.
const ROOM: usize = 4 << 20;

/// Longest wait until the fabric has begun a capture.
const PATIENCE: Duration = Duration::from_secs(10);

/// All captures that run.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    sockets: Mutex<Vec<Weak<UnixDatagram>>>,
    /// The daemon is ending.
    is_ending: Arc<AtomicBool>,
}

/// A capture for which the fabric has not been asked yet.
#[derive(Debug)]
pub(crate) struct Opened {
    reader: Reader,
    is_ending: Arc<AtomicBool>,
}

/// The port of a capture, and how much is captured.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Number of the port.
    pub(crate) port: u32,
    /// Owner of the port.
    pub(crate) owner: String,
    /// Longest part of a frame that is captured, in bytes.
    pub(crate) snaplen: u32,
    /// Number of frames after which the capture ends.
    pub(crate) count: Option<u64>,
}

impl Captures {
    /// Makes the two sockets of a capture. The second one is for the fabric.
    pub(crate) fn open(&self) -> Result<(Opened, OwnedFd), ApiError> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_ending.load(Relaxed) {
            return Err(ApiError::new(
                ErrorKind::Unavailable,
                "the daemon is ending",
                "start it again, then try again",
            ));
        }
        sockets.retain(|socket| socket.strong_count() > 0);
        if sockets.len() >= MOST_CAPTURES {
            return Err(too_many());
        }
        let cannot = |error: std::io::Error| {
            ApiError::new(
                ErrorKind::Unavailable,
                "the socket of a capture cannot be made",
                "raise the daemon's limit of open files",
            )
            .because(&error)
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|error| cannot(error.into()))?;
        // Without the right to exceed the host's limit, the room is what that permits.
        if set_socket_send_buffer_size_force(&theirs, ROOM).is_err() {
            let _ = set_socket_send_buffer_size(&theirs, ROOM);
        }
        // There is no type for sockets of this kind. The calls are those of datagrams.
        let ours = UnixDatagram::from_std(ours.into()).map_err(cannot)?;
        let ours = Arc::new(ours);
        sockets.push(Arc::downgrade(&ours));
        let opened = Opened { reader: Reader::new(ours), is_ending: Arc::clone(&self.is_ending) };
        Ok((opened, theirs))
    }

    /// Ends all captures, because the daemon ends.
    pub(crate) fn end_all(&self) {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ending.store(true, Relaxed);
        for socket in sockets.iter().filter_map(Weak::upgrade) {
            // The fabric may have closed its end already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Opened {
    /// Waits until the fabric, which was asked for it, has begun the capture.
    pub(crate) async fn begun(self, subject: &Subject) -> Result<Answer, ApiError> {
        let Self { mut reader, is_ending } = self;
        let first = poll_fn(|cx| {
            reader.poll_next(cx).map(|message| match message {
                Ok(Some(Message::Begun)) => Ok(()),
                Ok(Some(Message::Ended(why))) => Err(refused(why, &subject.owner)),
                Ok(Some(Message::Frame(_) | Message::Lost(_)) | None) => Err(not_begun(&subject.owner)),
                Err(error) => Err(not_begun(&subject.owner).because(&error)),
            })
        });
        let begun = tokio::time::timeout(PATIENCE, first).await;
        begun.map_err(|_| {
            let message =
                format!("timed out after {PATIENCE:?} waiting until the fabric captures {}", subject.owner);
            ApiError::new(ErrorKind::Unavailable, message, "`taut events` shows what happened")
        })??;
        Ok(Answer::new(reader, subject, is_ending))
    }
}

fn refused(why: Ended, owner: &str) -> ApiError {
    match why {
        Ended::TooMany => too_many(),
        Ended::NoPort => ApiError::new(
            ErrorKind::Conflict,
            format!("the fabric does not serve the port of {owner}"),
            "`taut port list` shows the state of each port",
        ),
        Ended::Failed => ApiError::new(
            ErrorKind::Unavailable,
            format!("the fabric cannot capture the frames of {owner}"),
            "read the fabric's log",
        ),
    }
}

fn not_begun(owner: &str) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("the fabric has ended before it began to capture {owner}"),
        "try again; `taut events` shows what happened",
    )
}

fn too_many() -> ApiError {
    ApiError::new(ErrorKind::Conflict, format!("{MOST_CAPTURES} captures run already"), "end one of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn captures_are_limited_and_end_together() {
        let captures = Captures::default();
        let mut open: Vec<_> = (0..MOST_CAPTURES).map(|_| captures.open().unwrap()).collect();
        let refused = captures.open().unwrap_err().to_string();
        assert!(refused.contains("16 captures run already\nhint: "), "{refused}");
        open.pop();
        open.push(captures.open().unwrap());
        captures.end_all();
        let (opened, _fabric) = open.pop().unwrap();
        let subject = Subject { port: 1, owner: "vm/a/nic0".into(), snaplen: 96, count: None };
        let error = opened.begun(&subject).await.unwrap_err().to_string();
        assert!(error.contains("ended before it began to capture vm/a/nic0"), "{error}");
    }

    #[tokio::test]
    async fn the_reason_of_the_fabric_is_told() {
        let captures = Captures::default();
        let (opened, fabric) = captures.open().unwrap();
        let message = Message::Ended(Ended::NoPort).header();
        rustix::net::send(&fabric, &message, rustix::net::SendFlags::empty()).unwrap();
        let subject = Subject { port: 1, owner: "vm/a/nic0".into(), snaplen: 96, count: None };
        let error = opened.begun(&subject).await.unwrap_err().to_string();
        assert!(error.contains("does not serve the port of vm/a/nic0\nhint: "), "{error}");
    }
}
