//! Framed messages with file descriptors over a Unix stream socket.
//!
//! A frame is a 4-byte little-endian length, followed by that many bytes of JSON. Descriptors
//! travel with the first byte of the length.
//!
//! No call relies on the mode of the socket, which its other holders may change: each asks the
//! kernel not to block, and waits by itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::foreign::receive;

/// Longest body of a frame in bytes: a configuration of [`super::counters::MAX_PORTS`] ports fits.
pub const MAX_FRAME: usize = 8 << 20;
/// Maximum number of descriptors per frame (the kernel's `SCM_MAX_FD`).
pub const MAX_FDS: usize = 253;

/// A peer that has gone is an error, not a signal.
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Sends one message with its descriptors. Waits until the kernel has all of it, at most for
/// `limit`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after `limit`; the position in the stream is then undefined.
pub fn send_within<M: Serialize>(
    socket: &UnixStream,
    message: &M,
    fds: &[BorrowedFd<'_>],
    limit: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    let body = serde_json::to_vec(message)?;
    if body.len() > MAX_FRAME || fds.len() > MAX_FDS {
        let what = format!("{} bytes and {} descriptors are too many for one message", body.len(), fds.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let length = (body.len() as u32).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    // Descriptors travel with the first byte; the rest is plain bytes.
    let sent = loop {
        match sendmsg(socket, &[IoSlice::new(&length)], &mut control, SEND) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait(socket, PollFlags::OUT, deadline)?,
            other => break other?,
        }
    };
    write_all(socket, &length[sent..], deadline)?;
    write_all(socket, &body, deadline)
}

/// Receives one message with its descriptors; `None` at a clean end of the stream.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the message is incomplete after `limit`.
pub fn receive_within<M: DeserializeOwned>(
    socket: &UnixStream,
    limit: Duration,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let deadline = Instant::now() + limit;
    let mut length = [0; 4];
    let mut fds = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut length)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait(socket, PollFlags::IN, deadline)?,
            other => break other?.bytes,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if got == 0 {
        return Ok(None);
    }
    read_exact(socket, &mut length[got..], deadline)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        let what = format!("a message of {length} bytes was announced; at most {MAX_FRAME} are taken");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut body = vec![0; length];
    read_exact(socket, &mut body, deadline)?;
    Ok(Some((serde_json::from_slice(&body)?, fds)))
}

fn wait(socket: &UnixStream, flags: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let left = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut poll = [PollFd::from_borrowed_fd(socket.as_fd(), flags)];
    match rustix::event::poll(&mut poll, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn write_all(socket: &UnixStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, SEND) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait(socket, PollFlags::OUT, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn read_exact(socket: &UnixStream, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match receive(socket, &mut *bytes, &mut Vec::new()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait(socket, PollFlags::IN, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::config::FabricConfig;
    use super::super::message::ToFabric;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) = UnixStream::pair().unwrap();
        let fds: Vec<_> = (0..20)
            .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap())
            .collect();
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let first = ToFabric::Hello { protocol: 1 };
        let second = ToFabric::Configure(FabricConfig { revision: 9, ..FabricConfig::default() });
        send_within(&a, &first, &borrowed, LIMIT).unwrap();
        send_within(&a, &second, &[], LIMIT).unwrap();
        drop(a);
        let (message, received) = receive_within::<ToFabric>(&b, LIMIT).unwrap().unwrap();
        assert_eq!((message, received.len()), (first, 20));
        let (message, received) = receive_within::<ToFabric>(&b, LIMIT).unwrap().unwrap();
        assert_eq!((message, received.len()), (second, 0));
        assert!(receive_within::<ToFabric>(&b, LIMIT).unwrap().is_none());
    }

    #[test]
    fn a_peer_that_neither_reads_nor_writes_is_given_up() {
        let (a, _b) = UnixStream::pair().unwrap();
        let limit = Duration::from_millis(20);
        let error = loop {
            let hello = ToFabric::Hello { protocol: 1 };
            if let Err(error) = send_within(&a, &hello, &[], limit) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(receive_within::<ToFabric>(&a, limit).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn an_oversized_announcement_is_an_error_not_an_allocation() {
        let (a, b) = UnixStream::pair().unwrap();
        (&a).write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(receive_within::<ToFabric>(&b, LIMIT).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
