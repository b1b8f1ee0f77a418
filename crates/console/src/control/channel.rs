//! Messages with descriptors over a Unix socket that keeps packets apart (`SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a message in bytes.
pub const MOST_BYTES: usize = 64 << 10;
/// Maximum number of descriptors per message.
pub const MOST_DESCRIPTORS: usize = 3;

/// A packet that was received.
#[derive(Debug)]
pub enum Packet<M> {
    /// A message with its descriptors.
    Message(M, Vec<OwnedFd>),
    /// A packet that is no message, and why. Its descriptors are closed.
    Malformed(String),
    /// The other side has closed the connection.
    End,
}

/// Sends a message with its descriptors, without waiting.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if there is no room; [`io::ErrorKind::InvalidInput`] if the
/// message is too long.
pub fn send<M: Serialize>(socket: impl AsFd, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    if body.len() > MOST_BYTES || fds.len() > MOST_DESCRIPTORS {
        let what = format!("{} bytes and {} descriptors are too many for one message", body.len(), fds.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    // A peer that has gone is an error, not a signal.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(&socket, &[IoSlice::new(&body)], &mut control, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// Receives a packet, without waiting.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if there is none.
pub fn receive<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Packet<M>> {
    let mut body = vec![0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut body)], &mut control, flags) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(Packet::End);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        let most = format!("at most {MOST_BYTES} bytes and {MOST_DESCRIPTORS} descriptors are taken");
        return Ok(Packet::Malformed(format!("the message or its descriptors did not fit: {most}")));
    }
    Ok(match serde_json::from_slice(&body[..received.bytes]) {
        Ok(message) => Packet::Message(message, fds),
        Err(error) => Packet::Malformed(format!("this is no message: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::message::{PROTOCOL, Request};
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn pipes(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| rustix::pipe::pipe().unwrap().0).collect()
    }

    #[test]
    fn a_message_and_its_descriptors_arrive_together() {
        let (a, b) = pair();
        let fds = pipes(MOST_DESCRIPTORS);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        send(&a, &Request::Hello { protocol: PROTOCOL }, &fds).unwrap();
        let Packet::Message(message, received) = receive::<Request>(&b).unwrap() else {
            panic!("no message")
        };
        assert_eq!((message, received.len()), (Request::Hello { protocol: PROTOCOL }, MOST_DESCRIPTORS));
        assert_eq!(receive::<Request>(&b).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert!(matches!(receive::<Request>(&b), Ok(Packet::End)));
    }

    #[test]
    fn hostile_packets_are_malformed_and_the_next_one_is_read() {
        let (a, b) = pair();
        let packets =
            [b"\x00".to_vec(), vec![b'['; 60_000], vec![b'x'; MOST_BYTES + 1], b"{\"add\":{}}".to_vec()];
        for packet in packets {
            rustix::net::send(&a, &packet, SendFlags::empty()).unwrap();
            assert!(matches!(receive::<Request>(&b), Ok(Packet::Malformed(_))));
        }
        let fds = pipes(MOST_DESCRIPTORS + 5);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&a, &[IoSlice::new(b"\"quit\"")], &mut control, SendFlags::empty()).unwrap();
        assert!(matches!(receive::<Request>(&b), Ok(Packet::Malformed(_))));
        send(&a, &Request::Quit, &[]).unwrap();
        assert!(matches!(receive::<Request>(&b), Ok(Packet::Message(Request::Quit, _))));
    }

    #[test]
    fn a_peer_that_does_not_read_is_an_error() {
        let (a, _b) = pair();
        let error = (0..10_000).find_map(|_| send(&a, &Request::Quit, &[]).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
