//! Request/response over one connection.

use std::io::{self, Read as _, Write as _};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::failed;
use super::socket::Socket;
use crate::agent::Run;
use crate::agent::protocol::{AgentError, Latency, Rr};
use crate::measure::latencies::Latencies;
use crate::wire::Opening;

/// Measures round trips. The first one, in which the server reads the opening, is not counted.
pub(super) fn run(wanted: &Rr, run: &Run<'_>) -> Result<Latency, AgentError> {
    let size = super::stream::checked_size("size", wanted.size)?;
    let Rr { to, port, socket_size, .. } = wanted;
    let socket = Socket::connect(to, *port, *socket_size, run)
        .map_err(|error| failed(&format!("cannot connect to {to} port {port}"), &error))?;
    let mut message = vec![0; size];
    measure(&socket, &mut message, wanted, run)
        .map_err(|error| failed(&format!("the connection to {to} port {port} broke"), &error))
}

fn measure(mut socket: &Socket, message: &mut [u8], wanted: &Rr, run: &Run<'_>) -> io::Result<Latency> {
    socket.set_no_delay()?;
    socket.write_all(&Opening::RequestResponse { request: wanted.size, response: wanted.size }.encode())?;
    exchange(socket, message)?;

    let mut rtt = Latencies::new();
    run.started();
    let begin = Instant::now();
    let end = begin + Duration::from_millis(wanted.duration_ms);
    let interval = wanted.interval_us.map(Duration::from_micros);
    let (mut now, mut due) = (begin, begin);
    while now < end && !run.is_stopped() {
        exchange(socket, message)?;
        let before = std::mem::replace(&mut now, Instant::now());
        rtt.record(now - before);
        if let Some(interval) = interval {
            due += interval;
            sleep(due.saturating_duration_since(now));
            now = Instant::now();
        }
    }
    let sent = rtt.count();
    Ok(Latency { rtt_ns: rtt, sent, lost: 0, duplicates: 0, elapsed_us: (now - begin).as_micros() as u64 })
}

fn exchange(mut socket: &Socket, message: &mut [u8]) -> io::Result<()> {
    socket.write_all(message)?;
    socket.read_exact(message)
}
