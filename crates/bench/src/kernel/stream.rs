//! Bulk transfer over one or more connections.

use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use super::failed;
use super::socket::Socket;
use crate::agent::Run;
use crate::agent::protocol::{AgentError, MAX_SESSIONS, Stream, Throughput};
use crate::wire::pattern;
use crate::wire::{MAX_SIZE, Opening};

/// Measures throughput: connects every session, then sends on all, each on a thread of its own.
pub(super) fn run(wanted: &Stream, run: &Run<'_>) -> Result<Throughput, AgentError> {
    let send_size = checked_size("send_size", wanted.send_size)?;
    checked_size("receive_size", wanted.receive_size)?;
    if !(1..=MAX_SESSIONS).contains(&wanted.sessions) {
        let message = format!("{} sessions were asked for", wanted.sessions);
        return Err(AgentError::new(message, format!("ask for 1 to {MAX_SESSIONS}")));
    }
    let Stream { to, port, .. } = wanted;
    let sockets = (0..wanted.sessions)
        .map(|_| connect(wanted, run))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| failed(&format!("cannot connect to {to} port {port}"), &error))?;

    run.started();
    let begin = Instant::now();
    let end = begin + Duration::from_millis(wanted.duration_ms);
    let sessions = thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .into_iter()
            .map(|socket| scope.spawn(move || send(&socket, wanted.check, send_size, end, run)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a session does not panic"))
            .collect::<io::Result<Vec<_>>>()
    })
    .map_err(|error| failed(&format!("a connection to {to} port {port} broke"), &error))?;
    let elapsed_us = begin.elapsed().as_micros() as u64;
    let sessions = sessions
        .into_iter()
        .map(|(sent, confirmed)| wanted.confirmed(sent, confirmed))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Throughput { bytes: sessions.iter().sum(), elapsed_us, sessions })
}

fn connect(wanted: &Stream, run: &Run<'_>) -> io::Result<Socket> {
    let socket = Socket::connect(&wanted.to, wanted.port, wanted.socket_size, run)?;
    (&socket).write_all(&Opening::Stream { receive: wanted.receive_size, check: wanted.check }.encode())?;
    Ok(socket)
}

/// Sends until the end, and at least once. Returns the bytes sent and the bytes that the server
/// confirmed.
fn send(
    mut socket: &Socket,
    check: bool,
    size: usize,
    end: Instant,
    run: &Run<'_>,
) -> io::Result<(u64, u64)> {
    let zeros = vec![0; size];
    let mut sent = 0;
    while (sent == 0 || Instant::now() < end) && !run.is_stopped() {
        socket.write_all(if check { pattern::bytes(sent, size) } else { &zeros })?;
        sent += size as u64;
    }
    socket.end()?;
    let mut count = [0; 8];
    socket.read_exact(&mut count)?;
    Ok((sent, u64::from_be_bytes(count)))
}

/// Returns an error if the size is out of the range that the wire format allows.
pub(super) fn checked_size(field: &str, size: u32) -> Result<usize, AgentError> {
    match usize::try_from(size) {
        Ok(bytes) if (1..=MAX_SIZE).contains(&size) => Ok(bytes),
        _ => Err(AgentError::new(format!("{field} is {size} bytes"), format!("use 1 to {MAX_SIZE} bytes"))),
    }
}
