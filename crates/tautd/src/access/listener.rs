//! Connections to the API's socket: each with its caller, and none at the expense of others.
//!
//! A connection costs memory and descriptors for as long as its client likes, so their number is
//! limited: for each user but root, and for all of these together. Root's do not count.
//!
//! A client may send descriptors. Reading over them, or closing a connection in which they wait,
//! closes them, which may wait for the client. Threads do both
//! (`crates/api/src/fabric/closing.rs`), in one queue for root and 16 that the other users share by
//! their numbers. Nobody is accepted while one of them is full at all: what would be accepted could
//! not be closed.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use taut_api::fabric::foreign::receive_bytes;
use taut_api::fabric::{ClosingQueue, ForeignFd, discard, keep_urgent};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{UnixListener, UnixStream};

use super::caller::Caller;

/// Maximum number of connections of a user other than root.
pub(crate) const MOST_OF_USER: usize = 64;
/// Maximum number of connections of all users other than root.
const MOST: usize = 512;
/// Number of queues of descriptors that users other than root send.
const QUEUES: u32 = 16;
/// Pause after a connection that could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval in which the log says at most once that connections were closed.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Accepts connections and reads their callers.
#[derive(Debug)]
pub(crate) struct Callers {
    socket: UnixListener,
    connections: Arc<Connections>,
    /// Queues that close connections and received descriptors: first root's, then one for each
    /// remainder of a user number divided by [`QUEUES`].
    queues: Vec<ClosingQueue>,
    /// Number of connections that were closed since the last line in the log, and its time.
    closed: (u64, Option<Instant>),
}

/// An accepted connection. It counts to its user's limit until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    _place: Option<Place>,
}

/// The socket of a connection.
#[derive(Debug)]
struct Stream {
    /// `None` only while the value is dropped.
    socket: Option<UnixStream>,
    queue: ClosingQueue,
}

/// Number of connections of each user but root.
#[derive(Debug, Default)]
struct Connections(Mutex<BTreeMap<u32, usize>>);

/// A place among the connections.
#[derive(Debug)]
struct Place {
    connections: Arc<Connections>,
    uid: u32,
}

impl Callers {
    /// Accepts connections on a socket.
    pub(crate) fn new(socket: UnixListener) -> Self {
        Self { socket, connections: Arc::default(), queues: Self::queues(), closed: (0, None) }
    }

    fn queues() -> Vec<ClosingQueue> {
        (0..=QUEUES).map(|_| ClosingQueue::unreported()).collect()
    }

    /// The queue of a user's descriptors.
    fn queue(&self, uid: u32) -> ClosingQueue {
        let number = if uid == 0 { 0 } else { 1 + uid % QUEUES };
        self.queues[number as usize].clone()
    }

    /// Logs that a connection was closed, with the number of those before it.
    fn tell_closed(&mut self, why: &str) {
        let (closed, told) = &mut self.closed;
        *closed += 1;
        if told.is_none_or(|told| told.elapsed() > TOLD_EVERY) {
            tracing::warn!(closed, "connections to the API were closed: {why}");
            self.closed = (0, Some(Instant::now()));
        }
    }
}

impl Listener for Callers {
    type Io = Connection;
    type Addr = Caller;

    async fn accept(&mut self) -> (Connection, Caller) {
        loop {
            if self.queues.iter().any(ClosingQueue::is_exhausted) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let stream = match self.socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.tell_closed(&error.to_string());
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let caller = match Caller::of(&stream) {
                Ok(caller) => caller,
                Err(error) => {
                    self.tell_closed(&format!("the kernel does not tell who connected: {error}"));
                    discard(stream.into_std().map(Into::into));
                    continue;
                }
            };
            let uid = caller.rights().uid;
            let stream = Stream { socket: Some(stream), queue: self.queue(uid) };
            if let Err(error) = stream.socket.as_ref().map_or(Ok(()), keep_urgent) {
                self.tell_closed(&error.to_string());
                continue;
            }
            if stream.queue.is_clogged() {
                self.tell_closed(&format!("descriptors that user {uid} has sent cannot be closed"));
                continue;
            }
            match self.connections.take(uid) {
                Ok(place) => return (Connection { stream, _place: place }, caller),
                Err(why) => self.tell_closed(&why),
            }
        }
    }

