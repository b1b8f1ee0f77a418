//! Stream sockets of any family: TCP, `AF_VSOCK`, and the host's way to a VM's VMCI sockets. Buffer sizes are set before a socket
//! connects or listens: later it would not reach TCP's window scale.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use super::vsock::{self, VsockAddress};
use crate::agent::Run;
use crate::agent::protocol::Address;

/// How long a connection may take to be established.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 256;
/// Ports for servers that may have any, where the family itself does not choose one.
const OWN_PORTS: std::ops::Range<u16> = 20_000..40_000;
/// Longest answer to `CONNECT`.
const MAX_ANSWER: usize = 64;

/// A connection.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Connects. The connection breaks when `run` is stopped.
    pub(super) fn connect(to: &Address, port: u16, size: Option<u32>, run: &Run<'_>) -> io::Result<Self> {
        let socket = Self(new(to, size)?);
        let other = socket.try_clone()?;
        run.on_stop(move || other.shutdown());
        socket.go(to, port)?;
        Ok(socket)
    }

    /// Connects, only to see whether that works.
    pub(super) fn probe(to: &Address, port: u16) -> io::Result<Self> {
        let socket = Self(new(to, None)?);
        socket.go(to, port)?;
        Ok(socket)
    }

    fn go(&self, to: &Address, port: u16) -> io::Result<()> {
        match to {
            Address::Ip(ip) => self.reach(&SocketAddrV4::new(*ip, port)),
            Address::Vsock(cid) => self.reach(&VsockAddress { cid: *cid, port: port.into() }),
            Address::Unix(path) => {
                self.reach(&SocketAddrUnix::new(path)?)?;
                self.ask_for(port)
            }
        }
    }

    /// Connects the socket, which does not block yet, and has it block from then on.
    fn reach(&self, to: &impl SocketAddrArg) -> io::Result<()> {
        match net::connect(self, to) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
                let ready = poll(&mut [PollFd::new(self, PollFlags::OUT)], Some(&patience))?;
                if ready == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sockopt::socket_error(self)??;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(ioctl_fionbio(self, false)?)
    }

    /// Asks a VMCI device for a port of its VM (SPEC VC-2).
    fn ask_for(&self, port: u16) -> io::Result<()> {
        let mut socket = self;
        self.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(format!("CONNECT {port}\n").as_bytes())?;
        let mut answer = Vec::new();
        // Byte by byte: what follows the line belongs to the connection.
        while !answer.ends_with(b"\n") && answer.len() < MAX_ANSWER {
            let mut byte = [0];
            match socket.read(&mut byte)? {
                0 => return Err(io::ErrorKind::ConnectionRefused.into()),
                _ => answer.push(byte[0]),
            }
        }
        if !answer.starts_with(b"OK ") {
            let answer = String::from_utf8_lossy(&answer).trim_end().to_owned();
            return Err(io::Error::other(format!("the VMCI device answered `{answer}`")));
        }
        self.set_read_timeout(None)
    }

    /// Sends small messages at once. TCP alone would wait for more.
    pub(super) fn set_no_delay(&self) -> io::Result<()> {
        match sockopt::set_tcp_nodelay(self, true) {
            Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT | Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Bounds how long reading waits.
    pub(super) fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, sockopt::Timeout::Recv, patience)?)
    }

    /// The same connection for another user.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Nothing is sent any more.
    pub(super) fn end(&self) -> io::Result<()> {
        Ok(net::shutdown(self, Shutdown::Write)?)
    }

    /// Ends the connection for all of its users.
    pub(super) fn shutdown(&self) {
        // Fails when the peer has closed already.
        let _ = net::shutdown(self, Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(net::recv(self, buffer, RecvFlags::empty())?.0)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that connections come to.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    port: u16,
    /// The socket's file, which goes with it.
    path: Option<PathBuf>,
}

impl Listener {
    /// Listens, on all IPv4 addresses of the machine when none is given.
    pub(super) fn new(address: Option<&Address>, port: u16, size: Option<u32>) -> io::Result<Self> {
        let all = Address::Ip(Ipv4Addr::UNSPECIFIED);
        let address = address.unwrap_or(&all);
        let socket = new(address, size)?;
        let (port, path) = match address {
            Address::Ip(ip) => {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                net::bind(&socket, &SocketAddrV4::new(*ip, port))?;
                let own = SocketAddrV4::try_from(net::getsockname(&socket)?)?;
                (own.port(), None)
            }
            Address::Vsock(cid) => {
                let cid = *cid;
                (bind(port, |port| net::bind(&socket, &VsockAddress { cid, port: port.into() }))?, None)
            }
            Address::Unix(of_device) => {
                let path = |port| listening_path(of_device, port);
                let port = bind(port, |port| net::bind(&socket, &SocketAddrUnix::new(path(port))?))?;
                (port, Some(path(port)))
            }
        };
        net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, port, path })
    }

    /// The port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The next connection.
    pub(super) fn accept(&self) -> io::Result<Socket> {
        Ok(Socket(net::accept_with(&self.socket, SocketFlags::CLOEXEC)?))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Gone already: nothing to do.
            let _ = fs::remove_file(path);
        }
    }
}

/// Where connections to a port of the host come from the VM whose device has this Unix socket (SPEC VC-2).
fn listening_path(of_device: &Path, port: u16) -> PathBuf {
    let mut path = of_device.as_os_str().to_owned();
    path.push(format!("_{port}"));
    path.into()
}

/// Binds to the port, or to the first free one if it is 0.
fn bind(port: u16, mut to: impl FnMut(u16) -> rustix::io::Result<()>) -> io::Result<u16> {
    if port != 0 {
        to(port)?;
        return Ok(port);
    }
    for port in OWN_PORTS {
        match to(port) {
            Ok(()) => return Ok(port),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::ADDRINUSE.into())
}

/// A socket of the address's family that does not block. The kernel doubles the buffer sizes of all but `AF_VSOCK` for its own
/// overhead, as it does for every program.
fn new(address: &Address, size: Option<u32>) -> io::Result<OwnedFd> {
    let family = match address {
        Address::Ip(_) => AddressFamily::INET,
        Address::Vsock(_) => AddressFamily::VSOCK,
        Address::Unix(_) => AddressFamily::UNIX,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    match size {
        None => {}
        Some(size) if family == AddressFamily::VSOCK => vsock::set_buffer_size(&socket, size)?,
        Some(size) => {
            let size = usize::try_from(size).map_err(io::Error::other)?;
            sockopt::set_socket_send_buffer_size(&socket, size)?;
            sockopt::set_socket_recv_buffer_size(&socket, size)?;
        }
    }
    Ok(socket)
}
