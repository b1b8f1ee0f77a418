//! Options of a VMCI connection that the program takes for a TCP connection.
//!
//! Options that only tune TCP are accepted without effect. Options that also apply to VMCI are set.
//! Options that would promise something that does not happen are refused.

use std::ffi::c_int;
use std::os::fd::RawFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{self, Timeout};

use crate::sys::{at, option, set_option, set_option_u64};
use crate::table::Connection;

/// Values of `SO_PRIORITY` that mark the sockets of this library in another process, or in another
/// program after exec. `SO_PRIORITY` has no effect on such sockets. This one is for the connection
/// of an IPv4 socket.
const V4_MARK: c_int = 6;
/// The mark of the connection of an IPv6 socket.
const V6_MARK: c_int = 5;
/// The mark of the VMCI socket of a listener.
pub(crate) const LISTENER_MARK: c_int = 4;

/// Marks a socket.
pub(crate) fn set_mark(fd: RawFd, mark: c_int) {
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, mark);
}

/// Tells whether a marked connection is that of an IPv6 socket; `None` if it is not marked.
pub(crate) fn marked_family(fd: RawFd) -> Option<bool> {
    match option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY) {
        Ok(V4_MARK) => Some(false),
        Ok(V6_MARK) => Some(true),
        _ => None,
    }
}

/// Largest segment size that programs see, that of the loopback interface.
const SEGMENT: c_int = 65_483;

const SO_BUF_LOCK: c_int = 72;
/// `vm_sockets.h`.
const SO_VM_SOCKETS_BUFFER_SIZE: c_int = 0;
const SO_VM_SOCKETS_BUFFER_MAX_SIZE: c_int = 2;
/// Largest buffer size below the default limit (256 KiB; `VIRTIO_VSOCK_MAX_BUF_SIZE` is 4 GiB).
const DEFAULT_LIMIT: u64 = 256 * 1024;

/// Size of the part of `struct tcp_info` that all kernels fill.
pub(crate) const TCP_INFO_SIZE: usize = 104;

/// The answer to a `getsockopt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Get {
    /// The answer of the kernel.
    Kernel,
    /// A number.
    Value(c_int),
    /// The name of the congestion control, which VMCI does not have.
    Congestion,
    /// A `struct tcp_info`.
    TcpInfo,
    /// `ENOPROTOOPT`.
    Refuse,
}

/// The effect of a `setsockopt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// The kernel sets the option.
    Kernel,
    /// Success without effect.
    Ignore,
    /// `TCP_NODELAY`, which the table stores.
    NoDelay,
    /// `SO_RCVBUF`: the number of bytes that the peer may send ahead.
    ReceiveBuffer,
    /// `ENOPROTOOPT`.
    Refuse,
}

/// Options that are accepted without effect, and the answer to a program that reads them: TCP's
/// default (`man 7 tcp`, `man 7 ip`), unless a comment says otherwise.
const IGNORED: &[(c_int, c_int, Get)] = &[
    (libc::SOL_TCP, libc::TCP_CORK, Get::Value(0)),
    (libc::SOL_TCP, libc::TCP_QUICKACK, Get::Value(1)),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE, Get::Value(7200)),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL, Get::Value(75)),
    (libc::SOL_TCP, libc::TCP_KEEPCNT, Get::Value(9)),
    (libc::SOL_TCP, libc::TCP_USER_TIMEOUT, Get::Value(0)),
    (libc::SOL_TCP, libc::TCP_SYNCNT, Get::Value(6)),
    (libc::SOL_TCP, libc::TCP_LINGER2, Get::Value(60)),
    (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, Get::Value(0)),
    // TCP's depends on the connection.
    (libc::SOL_TCP, libc::TCP_WINDOW_CLAMP, Get::Value(SEGMENT)),
    (libc::SOL_TCP, libc::TCP_MAXSEG, Get::Value(SEGMENT)),
    (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, Get::Value(0)),
    (libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, Get::Value(0)),
    (libc::SOL_TCP, libc::TCP_THIN_DUPACK, Get::Value(0)),
    // The name `vmci`.
    (libc::SOL_TCP, libc::TCP_CONGESTION, Get::Congestion),
    (libc::SOL_TCP, libc::TCP_FASTOPEN, Get::Value(0)),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT, Get::Value(0)),
    (libc::SOL_IP, libc::IP_TOS, Get::Value(0)),
    (libc::SOL_IP, libc::IP_TTL, Get::Value(64)),
    (libc::SOL_IP, libc::IP_MTU_DISCOVER, Get::Value(libc::IP_PMTUDISC_WANT)),
    (libc::SOL_IP, libc::IP_RECVERR, Get::Value(0)),
    (libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, Get::Value(0)),
    (libc::SOL_IPV6, libc::IPV6_TCLASS, Get::Value(0)),
    (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, Get::Value(64)),
    (libc::SOL_IPV6, libc::IPV6_V6ONLY, Get::Value(0)),
    (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, Get::Value(libc::IP_PMTUDISC_WANT)),
    (libc::SOL_IPV6, libc::IPV6_RECVERR, Get::Value(0)),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, Get::Value(0)),
];

