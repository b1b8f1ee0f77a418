//! A connection: attached, by packets, or TCP.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, bind, connect, listen, socket,
};
use rustix::net::{Shutdown, SocketFlags, accept_with};
use taut_vmci_client::{Attached, Options};

/// Any CID of the machine itself.
const ANY_CID: u32 = u32::MAX;

/// A connection.
pub(crate) struct Line {
    /// The socket, whose bytes are used unless the end is attached.
    socket: File,
    attached: Option<Attached>,
    is_tcp: bool,
    /// Why the end is not attached although it should be.
    pub(crate) reason: Option<String>,
}

impl Line {
    fn vsock(socket: OwnedFd, options: Option<&Options>) -> Self {
        let (attached, reason) = match options.map(|options| Attached::attach(&socket, options)) {
            Some(Ok(attached)) => (Some(attached), None),
            Some(Err(reason)) => (None, Some(format!("{}; hint: {}", reason.with_causes(), reason.hint()))),
            None => (None, None),
        };
        Self { socket: socket.into(), attached, is_tcp: false, reason }
    }

    fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let socket = File::from(OwnedFd::from(socket));
        Ok(Self { socket, attached: None, is_tcp: true, reason: None })
    }

    /// Connects to a port of a machine.
    pub(crate) fn connect(cid: u32, port: u32, options: Option<&Options>) -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let stream = socket(AddressFamily::Vsock, SockType::Stream, flags, None).context("AF_VSOCK")?;
        connect(stream.as_raw_fd(), &VsockAddr::new(cid, port))
            .with_context(|| format!("connect to CID {cid} port {port}"))?;
        Ok(Self::vsock(stream, options))
    }

    /// Connects to a port of a host by TCP.
    pub(crate) fn connect_tcp(host: &str, port: u32) -> Result<Self> {
        let port = u16::try_from(port).context("a port of TCP")?;
        let stream = TcpStream::connect((host, port)).with_context(|| format!("connect to {host}"))?;
        Ok(Self::tcp(stream)?)
    }

    /// Says how the bytes of this end go.
    pub(crate) fn kind(&self) -> Kind {
        match (&self.attached, self.is_tcp) {
            (Some(_), _) => Kind::Ring,
            (None, true) => Kind::Tcp,
            (None, false) => Kind::Packets,
        }
    }

    /// Says that no more bytes follow.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match &self.attached {
            Some(attached) => attached.shutdown_write(),
            None => Ok(rustix::net::shutdown(&self.socket, Shutdown::Write)?),
        }
    }
}

/// How the bytes of an end go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Packets,
    Ring,
    Tcp,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Packets, Self::Ring, Self::Tcp];
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.attached {
            Some(attached) => attached.read(buffer),
            None => self.socket.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.attached {
            Some(attached) => attached.write(bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening socket.
pub(crate) enum Listener {
    Vsock(OwnedFd),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a port of `AF_VSOCK`, or at an address by TCP.
    pub(crate) fn new(tcp: Option<&str>, port: u32) -> Result<Self> {
        if let Some(address) = tcp {
            let port = u16::try_from(port).context("a port of TCP")?;
            return Ok(Self::Tcp(TcpListener::bind((address, port)).context("listen by TCP")?));
        }
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Vsock, SockType::Stream, flags, None).context("AF_VSOCK")?;
        bind(socket.as_raw_fd(), &VsockAddr::new(ANY_CID, port)).with_context(|| format!("port {port}"))?;
        listen(&socket, Backlog::new(16)?)?;
        Ok(Self::Vsock(socket))
    }

    /// Waits for the next connection.
    pub(crate) fn accept(&self) -> Result<Accepted> {
        Ok(match self {
            Self::Vsock(socket) => Accepted::Vsock(accept_with(socket, SocketFlags::CLOEXEC)?),
            Self::Tcp(listener) => Accepted::Tcp(listener.accept()?.0),
        })
    }
}

/// A connection that was accepted, and nothing else.
pub(crate) enum Accepted {
    Vsock(OwnedFd),
    Tcp(TcpStream),
}

impl Accepted {
    /// Attaches the connection, if it can be.
    pub(crate) fn into_line(self, options: Option<&Options>) -> Result<Line> {
        match self {
            Self::Vsock(socket) => Ok(Line::vsock(socket, options)),
            Self::Tcp(socket) => Ok(Line::tcp(socket)?),
        }
    }
}
