//! The control connection: how it is opened, and the exchange of request and answer.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{VsockAddr, getpeername, getsockname};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};
use taut_queue_pair::message::{ANSWER_LEN, AttachAnswer, AttachRequest, SERVICE_CID, SERVICE_PORT, Status};

use crate::reason::NotAttached;
use crate::time::timeout;

/// The way to the fabric.
pub trait Transport {
    /// Names a stream as the fabric knows it.
    fn request(&self, stream: BorrowedFd<'_>) -> Result<AttachRequest, NotAttached>;

    /// Opens a connection to the fabric's service. The socket is non-blocking and has
    /// close-on-exec.
    fn dial(&self, until: Instant) -> Result<OwnedFd, Errno>;
}

/// The way to the fabric from within a VM: the host's address of `AF_VSOCK`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vsock;

impl Transport for Vsock {
    fn request(&self, stream: BorrowedFd<'_>) -> Result<AttachRequest, NotAttached> {
        if sockopt::socket_domain(stream).ok() != Some(AddressFamily::VSOCK)
            || sockopt::socket_type(stream).ok() != Some(SocketType::STREAM)
        {
            return Err(NotAttached::NotAStream(None));
        }
        let name = |name: nix::Result<VsockAddr>| {
            name.map_err(|errno| NotAttached::NotAStream(Some(io::Error::from(errno))))
        };
        let own = name(getsockname(stream.as_raw_fd()))?;
        let peer = name(getpeername(stream.as_raw_fd()))?;
        Ok(AttachRequest { own_port: own.port(), peer_cid: peer.cid(), peer_port: peer.port() })
    }

    fn dial(&self, until: Instant) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
        let service = VsockAddr::new(SERVICE_CID, SERVICE_PORT);
        match nix::sys::socket::connect(socket.as_raw_fd(), &service) {
            Ok(()) => {}
            Err(nix::Error::EINPROGRESS) => {
                wait(socket.as_fd(), PollFlags::OUT, until)?;
                sockopt::socket_error(&socket)??;
            }
            Err(errno) => return Err(Errno::from_raw_os_error(errno as i32)),
        }
        Ok(socket)
    }
}

/// Asks the fabric to attach a stream. Returns the control connection, the channel, and the bytes
/// that come by packets.
pub(crate) fn attach(
    transport: &impl Transport,
    request: AttachRequest,
    patience: Duration,
) -> Result<(OwnedFd, AttachAnswer), NotAttached> {
    let now = Instant::now();
    let until = now.checked_add(patience).unwrap_or(now + Duration::from_secs(3600));
    let no_service = |errno: Errno| NotAttached::NoService(errno.into());
    let control = transport.dial(until).map_err(no_service)?;
    let bytes = exchange(control.as_fd(), request, until).map_err(|errno| match errno {
        Errno::TIMEDOUT => NotAttached::Unanswered(patience),
        // It has ended without an answer: something else listens at the port.
        errno => no_service(errno),
    })?;
    let answer = AttachAnswer::from_bytes(&bytes)?;
    if answer.status != Status::Attached {
        return Err(NotAttached::Declined(answer.status));
    }
    Ok((control, answer))
}

/// Sends the request and reads exactly one answer.
fn exchange(
    control: BorrowedFd<'_>,
    request: AttachRequest,
    until: Instant,
) -> Result<[u8; ANSWER_LEN], Errno> {
    let request = request.to_bytes();
    let mut sent = 0;
    while let Some(rest) = request.get(sent..).filter(|rest| !rest.is_empty()) {
        match send(control, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => sent += count,
            Err(Errno::AGAIN) => wait(control, PollFlags::OUT, until)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut answer = [0; ANSWER_LEN];
    let mut got = 0;
    while let Some(rest) = answer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match recv(control, rest, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Errno::CONNRESET),
            Ok((_, count)) => got += count,
            Err(Errno::AGAIN) => wait(control, PollFlags::IN, until)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(answer)
}

/// Waits for an event of a socket. Signals do not end the wait.
fn wait(socket: BorrowedFd<'_>, events: PollFlags, until: Instant) -> Result<(), Errno> {
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket, events)];
        match poll(&mut polled, Some(&timeout(until))) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Err(Errno::INTR) => {}
            done => return done.map(drop),
        }
    }
}
