//! TCP sockets whose buffer sizes are set before they connect or listen: later it would not reach the window scale.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::agent::Run;

/// How long a connection may take to be established.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Connections that wait to be accepted.
const BACKLOG: i32 = 256;

/// Connects to `to`. The connection breaks when `run` is stopped.
pub(super) fn connect(to: SocketAddrV4, size: Option<u32>, run: &Run<'_>) -> io::Result<TcpStream> {
    let stream = TcpStream::from(new(size)?);
    let other = stream.try_clone()?;
    run.on_stop(move || {
        // Fails when the peer has closed already.
        let _ = other.shutdown(Shutdown::Both);
    });
    match net::connect(&stream, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let ready = poll(&mut [PollFd::new(&stream, PollFlags::OUT)], Some(&PATIENCE))?;
            if ready == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&stream)??;
        }
        Err(error) => return Err(error.into()),
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Listens on `address`, all of the machine's when none is given.
pub(super) fn listen(address: Option<Ipv4Addr>, port: u16, size: Option<u32>) -> io::Result<TcpListener> {
    let socket = new(size)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED), port))?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// A non-blocking socket. The kernel doubles buffer sizes for its own overhead, as it does for every program.
fn new(size: Option<u32>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    if let Some(size) = size {
        let size = usize::try_from(size).map_err(io::Error::other)?;
        sockopt::set_socket_send_buffer_size(&socket, size)?;
        sockopt::set_socket_recv_buffer_size(&socket, size)?;
    }
    Ok(socket)
}
