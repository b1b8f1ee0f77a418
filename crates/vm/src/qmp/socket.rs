//! The socket of a QEMU's monitor.
//!
//! The QEMU at the other end is not trusted. It may send a descriptor whose close waits until QEMU
//! ends the wait; no time-out does. The descriptors are received with the bytes, and threads close
//! them. They close the socket as well, because some may be left in it. All connections to one QEMU
//! have one queue, so that a QEMU occupies one of these threads at most.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, send, sendmsg, socket_with,
};
use taut_api::fabric::{ClosingQueue, ForeignFd, keep_urgent};

/// The queues of descriptors to be closed, by path and inode of the monitor's socket. The next QEMU
/// of a VM has another inode, so it does not wait for what the last one has sent.
static QUEUES: LazyLock<Mutex<HashMap<(PathBuf, u64), ClosingQueue>>> = LazyLock::new(Mutex::default);

/// A connection to a monitor.
#[derive(Debug)]
pub struct MonitorSocket {
    reader: BufReader<Receiver>,
}

#[derive(Debug)]
struct Receiver(ForeignFd);

impl Read for Receiver {
    /// Does not wait.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.receive_bytes(bytes)?)
    }
}

impl MonitorSocket {
    /// Connects to the monitor at `path`. QEMU queues few connections, and a full queue delays the
    /// next one, for at most `timeout`.
    ///
    /// # Errors
    /// The kernel's, when nobody listens or the time is over; [`io::ErrorKind::ConnectionAborted`]
    /// when this QEMU has sent more descriptors than can be closed.
    pub fn connect(path: &Path, timeout: Duration) -> io::Result<Self> {
        let queue = queue_of(path)?;
        if queue.is_clogged() {
            let reason = "this QEMU has sent more descriptors than can be closed";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason));
        }
        let socket = Self::new(connect_to(path, timeout)?, &queue);
        keep_urgent(&socket)?;
        Ok(socket)
    }

    /// Takes a connected socket. Descriptors that come over it are closed by way of the queue.
    pub fn new(stream: UnixStream, queue: &ClosingQueue) -> Self {
        Self { reader: BufReader::new(Receiver(ForeignFd::new(stream.into(), queue))) }
    }

    /// Limits the time of each later call that sends.
    pub(super) fn limit_sending(&self, timeout: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(self, Timeout::Send, Some(timeout))?)
    }

    /// Sends bytes.
    pub(super) fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(self, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends bytes and a descriptor, which QEMU takes with the first byte.
    pub(super) fn send_with(&self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(self, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        self.send(&bytes[sent..])
    }

    /// Returns bytes that have come, at least one. [`Self::consume`] removes them.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::UnexpectedEof`] when no
    /// more come, or the kernel's.
    pub(super) fn bytes(&mut self, deadline: Instant) -> io::Result<&[u8]> {
        while self.reader.buffer().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = left.try_into().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.reader.get_ref().0, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match self.reader.fill_buf() {
                Ok([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(self.reader.buffer())
    }

    /// Removes bytes that [`Self::bytes`] returned.
    pub(super) fn consume(&mut self, count: usize) {
        self.reader.consume(count);
    }
}

impl AsFd for MonitorSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().0.as_fd()
    }
}

/// Returns the queue of the monitor at `path`. Forgets those that nothing uses.
fn queue_of(path: &Path) -> io::Result<ClosingQueue> {
    let key = (path.to_owned(), fs::metadata(path)?.ino());
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.retain(|_, queue| queue.is_used());
    Ok(queues.entry(key).or_insert_with(ClosingQueue::unreported).clone())
}

/// Connects to a Unix socket. The time limit is also that of each later call that sends.
pub(crate) fn connect_to(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
