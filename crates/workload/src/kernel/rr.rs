//! TCP request/response.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use super::{failed, socket};
use crate::agent::Run;
use crate::agent::protocol::{AgentError, Latency, TcpRr};
use crate::latencies::Latencies;
use crate::wire::Opening;

/// Measures. The first exchange is not counted: in it the server reads the opening.
pub(super) fn run(wanted: &TcpRr, run: &Run<'_>) -> Result<Latency, AgentError> {
    let size = super::stream::checked_size("size", wanted.size)?;
    let to = SocketAddrV4::new(wanted.to, wanted.port);
    let mut stream =
        socket::connect(to, None, run).map_err(|error| failed(&format!("cannot connect to {to}"), &error))?;
    let mut message = vec![0; size];
    measure(&mut stream, &mut message, wanted, run)
        .map_err(|error| failed(&format!("the connection to {to} broke"), &error))
}

fn measure(stream: &mut TcpStream, message: &mut [u8], wanted: &TcpRr, run: &Run<'_>) -> io::Result<Latency> {
    stream.set_nodelay(true)?;
    stream.write_all(&Opening::RequestResponse { request: wanted.size, response: wanted.size }.encode())?;
    exchange(stream, message)?;

    let mut rtt = Latencies::new();
    run.started();
    let begin = Instant::now();
    let end = begin + Duration::from_millis(wanted.duration_ms);
    let mut now = begin;
    while now < end && !run.is_stopped() {
        exchange(stream, message)?;
        let before = std::mem::replace(&mut now, Instant::now());
        rtt.record(now - before);
    }
    let sent = rtt.count();
    Ok(Latency { rtt_ns: rtt, sent, lost: 0, duplicates: 0, elapsed_us: (now - begin).as_micros() as u64 })
}

fn exchange(stream: &mut TcpStream, message: &mut [u8]) -> io::Result<()> {
    stream.write_all(message)?;
    stream.read_exact(message)
}
