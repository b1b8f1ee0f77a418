//! Descriptors of strangers, which are never closed by the thread that drops them.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg, sockopt,
};

use super::channel::MAX_FDS;
use super::closing::ClosingQueue;

/// A descriptor whose close may wait for a stranger: one that a front end has sent, or a socket at
/// whose other end a stranger is. When it is dropped, a thread of [`super::closing`] closes it.
#[derive(Debug)]
pub struct ForeignFd {
    /// `None` only while the value is dropped.
    fd: Option<OwnedFd>,
    /// `None` if the close does not wait.
    queue: Option<ClosingQueue>,
}

impl ForeignFd {
    /// Takes a descriptor of the source that has this queue.
    pub fn new(fd: OwnedFd, queue: &ClosingQueue) -> Self {
        Self { fd: Some(fd), queue: Some(queue.clone()) }
    }

    /// Takes a descriptor that this process made and nobody else has changed, so that its close
    /// never waits: the thread that drops it closes it. This constructor and [`Self::admit`] are
    /// the only ways around the queues.
    ///
    /// There is no conversion that could be used by mistake:
    /// ```compile_fail,E0277
    /// let (fd, _) = std::os::unix::net::UnixStream::pair()?;
    /// let fd = taut_api::fabric::ForeignFd::from(std::os::fd::OwnedFd::from(fd));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn own(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), queue: None }
    }

    /// Takes several descriptors of one source.
    pub fn all(fds: Vec<OwnedFd>, queue: &ClosingQueue) -> Vec<Self> {
        fds.into_iter().map(|fd| Self::new(fd, queue)).collect()
    }

    /// Notes that the descriptor is one whose close never waits: an eventfd, or a memory file.
    pub fn admit(&mut self) {
        self.queue = None;
    }

    /// Tells whether so many descriptors of the source wait to be closed that it must not send
    /// more.
    pub fn is_clogged(&self) -> bool {
        self.queue.as_ref().is_some_and(ClosingQueue::is_clogged)
    }

    /// Tells whether the descriptor is closed by way of this queue.
    pub fn is_of(&self, queue: &ClosingQueue) -> bool {
        self.queue.as_ref().is_some_and(|own| own.is_same(queue))
    }

    /// Tells whether all descriptors of the source that were dropped are closed.
    pub fn has_all_closed(&self) -> bool {
        self.queue.as_ref().is_none_or(ClosingQueue::is_empty)
    }

    /// Tells whether the queue of the source is to be reported as full. See
    /// [`ClosingQueue::report_full`].
    pub fn reports_full(&self) -> bool {
        self.queue.as_ref().is_some_and(ClosingQueue::report_full)
    }

    /// Makes a duplicate with another number.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: Some(self.as_fd().try_clone_to_owned()?), queue: self.queue.clone() })
    }

    /// Accepts a connection at a listening socket, which [keeps urgent bytes](keep_urgent).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn accept(&self, flags: SocketFlags) -> rustix::io::Result<Self> {
        let socket = accept_with(self, flags | SocketFlags::CLOEXEC)?;
        keep_urgent(&socket)?;
        Ok(Self { fd: Some(socket), queue: self.queue.clone() })
    }

    /// Receives bytes from a socket without waiting. Adds descriptors that come with them to
    /// `fds`. Returns the number of bytes; 0 is the end of the stream.
    ///
    /// # Errors
    /// The kernel's error; [`Errno::AGAIN`] if there is nothing to receive.
    pub fn receive(&self, bytes: &mut [u8], fds: &mut Vec<Self>) -> rustix::io::Result<usize> {
        let mut received = Vec::new();
        let got = receive(self, bytes, &mut received)?;
        fds.extend(received.into_iter().map(|fd| Self { fd: Some(fd), queue: self.queue.clone() }));
        Ok(got)
    }

    /// Receives bytes from a socket over which no descriptor is expected. Those that come are
    /// closed by the threads: a plain `recv` would close them on this one.
    ///
    /// # Errors
    /// As [`Self::receive`]; [`Errno::CONNABORTED`] if the peer has sent more descriptors than can
    /// be closed.
    pub fn receive_bytes(&self, bytes: &mut [u8]) -> rustix::io::Result<usize> {
        match &self.queue {
            Some(queue) => receive_bytes(self, queue, bytes),
            None => self.receive(bytes, &mut Vec::new()),
        }
    }
}

/// Does the same as [`ForeignFd::receive_bytes`] with a socket whose descriptors have this queue.
///
/// # Errors
/// As [`ForeignFd::receive_bytes`].
pub fn receive_bytes(socket: impl AsFd, queue: &ClosingQueue, bytes: &mut [u8]) -> rustix::io::Result<usize> {
    let mut unwanted = Vec::new();
    let got = receive(socket, bytes, &mut unwanted)?;
    let some_came = !unwanted.is_empty();
    drop(ForeignFd::all(unwanted, queue));
    if some_came && queue.is_clogged() { Err(Errno::CONNABORTED) } else { Ok(got) }
}

/// Sets `SO_OOBINLINE` on a stream socket: a byte that its peer sends as urgent (`MSG_OOB`) stays
/// in its place among the others, with the descriptors that come with it. Without the option, the
/// kernel drops such a byte and closes its descriptors on the thread that receives. Each socket of
/// a stranger needs the option before something is received. Accepted sockets do not inherit it.
///
/// # Errors
/// The descriptor is no socket.
pub fn keep_urgent(socket: impl AsFd) -> rustix::io::Result<()> {
    sockopt::set_socket_oobinline(socket, true)
}

