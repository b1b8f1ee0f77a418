//! Puts into a server that speaks Redis' protocol (RESP), one at a time over one connection.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use super::failed;
use super::socket::Socket;
use crate::agent::Run;
use crate::agent::protocol::{AgentError, Latency, Puts};
use crate::measure::latencies::Latencies;

/// Number of different keys, used in turn.
const KEYS: u64 = 1000;
/// The server's answer to a successful put.
const DONE: &[u8] = b"+OK\r\n";

/// Measures puts. The first one, for which the server allocates memory, is not counted.
pub(super) fn run(wanted: &Puts, run: &Run<'_>) -> Result<Latency, AgentError> {
    let size = super::stream::checked_size("size", wanted.size)?;
    let Puts { to, port, .. } = wanted;
    let socket = Socket::connect(to, *port, None, run)
        .map_err(|error| failed(&format!("cannot connect to {to} port {port}"), &error))?;
    measure(&socket, size, wanted, run)
        .map_err(|error| failed(&format!("puts at {to} port {port} broke off"), &error))
}

fn measure(socket: &Socket, size: usize, wanted: &Puts, run: &Run<'_>) -> io::Result<Latency> {
    socket.set_no_delay()?;
    let mut line = Vec::new();
    put(socket, &mut line, 0, size)?;

    let mut rtt = Latencies::new();
    run.started();
    let begin = Instant::now();
    let end = begin + Duration::from_millis(wanted.duration_ms);
    let mut now = begin;
    while now < end && !run.is_stopped() {
        put(socket, &mut line, rtt.count() % KEYS, size)?;
        let before = std::mem::replace(&mut now, Instant::now());
        rtt.record(now - before);
    }
    let sent = rtt.count();
    Ok(Latency { rtt_ns: rtt, sent, lost: 0, duplicates: 0, elapsed_us: (now - begin).as_micros() as u64 })
}

fn put(mut socket: &Socket, line: &mut Vec<u8>, key: u64, size: usize) -> io::Result<()> {
    line.clear();
    write!(line, "*3\r\n$3\r\nSET\r\n$8\r\nkey:{key:04}\r\n${size}\r\n")?;
    line.resize(line.len() + size, b'x');
    line.extend_from_slice(b"\r\n");
    socket.write_all(line)?;
    let mut answer = [0; DONE.len()];
    socket.read_exact(&mut answer)?;
    if answer != DONE {
        let begin = String::from_utf8_lossy(&answer).into_owned();
        return Err(io::Error::other(format!("a put was answered by `{begin}…`")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;
    use crate::agent::Stop;

    /// A server that reads puts of 100 bytes, sends `answer` to each, and counts them.
    fn server(answer: &'static [u8]) -> (u16, thread::JoinHandle<u64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let body = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut puts = 0;
            for line in lines.map_while(Result::ok) {
                if line == "x".repeat(100) {
                    puts += 1;
                    stream.write_all(answer).unwrap();
                }
            }
            puts
        };
        (port, thread::spawn(body))
    }

    fn puts(port: u16) -> Result<Latency, AgentError> {
        let wanted = Puts { to: Ipv4Addr::LOCALHOST.into(), port, size: 100, duration_ms: 20 };
        run(&wanted, &Run::new(&Stop::default(), &|| {}))
    }

    #[test]
    fn every_put_is_answered_before_the_next() {
        let (port, server) = server(DONE);
        let latency = puts(port).unwrap();
        assert!(latency.sent > 0);
        assert_eq!((latency.rtt_ns.count(), server.join().unwrap()), (latency.sent, latency.sent + 1));
    }

    #[test]
    fn a_put_that_is_refused_is_told() {
        let (port, server) = server(b"-OOM command not allowed\r\n");
        let error = puts(port).unwrap_err();
        assert!(error.message.contains("`-OOM"), "{}", error.message);
        server.join().unwrap();
    }
}
