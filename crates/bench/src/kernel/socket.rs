//! Stream sockets of every family: TCP, `AF_VSOCK`, and the Unix socket of a VM's VMCI device.
//!
//! Buffer sizes are set before a socket connects or listens; later they would not affect TCP's
//! window scale.

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

/// Time to wait for a connection to be established.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;
/// Range of ports for servers without a given one, where the family itself does not choose.
const OWN_PORTS: std::ops::Range<u16> = 20_000..40_000;
/// Longest answer to a CONNECT line.
const MAX_ANSWER: usize = 64;

/// An established connection.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Connects to a server. The connection breaks when `run` is stopped.
    pub(super) fn connect(to: &Address, port: u16, size: Option<u32>, run: &Run<'_>) -> io::Result<Self> {
        let socket = Self(new(to, size)?);
        let other = socket.try_clone()?;
        run.on_stop(move || other.shutdown());
        socket.go(to, port)?;
        Ok(socket)
    }

    /// Connects to a server only to see whether that works.
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

    /// Connects the socket, which is non-blocking so far, and makes it blocking.
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

    /// Sends a CONNECT line to a VMCI device and reads the answer (spec row VC-2).
    fn ask_for(&self, port: u16) -> io::Result<()> {
        let mut socket = self;
        self.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(format!("CONNECT {port}\n").as_bytes())?;
        let mut answer = Vec::new();
        // Read byte by byte, because what follows the line belongs to the connection.
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

    /// Disables Nagle's algorithm on TCP, so that small messages are sent at once.
    pub(super) fn set_no_delay(&self) -> io::Result<()> {
        match sockopt::set_tcp_nodelay(self, true) {
            Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT | Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Limits the time that a read waits.
    pub(super) fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, sockopt::Timeout::Recv, patience)?)
    }

    /// Returns a second handle of the same connection.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Shuts down the sending direction.
    pub(super) fn end(&self) -> io::Result<()> {
        Ok(net::shutdown(self, Shutdown::Write)?)
    }

    /// Ends the connection for all of its handles.
    pub(super) fn shutdown(&self) {
        // Fails if the peer has closed already.
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

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    port: u16,
    /// The file of a Unix socket, removed with it.
    path: Option<PathBuf>,
}

impl Listener {
    /// Listens on an address; on all IPv4 addresses of the machine if none is given.
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

    /// Returns the port on which it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the next connection.
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
            // The file may be gone already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the path where connections to a host port arrive from the VM with this device socket
/// (spec row VC-2).
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

/// Creates a non-blocking socket of the address's family.
///
/// The kernel doubles the requested buffer size for its own overhead, except for `AF_VSOCK`.
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