fn ignored(level: c_int, name: c_int) -> Option<Get> {
    IGNORED.iter().find(|(its_level, its_name, _)| (*its_level, *its_name) == (level, name)).map(|it| it.2)
}

/// The answer for an option.
pub(crate) fn get(level: c_int, name: c_int, connection: &Connection) -> Get {
    let v6 = connection.peer.is_ipv6();
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Get::Value(if v6 { libc::AF_INET6 } else { libc::AF_INET }),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Get::Value(libc::IPPROTO_TCP),
        (libc::SOL_TCP, libc::TCP_NODELAY) => Get::Value(connection.no_delay.into()),
        (libc::SOL_TCP, libc::TCP_INFO) => Get::TcpInfo,
        // Others are kernel TLS, SO_ORIGINAL_DST and what else only a TCP connection has.
        _ => {
            ignored(level, name).unwrap_or(if level == libc::SOL_SOCKET { Get::Kernel } else { Get::Refuse })
        }
    }
}

/// The effect of setting an option.
pub(crate) fn set(level: c_int, name: c_int) -> Set {
    match (level, name) {
        (libc::SOL_TCP, libc::TCP_NODELAY) => Set::NoDelay,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => Set::ReceiveBuffer,
        // Time stamps of packets, which do not exist here.
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | libc::SO_TIMESTAMPING) => Set::Refuse,
        _ if ignored(level, name).is_some() => Set::Ignore,
        (libc::SOL_SOCKET, _) => Set::Kernel,
        _ => Set::Refuse,
    }
}

/// Copies the options of a TCP socket to the new VMCI connection that replaces it or was accepted
/// from it. `v6` is true for an IPv6 socket.
pub(crate) fn inherit(tcp: RawFd, vmci: RawFd, v6: bool) {
    set_mark(vmci, if v6 { V6_MARK } else { V4_MARK });
    let (Ok(from), Ok(to)) = (at(tcp), at(vmci)) else { return };
    for timeout in [Timeout::Recv, Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(from, timeout) {
            let _ = sockopt::set_socket_timeout(to, timeout, Some(time));
        }
    }
    if sockopt::socket_keepalive(from) == Ok(true) {
        let _ = sockopt::set_socket_keepalive(to, true);
    }
    if let Ok(Some(linger)) = sockopt::socket_linger(from) {
        let _ = sockopt::set_socket_linger(to, Some(linger));
    }
    // Buffer sizes only if the program set them (SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK). The kernel
    // reports twice the size that was set.
    let chosen = option(tcp, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(0);
    for (bit, name) in [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)] {
        if chosen & bit != 0
            && let Ok(twice) = option(tcp, libc::SOL_SOCKET, name)
        {
            let _ = set_option(vmci, libc::SOL_SOCKET, name, twice / 2);
            if name == libc::SO_RCVBUF {
                receive_buffer(vmci, twice / 2);
            }
        }
    }
}