    fn local_addr(&self) -> io::Result<Caller> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Connected<IncomingStream<'_, Callers>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Callers>) -> Self {
        stream.remote_addr().clone()
    }
}

impl Connections {
    /// Takes a place for one more connection of a user; root needs none.
    fn take(self: &Arc<Self>, uid: u32) -> Result<Option<Place>, String> {
        if uid == 0 {
            return Ok(None);
        }
        let mut open = self.0.lock().expect("no holder of the list panics");
        if open.get(&uid).is_some_and(|of_user| *of_user >= MOST_OF_USER) {
            return Err(format!("user {uid} has {MOST_OF_USER} already"));
        }
        if open.values().sum::<usize>() >= MOST {
            return Err(format!("there are {MOST} already"));
        }
        *open.entry(uid).or_default() += 1;
        Ok(Some(Place { connections: self.clone(), uid }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.0.lock().expect("no holder of the list panics");
        if let Some(of_user) = open.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                open.remove(&self.uid);
            }
        }
    }
}

impl Stream {
    fn socket(&mut self) -> &mut UnixStream {
        self.socket.as_mut().expect("only `drop` takes it")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Without the runtime's reactor the socket is closed already.
        if let Some(Ok(socket)) = self.socket.take().map(UnixStream::into_std) {
            drop(ForeignFd::new(socket.into(), &self.queue));
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Stream { socket, queue } = &mut self.stream;
        let socket = socket.as_mut().expect("only `drop` takes it");
        loop {
            ready!(socket.poll_read_ready(context))?;
            let receive = || Ok(receive_bytes(&*socket, queue, buffer.initialize_unfilled())?);
            match socket.try_io(Interest::READABLE, receive) {
                Ok(got) => {
                    buffer.advance(got);
                    return Poll::Ready(Ok(()));
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.socket()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.socket()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.socket()).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.socket()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_many_connections_takes_none_from_others() {
        let connections = Arc::<Connections>::default();
        let taken: Vec<_> = (0..MOST_OF_USER).map(|_| connections.take(1000).unwrap()).collect();
        assert_eq!(connections.take(1000).unwrap_err(), "user 1000 has 64 already");
        assert!(connections.take(1001).unwrap().is_some());
        drop(taken);
        assert!(connections.take(1000).is_ok());
        let all: Vec<_> = (0..MOST as u32).map(|n| connections.take(2000 + n / 64).unwrap()).collect();
        assert_eq!(connections.take(1000).unwrap_err(), "there are 512 already");
        assert!(connections.take(0).unwrap().is_none(), "root finds room");
        drop(all);
        assert!(connections.take(1000).is_ok());
        assert_eq!(connections.0.lock().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn accepted_connections_have_their_caller() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut callers = Callers::new(UnixListener::bind(&path).unwrap());
        let (connected, (_connection, caller)) =
            tokio::join!(UnixStream::connect(&path), Listener::accept(&mut callers));
        connected.unwrap();
        assert_eq!(caller.uid(), Some(rustix::process::geteuid().as_raw()));
    }

    /// Sends a byte and a descriptor, of which no other reference is left.
    fn give(stream: &UnixStream, fd: std::os::fd::OwnedFd) {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        use std::os::fd::AsFd as _;
        let fds = [fd.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(stream, &[io::IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        drop(fd);
    }

    #[tokio::test]
    async fn a_descriptor_whose_close_waits_delays_neither_a_read_nor_the_end_of_a_connection() {
        use tokio::io::AsyncReadExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut callers = Callers::new(UnixListener::bind(&path).unwrap());
        let [(one, peer), (other, its_peer)] = [(); 2].map(|()| taut_tests::lingering().unwrap());
        // A close that waits would hang the test; this ends the waits in the end.
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let watched = done.clone();
        let watch = std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(20);
            while !watched.load(std::sync::atomic::Ordering::SeqCst) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            drop((peer, its_peer));
        });
        let begun = Instant::now();
        let (client, (mut connection, _)) =
            tokio::join!(UnixStream::connect(&path), Listener::accept(&mut callers));
        let client = client.unwrap();
        give(&client, one);
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        give(&client, other);
        drop(connection);
        assert!(begun.elapsed() < Duration::from_secs(15), "a thread waited for the close");
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        watch.join().unwrap();
    }
}
