//! The server for request/response and streams.

use std::collections::HashMap;
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::failed;
use super::socket::{Breaker, Listener, Socket};
use crate::agent::Serving;
use crate::agent::protocol::{Address, AgentError, MAX_SESSIONS, Serve};
use crate::wire::pattern::Checked;
use crate::wire::{OPENING_LENGTH, Opening};

/// Most concurrent connections. Further ones are closed at once.
const MAX_CONNECTIONS: usize = 2 * MAX_SESSIONS as usize;
/// Time that a client may take to send its opening.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after an error in accepting.
const PAUSE: Duration = Duration::from_millis(10);

/// A listening server. Dropping it ends it and its connections.
pub(super) struct Server {
    port: u16,
    connections: Arc<Connections>,
    /// The write end of a pipe. Closing it lets the accepting thread end.
    alive: Option<PipeWriter>,
    accepting: Option<JoinHandle<()>>,
}

/// Handles that end the open connections, by the connection's number.
#[derive(Default)]
struct Connections(Mutex<HashMap<u64, Breaker>>);

impl Server {
    pub(super) fn start(wanted: &Serve) -> Result<Self, AgentError> {
        let start = || {
            let listener = Listener::new(wanted.address.as_ref(), wanted.port, wanted.socket_size)?;
            let port = listener.port();
            let (hang_up, alive) = io::pipe()?;
            let connections = Arc::new(Connections::default());
            let shared = Arc::clone(&connections);
            let attach = matches!(wanted.address, Some(Address::Ring(_)));
            let accepting =
                thread::Builder::new().spawn(move || accept(&listener, attach, &hang_up.into(), &shared))?;
            Ok(Self { port, connections, alive: Some(alive), accepting: Some(accepting) })
        };
        start().map_err(|error| failed(&format!("cannot serve on port {}", wanted.port), &error))
    }
}

impl Serving for Server {
    fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.alive.take();
        if let Some(accepting) = self.accepting.take() {
            // The listening socket is closed when the thread has ended.
            let _ = accepting.join();
        }
        self.connections.living().values().for_each(Breaker::shutdown);
    }
}

impl Connections {
    /// Registers a connection. Returns false if there are too many.
    fn add(&self, number: u64, breaker: Breaker) -> bool {
        let mut living = self.living();
        let there_is_room = living.len() < MAX_CONNECTIONS;
        if there_is_room {
            living.insert(number, breaker);
        }
        there_is_room
    }

    fn living(&self) -> MutexGuard<'_, HashMap<u64, Breaker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections until the pipe `hang_up` is closed. With `attach` they get queue pairs.
fn accept(listener: &Listener, attach: bool, hang_up: &OwnedFd, connections: &Arc<Connections>) {
    for number in 0.. {
        let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(hang_up, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) if !events[1].revents().is_empty() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let Ok((breaker, mut socket)) = listener.accept().and_then(|socket| Ok((socket.breaker()?, socket)))
        else {
            // Most likely there are no descriptors. Waiting clients are served when some are free
            // again.
            thread::sleep(PAUSE);
            continue;
        };
        if !connections.add(number, breaker) {
            continue;
        }
        let shared = Arc::clone(connections);
        let spawned = thread::Builder::new().spawn(move || {
            // The client reports a broken connection.
            let _ = if attach { socket.attach() } else { Ok(()) }.and_then(|()| serve(&socket));
            shared.living().remove(&number);
        });
        if spawned.is_err() {
            connections.living().remove(&number);
        }
    }
}

fn serve(socket: &Socket) -> io::Result<()> {
    let mut opening = [0; OPENING_LENGTH];
    socket.read_exact_within(&mut opening, PATIENCE)?;
    match Opening::decode(opening) {
        Some(Opening::RequestResponse { request, response }) => {
            answer(socket, request as usize, response as usize)
        }
        Some(Opening::Stream { receive, check }) => count(socket, receive as usize, check),
        None => Ok(()),
    }
}

/// Answers requests until the client closes.
fn answer(mut socket: &Socket, request: usize, response: usize) -> io::Result<()> {
    socket.set_no_delay()?;
    let (mut request, response) = (vec![0; request], vec![0; response]);
    loop {
        socket.read_exact(&mut request)?;
        socket.write_all(&response)?;
    }
}

/// Reads to the end, then sends the number of bytes; of a checked stream, the number of right ones.
fn count(mut socket: &Socket, receive: usize, check: bool) -> io::Result<()> {
    let mut buffer = vec![0; receive];
    let mut total = 0_u64;
    let mut checked = Checked::default();
    loop {
        match socket.read(&mut buffer)? {
            0 => {
                let confirmed = if check { checked.right() } else { total };
                return socket.write_all(&confirmed.to_be_bytes());
            }
            length if check => checked.came(&buffer[..length]),
            length => total += length as u64,
        }
    }
}
