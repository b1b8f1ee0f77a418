//! Connections to the API's socket: each with its caller, and none at the expense of others.
//!
//! A connection costs memory and descriptors for as long as its client likes, so their number is
//! limited: for each user but root, and for all of these together. Root always finds room.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};

use super::caller::Caller;

/// Maximum number of connections of a user other than root.
pub(crate) const MOST_OF_USER: usize = 64;
/// Maximum number of connections of all users other than root.
const MOST: usize = 512;
/// Pause after a connection that could not be accepted, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval in which the log says at most once that connections were closed.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Accepts connections and reads their callers.
#[derive(Debug)]
pub(crate) struct Callers {
    socket: UnixListener,
    connections: Arc<Connections>,
    /// Number of connections that were closed since the last line in the log, and its time.
    closed: (u64, Option<Instant>),
}

/// An accepted connection. It counts to its user's limit until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    _place: Option<Place>,
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
        Self { socket, connections: Arc::default(), closed: (0, None) }
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
                    continue;
                }
            };
            match self.connections.take(caller.uid()) {
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
        let of_all = open.values().sum::<usize>();
        let of_user = open.entry(uid).or_default();
        if *of_user >= MOST_OF_USER {
            return Err(format!("user {uid} has {MOST_OF_USER} already"));
        }
        if of_all >= MOST {
            return Err(format!("there are {MOST} already"));
        }
        *of_user += 1;
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

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
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
        assert_eq!(caller.uid(), rustix::process::geteuid().as_raw());
    }
}
