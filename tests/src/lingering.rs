//! A socket whose close waits.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send, sockopt};

/// Longer than a receiver may delay an acknowledgement, after which a full buffer has room again.
const ACKNOWLEDGED: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Connects a TCP socket whose close waits until its peer is closed: the peer takes nothing of
/// what was sent, and the socket lingers for an hour.
///
/// # Errors
/// The kernel's error.
pub fn lingering() -> io::Result<(OwnedFd, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    sockopt::set_socket_recv_buffer_size(&listener, 4096)?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    sockopt::set_socket_send_buffer_size(&socket, 4096)?;
    socket.set_nonblocking(true)?;
    loop {
        while send(&socket, &[0; 4096], SendFlags::empty()).is_ok() {}
        let ready = || poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&ACKNOWLEDGED));
        if rustix::io::retry_on_intr(ready)? == 0 {
            break;
        }
    }
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(3600)))?;
    socket.set_nonblocking(false)?;
    Ok((socket.into(), peer))
}