/// Returns bytes that wait in a socket, and leaves them there. Does not wait.
///
/// # Errors
/// The kernel's error; [`Errno::AGAIN`] if there are none.
pub fn peek(socket: impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<usize> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    Ok(recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut RecvAncillaryBuffer::default(), flags)?.bytes)
}

pub(super) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> rustix::io::Result<usize> {
    // The buffer has room for the kernel's maximum per message: the kernel would close any excess
    // on this thread.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?.bytes;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(got)
}

/// Closes descriptors of strangers that were not asked for. Each has a queue of its own.
pub fn discard(fds: impl IntoIterator<Item = OwnedFd>) {
    for fd in fds {
        drop(ForeignFd::new(fd, &ClosingQueue::unreported()));
    }
}

impl AsFd for ForeignFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("only `drop` takes it").as_fd()
    }
}

impl Drop for ForeignFd {
    fn drop(&mut self) {
        if let (Some(fd), Some(queue)) = (self.fd.take(), &self.queue) {
            queue.close(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, IoSlice, Read as _};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sendmsg,
    };

    use super::super::PortId;
    use super::super::closing::{LONG, MOST_WAITING, overdue};
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + SOON;
        while !holds() {
            assert!(Instant::now() < end, "timed out after {SOON:?} waiting until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns whether the other end of the stream is closed.
    fn is_closed(stream: &UnixStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        match (&mut &*stream).read(&mut [0; 1]) {
            Ok(got) => got == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    #[test]
    fn a_close_that_waits_holds_up_neither_its_thread_nor_another_source() {
        let (slow, peer) = taut_tests::lingering().unwrap();
        let hostile = ClosingQueue::new(PortId(7));
        let begun = Instant::now();
        drop(ForeignFd::new(slow, &hostile));
        let (behind, other_end) = UnixStream::pair().unwrap();
        drop(ForeignFd::new(behind.into(), &hostile));
        assert!(begun.elapsed() < LONG, "dropping it took {:?}", begun.elapsed());

        // More sources than threads that are kept, all at once.
        let honest: Vec<_> = (100..120).map(|port| ClosingQueue::new(PortId(port))).collect();
        let drop_one = |queue| {
            let (here, there) = UnixStream::pair().unwrap();
            drop(ForeignFd::new(here.into(), queue));
            there
        };
        for there in honest.iter().map(drop_one).collect::<Vec<_>>() {
            until("another source's descriptor is closed", || is_closed(&there));
        }
        until("the close is reported", || overdue().contains(&PortId(7)));
        assert!(!overdue().contains(&PortId(7)), "it is reported once");
        assert!(!is_closed(&other_end), "one source has one thread");

        for _ in 0..MOST_WAITING {
            let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
            drop(ForeignFd::new(event, &hostile));
        }
        until("the queue is clogged", || hostile.is_clogged());
        assert!(!honest[0].is_clogged());
        drop(peer);
        until("the close ends with its peer", || is_closed(&other_end));
        until("the queue is empty", || !hostile.is_clogged());
    }

    #[test]
    fn descriptors_that_nobody_expects_are_closed_and_the_bytes_are_read() {
        let (here, there) = UnixStream::pair().unwrap();
        let queue = ClosingQueue::new(PortId(1));
        let here = ForeignFd::new(here.into(), &queue);
        let (inner, other_end) = UnixStream::pair().unwrap();
        let fds = [inner.as_fd(); 253];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&there, &[IoSlice::new(b"bytes")], &mut control, SendFlags::empty()).unwrap();
        drop(inner);
        let mut bytes = [0; 16];
        assert_eq!(here.receive_bytes(&mut bytes), Ok(5));
        assert_eq!(&bytes[..5], b"bytes");
        until("the descriptors are closed", || is_closed(&other_end));
        assert_eq!(here.receive_bytes(&mut bytes), Err(Errno::AGAIN));
        drop(there);
        assert_eq!(here.receive_bytes(&mut bytes), Ok(0));
    }

    #[test]
    fn a_descriptor_that_comes_with_an_urgent_byte_holds_up_nobody() {
        let (here, there) = UnixStream::pair().unwrap();
        keep_urgent(&here).unwrap();
        let here = ForeignFd::new(here.into(), &ClosingQueue::new(PortId(1)));
        let (slow, peer) = taut_tests::lingering().unwrap();
        // Ends the close after a while, so that a fault fails the test instead of hanging it.
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            let _ = is_done.recv_timeout(SOON);
            drop(peer);
        });
        let fds = [slow.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&there, &[IoSlice::new(b"u")], &mut control, SendFlags::OOB).unwrap();
        drop(slow);
        rustix::net::send(&there, b"rest", SendFlags::empty()).unwrap();
        let begun = Instant::now();
        let mut bytes = [0; 16];
        assert_eq!(peek(&here, &mut bytes), Ok(1));
        assert_eq!(here.receive_bytes(&mut bytes), Ok(1));
        assert_eq!(here.receive_bytes(&mut bytes[1..]), Ok(4));
        assert_eq!(&bytes[..5], b"urest");
        drop(here);
        assert!(begun.elapsed() < SOON, "a thread waited for the close");
        drop(done);
        watch.join().unwrap();
    }

    #[test]
    fn what_is_duplicated_has_the_queue_of_its_socket() {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let foreign = ForeignFd::new(socket, &ClosingQueue::new(PortId(1)));
        assert!(foreign.try_clone().unwrap().queue.is_some());
        let mut own = foreign.try_clone().unwrap();
        own.admit();
        assert!(own.queue.is_none() && own.try_clone().unwrap().queue.is_none());
    }
}
