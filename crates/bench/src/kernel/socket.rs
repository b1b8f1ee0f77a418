//! Stream sockets of every family: TCP, `AF_VSOCK` with and without a queue pair, and the Unix
//! socket of a VM's VMCI device.
//!
//! Buffer sizes are set before a socket connects or listens; later they would not affect TCP's
//! window scale.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use taut_vmci_client::{Attached, Options, Wait};

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
pub(super) struct Socket {
    descriptor: OwnedFd,
    /// The queue pair through which all bytes go, if the end is attached to one.
    attached: Option<Attached>,
}

impl Socket {
    /// Connects to a server, and attaches the end if the address asks for it. The connection breaks
    /// when `run` is stopped.
    pub(super) fn connect(to: &Address, port: u16, size: Option<u32>, run: &Run<'_>) -> io::Result<Self> {
        let mut socket = Self::of(new(to, size)?);
        let breaker = socket.breaker()?;
        run.on_stop(move || breaker.shutdown());
        socket.go(to, port)?;
        if matches!(to, Address::Ring(_)) {
            socket.attach()?;
        }
        Ok(socket)
    }

    /// Connects to a server only to see whether that works.
    pub(super) fn probe(to: &Address, port: u16) -> io::Result<Self> {
        let socket = Self::of(new(to, None)?);
        socket.go(to, port)?;
        Ok(socket)
    }

    fn of(descriptor: OwnedFd) -> Self {
        Self { descriptor, attached: None }
    }

    /// Attaches the end to a queue pair. Call before anything is read or written. The error is a
    /// [`NotAttached`](taut_vmci_client::NotAttached) with its hint.
    pub(super) fn attach(&mut self) -> io::Result<()> {
        let attached = Attached::attach(&self.descriptor, &Options::default());
        self.attached = Some(attached.map_err(io::Error::other)?);
        Ok(())
    }

    fn go(&self, to: &Address, port: u16) -> io::Result<()> {
        match to {
            Address::Ip(ip) => self.reach(&SocketAddrV4::new(*ip, port)),
            Address::Vsock(cid) | Address::Ring(cid) => {
                self.reach(&VsockAddress { cid: *cid, port: port.into() })
            }
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

    /// Fills the buffer, and waits no longer than `patience` for each read.
    pub(super) fn read_exact_within(&self, mut buffer: &mut [u8], patience: Duration) -> io::Result<()> {
        let Some(attached) = &self.attached else {
            let mut socket = self;
            self.set_read_timeout(Some(patience))?;
            socket.read_exact(buffer)?;
            return self.set_read_timeout(None);
        };
        while !buffer.is_empty() {
            let read = attached.read_until(buffer, Instant::now() + patience)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[read..];
        }
        Ok(())
    }

    /// Limits the time that a read waits.
    fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, sockopt::Timeout::Recv, patience)?)
    }

    /// Returns a handle that ends the connection.
    pub(super) fn breaker(&self) -> io::Result<Breaker> {
        self.descriptor.try_clone().map(Breaker)
    }

    /// Shuts down the sending direction.
    pub(super) fn end(&self) -> io::Result<()> {
        match &self.attached {
            Some(attached) => attached.shutdown_write(),
            None => Ok(net::shutdown(self, Shutdown::Write)?),
        }
    }
}

/// A handle that ends a connection, whoever uses it.
#[derive(Debug)]
pub(super) struct Breaker(OwnedFd);

impl Breaker {
    /// Ends the connection for all of its handles.
    pub(super) fn shutdown(&self) {
        // Fails if the peer has closed already.
        let _ = net::shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.attached {
            Some(attached) => attached.read_within(buffer, Wait::Forever),
            None => Ok(net::recv(self, buffer, RecvFlags::empty())?.0),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.attached {
            Some(attached) => attached.write_within(bytes, Wait::Forever),
            None => Ok(net::send(self, bytes, SendFlags::NOSIGNAL)?),
        }
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
            Address::Vsock(cid) | Address::Ring(cid) => {
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

    /// Waits for the next connection, which is not attached yet.
    pub(super) fn accept(&self) -> io::Result<Socket> {
        Ok(Socket::of(net::accept_with(&self.socket, SocketFlags::CLOEXEC)?))
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
        Address::Vsock(_) | Address::Ring(_) => AddressFamily::VSOCK,
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