/// Sets the number of bytes that the peer of an `AF_VSOCK` connection may send ahead. Has no effect
/// on other sockets.
pub(crate) fn receive_buffer(fd: RawFd, size: c_int) {
    let Ok(size) = u64::try_from(size) else { return };
    if size > DEFAULT_LIMIT {
        let _ = set_option_u64(fd, libc::AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, size);
    }
    let _ = set_option_u64(fd, libc::AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, size);
}

/// A `struct tcp_info` for a connection: its state, the largest segment size, and zeros for the
/// rest.
pub(crate) fn tcp_info(fd: RawFd) -> [u8; TCP_INFO_SIZE] {
    /// Offsets of `tcpi_snd_mss` and `tcpi_rcv_mss`.
    const SEGMENTS: std::ops::Range<usize> = 16..24;
    let mut info = [0; TCP_INFO_SIZE];
    if let Some(state) = info.first_mut() {
        *state = state_of(fd);
    }
    let segments = SEGMENT.to_ne_bytes().into_iter().chain(SEGMENT.to_ne_bytes());
    for (to, from) in info.get_mut(SEGMENTS).into_iter().flatten().zip(segments) {
        *to = from;
    }
    info
}

/// `TCP_ESTABLISHED`, `TCP_CLOSE_WAIT` or `TCP_CLOSE`. Programs use it to detect that the peer has
/// gone.
fn state_of(fd: RawFd) -> u8 {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(socket) = at(fd) else { return 7 };
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let _ = poll(&mut polled, Some(&NOW));
    let [polled] = &polled;
    let seen = polled.revents();
    if seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        7
    } else if seen.contains(PollFlags::RDHUP) {
        8
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn connection(peer: &str) -> Connection {
        let peer = peer.parse().unwrap();
        Connection { cookie: 1, peer, local: peer, no_delay: true, unasked: false }
    }

    #[test]
    fn options_read_as_those_of_the_tcp_socket() {
        let (four, six) = (connection("10.0.0.7:80"), connection("[::ffff:10.0.0.7]:80"));
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_DOMAIN, &four), Get::Value(libc::AF_INET));
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_DOMAIN, &six), Get::Value(libc::AF_INET6));
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_PROTOCOL, &four), Get::Value(libc::IPPROTO_TCP));
        assert_eq!(get(libc::SOL_SOCKET, libc::SO_ERROR, &four), Get::Kernel);
        assert_eq!(get(libc::SOL_TCP, libc::TCP_NODELAY, &four), Get::Value(1));
        assert_eq!(get(libc::SOL_TCP, libc::TCP_ULP, &four), Get::Refuse);
    }

    #[test]
    fn options_without_effect_can_be_read() {
        let four = connection("10.0.0.7:80");
        for (level, name, value) in IGNORED {
            assert_eq!(set(*level, *name), Set::Ignore, "{level} {name}");
            assert_eq!(get(*level, *name, &four), *value, "{level} {name}");
            assert!(!matches!(value, Get::Kernel | Get::Refuse), "{level} {name}");
        }
    }

    #[test]
    fn options_that_only_tcp_has_are_refused() {
        assert_eq!(set(libc::SOL_TCP, libc::TCP_NODELAY), Set::NoDelay);
        assert_eq!(set(libc::SOL_TCP, libc::TCP_KEEPIDLE), Set::Ignore);
        assert_eq!(set(libc::SOL_TCP, libc::TCP_ULP), Set::Refuse);
        assert_eq!(set(libc::SOL_TCP, libc::TCP_MD5SIG), Set::Refuse);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING), Set::Refuse);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_KEEPALIVE), Set::Kernel);
        assert_eq!(set(libc::SOL_IP, libc::IP_TRANSPARENT), Set::Refuse);
    }

    #[test]
    fn tcp_info_shows_whether_the_peer_has_gone() {
        let (one, other) = UnixStream::pair().unwrap();
        let info = tcp_info(one.as_raw_fd());
        assert_eq!(info[0], 1);
        assert_eq!(info[16..20], SEGMENT.to_ne_bytes());
        other.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(tcp_info(one.as_raw_fd())[0], 8);
        drop(other);
        assert_eq!(tcp_info(one.as_raw_fd())[0], 7);
    }
}
