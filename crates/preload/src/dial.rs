//! Connects to a machine by VMCI, within a timeout.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname, recv,
    send, socket_with, sockopt,
};

use crate::map::{HOST_CID, Target};
use crate::sys::{Name, VsockAddress};

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

/// Connects to a port of a machine. `ECONNRESET` and `ECONNREFUSED` mean that nobody listens,
/// `ETIMEDOUT` that there was no answer in time.
pub(crate) fn dial(target: &Target, port: u32, patience: Duration) -> Result<Line, Errno> {
    let until = Instant::now() + patience;
    match target {
        Target::Cid(cid) => vsock(*cid, port, until),
        Target::Unix(path) => unix(path, port, until),
    }
}

fn open(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn vsock(cid: u32, port: u32, until: Instant) -> Result<Line, Errno> {
    let socket = open(AddressFamily::VSOCK)?;
    match connect(&socket, &VsockAddress { cid, port, to_host: cid > HOST_CID }) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            wait(socket.as_fd(), PollFlags::OUT, until)?;
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error),
    }
    let local_port = match Name::from(getsockname(&socket)?) {
        Name::Vsock(address) => address.port,
        _ => 0,
    };
    Ok(Line { socket, local_port })
}

/// Performs the handshake of row VC-2 of docs/spec.md: `CONNECT <port>\n`, answered by
/// `OK <port of this end>\n`.
fn unix(path: &Path, port: u32, until: Instant) -> Result<Line, Errno> {
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
fn answer(socket: BorrowedFd<'_>, until: Instant) -> Result<String, Errno> {
    let mut line = Vec::with_capacity(LONGEST_ANSWER);
    loop {
        wait(socket, PollFlags::IN, until)?;
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

fn wait(socket: BorrowedFd<'_>, flags: PollFlags, until: Instant) -> Result<(), Errno> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&socket, flags)], Some(&left)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(20);

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
        let line = dial(&target, 6379, PATIENCE).unwrap();
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
        assert_eq!(dial(&target, 1, PATIENCE).unwrap_err(), Errno::CONNRESET);
    }

    #[test]
    fn a_malformed_answer_is_refused() {
        for answer in ["NO 1\n", "OK x\n", "OK 1 and a very long line without any end to it at all"] {
            let (_folder, target, _server) = host_socket(answer);
            assert_eq!(dial(&target, 1, PATIENCE).unwrap_err(), Errno::PROTO, "{answer}");
        }
    }

    #[test]
    fn a_missing_host_socket_is_an_error_at_once() {
        assert_eq!(
            dial(&Target::Unix("/nonexistent/vm.sock".into()), 1, PATIENCE).unwrap_err(),
            Errno::NOENT
        );
    }

    #[test]
    fn a_missing_answer_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(dial(&Target::Unix(path), 1, Duration::from_millis(1)).unwrap_err(), Errno::TIMEDOUT);
    }
}
