//! The TCP server for request/response and streams.

use std::collections::HashMap;
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{failed, socket};
use crate::agent::Serving;
use crate::agent::protocol::{AgentError, MAX_SESSIONS, Serve};
use crate::wire::{OPENING_LENGTH, Opening};

/// Connections at the same time; more are closed at once.
const MAX_CONNECTIONS: usize = 2 * MAX_SESSIONS as usize;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// A listening server; dropping it ends it and its connections.
pub(super) struct Server {
    port: u16,
    connections: Arc<Connections>,
    /// Closed with the server: the accepting thread sees the other end hang up.
    _alive: PipeWriter,
}

/// Sockets of living connections, by the number of the connection; none when the server has ended.
struct Connections(Mutex<Option<HashMap<u64, TcpStream>>>);

impl Server {
    pub(super) fn start(wanted: &Serve) -> Result<Self, AgentError> {
        let start = || {
            let listener = socket::listen(wanted.address, wanted.port, wanted.socket_size)?;
            let port = listener.local_addr()?.port();
            let (hang_up, alive) = io::pipe()?;
            let connections = Arc::new(Connections(Mutex::new(Some(HashMap::new()))));
            let shared = Arc::clone(&connections);
            thread::Builder::new().spawn(move || accept(&listener, &hang_up.into(), &shared))?;
            Ok(Self { port, connections, _alive: alive })
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
        for stream in self.connections.take().into_values() {
            // Fails when the peer has closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Connections {
    /// Notes a connection; false when there are too many, or the server has ended.
    fn add(&self, number: u64, stream: TcpStream) -> bool {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(living) if living.len() < MAX_CONNECTIONS => living.insert(number, stream).is_none(),
            _ => false,
        }
    }

    fn remove(&self, number: u64) {
        if let Some(living) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            living.remove(&number);
        }
    }

    fn take(&self) -> HashMap<u64, TcpStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

/// Accepts connections until `hang_up` does.
fn accept(listener: &TcpListener, hang_up: &OwnedFd, connections: &Arc<Connections>) {
    for number in 0.. {
        let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(hang_up, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) if !events[1].revents().is_empty() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        // Who has gone meanwhile is nobody to serve; who comes while there are no descriptors is served later.
        let Ok((stream, _)) = listener.accept() else { continue };
        let Ok(other) = stream.try_clone() else { continue };
        if !connections.add(number, other) {
            continue;
        }
        let shared = Arc::clone(connections);
        let spawned = thread::Builder::new().spawn(move || {
            // A broken connection is the client's to report.
            let _ = serve(stream);
            shared.remove(number);
        });
        if spawned.is_err() {
            connections.remove(number);
        }
    }
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut opening = [0; OPENING_LENGTH];
    stream.read_exact(&mut opening)?;
    stream.set_read_timeout(None)?;
    match Opening::decode(opening) {
        Some(Opening::RequestResponse { request, response }) => {
            answer(&mut stream, request as usize, response as usize)
        }
        Some(Opening::Stream { receive }) => count(&mut stream, receive as usize),
        None => Ok(()),
    }
}

/// Answers requests until the client closes.
fn answer(stream: &mut TcpStream, request: usize, response: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, response) = (vec![0; request], vec![0; response]);
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&response)?;
    }
}

/// Reads to the end and says how many bytes came.
fn count(stream: &mut TcpStream, receive: usize) -> io::Result<()> {
    let mut buffer = vec![0; receive];
    let mut total = 0_u64;
    loop {
        match stream.read(&mut buffer)? {
            0 => return stream.write_all(&total.to_be_bytes()),
            length => total += length as u64,
        }
    }
}
