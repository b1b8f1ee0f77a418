//! The line by which a client on the host names the guest's port: `CONNECT <port>\n`, the
//! convention that users of Firecracker and Cloud Hypervisor know.

use rustix::io::Errno;
use taut_api::fabric::{ForeignFd, peek};

/// Longest line in bytes, with its end.
const MAX_LINE: usize = 32;

/// State of a client's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectLine {
    /// The client has sent nothing, or the beginning of a line.
    Incomplete,
    /// A request for a port of the guest.
    Port(u32),
    /// Anything else, or the end of the stream.
    Invalid,
}

impl ConnectLine {
    /// Reads the line from a client's socket. Bytes behind the line stay in the socket: they are
    /// for the guest. `at_end` tells that the client sends no more.
    pub(super) fn read(socket: &ForeignFd, at_end: bool) -> Self {
        let mut line = [0; MAX_LINE];
        let got = match peek(socket, &mut line) {
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Self::Incomplete,
            Err(_) => 0,
        };
        let Some(end) = line[..got].iter().position(|&byte| byte == b'\n') else {
            let may_grow = got > 0 && got < MAX_LINE && !at_end;
            return if may_grow { Self::Incomplete } else { Self::Invalid };
        };
        let Some(port) = parse(&line[..end]) else { return Self::Invalid };
        match socket.receive_bytes(&mut line[..=end]) {
            Ok(got) if got == end + 1 => Self::Port(port),
            _ => Self::Invalid,
        }
    }
}

/// Returns the port in `CONNECT <port>`.
fn parse(line: &[u8]) -> Option<u32> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let digits = std::str::from_utf8(line).ok()?.strip_prefix("CONNECT ")?.trim();
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connect_and_a_decimal_port_is_accepted() {
        assert_eq!(parse(b"CONNECT 1024"), Some(1024));
        assert_eq!(parse(b"CONNECT 4294967295\r"), Some(u32::MAX));
        for invalid in [
            &b"CONNECT"[..],
            b"CONNECT ",
            b"connect 5",
            b"CONNECT 4294967296",
            b"CONNECT -1",
            b"CONNECT +1",
            b"\xff",
        ] {
            assert_eq!(parse(invalid), None, "{invalid:?}");
        }
    }
}
