//! Connects to a machine by VMCI, within a timeout.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getpeername,
    getsockname, recv, send, socket_with, sockopt,
};

use crate::address::{VARIANTS, carrying};
use crate::map::{HOST_CID, Target};
use crate::sys::{Name, VsockAddress};
use crate::waiting::{Signals, Woken, wait};

/// Longest answer of the host socket: `OK 4294967295\n`.
const LONGEST_ANSWER: usize = 32;

/// A new connection. Its socket is non-blocking and has close-on-exec.
#[derive(Debug)]
pub(crate) struct Line {
    /// The socket.
    pub(crate) socket: OwnedFd,
    /// VMCI port of this end.
    pub(crate) local_port: u32,
}

/// The end of a connection that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    /// TCP source port that the program chose; `None` for any.
    pub(crate) port: Option<u16>,
    /// True if the program connects to an IPv6 address.
    pub(crate) v6: bool,
}

/// The limits of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Timeout.
    pub(crate) patience: Duration,
    /// Effect of signals.
    pub(crate) signals: Signals,
}

/// Connects to a port of a machine. `ECONNRESET` and `ECONNREFUSED` mean that nobody listens,
/// `ETIMEDOUT` that there was no answer in time, `EINTR` that a signal was handled.
pub(crate) fn dial(target: &Target, port: u32, source: Source, limits: Limits) -> Result<Line, Errno> {
    let until = Until { time: Instant::now() + limits.patience, signals: limits.signals };
    match target {
        Target::Cid(cid) => vsock(*cid, port, source, until),
        Target::Unix(path) => unix(path, port, until),
    }
}

/// The end of an attempt.
#[derive(Clone, Copy)]
struct Until {
    time: Instant,
    signals: Signals,
}

impl Until {
    fn wait(self, socket: BorrowedFd<'_>, events: i16) -> Result<(), Errno> {
        match wait(&[socket.as_raw_fd()], events, Some(self.time), self.signals) {
            Woken::Ready => Ok(()),
            Woken::TimedOut => Err(Errno::TIMEDOUT),
            Woken::Interrupted => Err(Errno::INTR),
            Woken::Failed(error) => Err(error),
        }
    }
}

fn open(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn vsock(cid: u32, port: u32, source: Source, until: Until) -> Result<Line, Errno> {
    let socket = open(AddressFamily::VSOCK)?;
    take_port(&socket, source)?;
    match connect(&socket, &VsockAddress { cid, port, to_host: cid > HOST_CID }) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            until.wait(socket.as_fd(), libc::POLLOUT)?;
            sockopt::socket_error(&socket)??;
            // Fails if the connection is not there yet after all.
            getpeername(&socket)?;
        }
        Err(error) => return Err(error),
    }
    let local_port = match Name::from(getsockname(&socket)?) {
        Name::Vsock(address) => address.port,
        _ => 0,
    };
    Ok(Line { socket, local_port })
}

/// Binds a socket to a source port that carries the program's TCP source port, or one of the range
/// that Linux uses for TCP. If all are taken, the kernel chooses any VMCI port.
fn take_port(socket: &OwnedFd, source: Source) -> Result<(), Errno> {
    const FIRST: u16 = 32_768;
    const COUNT: u64 = 28_232;
    let start = sockopt::socket_cookie(socket).unwrap_or_default();
    for variant in 0..VARIANTS {
        // A step that has no factor in common with the range, so that neighbours do not meet.
        let any = FIRST + (start.wrapping_mul(7_919).wrapping_add(u64::from(variant) * 9_973) % COUNT) as u16;
        let port = carrying(source.port.unwrap_or(any), source.v6, variant);
        match bind(socket, &VsockAddress { cid: libc::VMADDR_CID_ANY, port, to_host: false }) {
            Ok(()) => return Ok(()),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Performs the handshake of row VC-2 of docs/spec.md: `CONNECT <port>\n`, answered by
/// `OK <port of this end>\n`.
fn unix(path: &Path, port: u32, until: Until) -> Result<Line, Errno> {
    let socket = open(AddressFamily::UNIX)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let request = format!("CONNECT {port}\n");
    if send(&socket, request.as_bytes(), SendFlags::NOSIGNAL)? != request.len() {
        return Err(Errno::CONNRESET);
    }
    let answer = answer(socket.as_fd(), until)?;
    let local_port =
        answer.strip_prefix("OK ").and_then(|port| port.trim_end().parse().ok()).ok_or(Errno::PROTO)?;
    Ok(Line { socket, local_port })
}

/// Reads one line from a socket and nothing behind it, since those bytes belong to the program.
fn answer(socket: BorrowedFd<'_>, until: Until) -> Result<String, Errno> {
    let mut line = Vec::with_capacity(LONGEST_ANSWER);
    loop {
        until.wait(socket, libc::POLLIN)?;
        let mut seen = [0; LONGEST_ANSWER];
        let (_, count) = recv(socket, &mut seen, RecvFlags::PEEK)?;
        let seen = seen.get(..count).unwrap_or_default();
        if seen.is_empty() {
            return Err(Errno::CONNRESET);
        }
        let end = seen.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let mut taken = vec![0; end.unwrap_or(seen.len())];
        let (_, count) = recv(socket, &mut taken[..], RecvFlags::empty())?;
        line.extend_from_slice(taken.get(..count).unwrap_or_default());
        if end.is_some() {
            return String::from_utf8(line).map_err(|_| Errno::PROTO);
        }
        if line.len() >= LONGEST_ANSWER {
            return Err(Errno::PROTO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    const SOURCE: Source = Source { port: None, v6: false };
    const SHORT: Limits = Limits { patience: Duration::from_millis(1), signals: Signals::Restart };
    const PATIENCE: Limits = Limits { patience: Duration::from_secs(20), signals: Signals::Restart };

    /// A host socket that gives each client this answer and reports the requests.
    fn host_socket(answer: &'static str) -> (tempfile::TempDir, Target, thread::JoinHandle<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut request = String::new();
            stream.read_line(&mut request).unwrap();
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            request
        });
        (folder, Target::Unix(path), server)
    }

    #[test]
    fn only_the_answer_line_is_read() {
        let (_folder, target, server) = host_socket("OK 1073741824\nhello");
        let line = dial(&target, 6379, SOURCE, PATIENCE).unwrap();
        assert_eq!(server.join().unwrap(), "CONNECT 6379\n");
        assert_eq!(line.local_port, 1_073_741_824);
        let mut stream = std::os::unix::net::UnixStream::from(line.socket);
        stream.set_nonblocking(false).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "hello");
    }

    #[test]
    fn a_host_socket_that_hangs_up_is_connection_reset() {
        let (_folder, target, _server) = host_socket("");
        assert_eq!(dial(&target, 1, SOURCE, PATIENCE).unwrap_err(), Errno::CONNRESET);
    }

    #[test]
    fn a_malformed_answer_is_refused() {
        for answer in ["NO 1\n", "OK x\n", "OK 1 and a very long line without any end to it at all"] {
            let (_folder, target, _server) = host_socket(answer);
            assert_eq!(dial(&target, 1, SOURCE, PATIENCE).unwrap_err(), Errno::PROTO, "{answer}");
        }
    }

    #[test]
    fn a_missing_host_socket_is_an_error_at_once() {
        assert_eq!(
            dial(&Target::Unix("/nonexistent/vm.sock".into()), 1, SOURCE, PATIENCE).unwrap_err(),
            Errno::NOENT
        );
    }

    #[test]
    fn a_missing_answer_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(dial(&Target::Unix(path), 1, SOURCE, SHORT).unwrap_err(), Errno::TIMEDOUT);
    }
}
