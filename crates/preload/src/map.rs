//! The map: the TCP addresses that are reached over VMCI sockets, and the listening ports that are
//! reachable over them.
//!
//! ```text
//! # comment
//! 10.0.0.7:*     -> cid 12                      # any port, with the same number over VMCI
//! 10.0.0.7:6379  -> cid 12 port 7000
//! [fd00::7]:*    -> cid 12
//! 10.0.0.1:*     -> host                        # from a guest: its host, CID 2
//! 10.0.0.9:*     -> unix /run/taut/web1.sock    # on the host: a VM, by its socket (VC-2)
//! listen *                                      # all ports that this machine listens on
//! listen 0.0.0.0:6379 -> vsock port 7000
//! listen *:6379  -> unix /run/taut/web1.sock    # on the host: that VM reaches it at CID 2
//! local 10.0.0.6                                # local address of accepted connections
//! patience 50 ms                                # timeout of a non-blocking connect
//! rings off                                     # no queue pairs, although there are some
//! poll 50 us                                    # looks at queue pairs before a thread sleeps
//! ```
//!
//! The first matching line counts. One file can serve all machines: lines about other machines also
//! give the addresses of peers.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Path of the map unless `TAUT_VMCI_MAP` names another file.
pub(crate) const DEFAULT_PATH: &str = "/etc/taut/vmci.map";

/// The context ID of the host (virtio 1.2, 5.10.4).
pub(crate) const HOST_CID: u32 = 2;

/// Timeout of a non-blocking connect, unless the map has another one.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    peers: Vec<Peer>,
    listens: Vec<Listen>,
    locals: Vec<IpAddr>,
    /// Timeout of a non-blocking connect to a mapped peer.
    pub(crate) patience: Duration,
    /// True unless connections stay without queue pairs.
    pub(crate) rings: bool,
    /// Longest time that a call looks at a queue pair before its thread sleeps.
    pub(crate) poll: Duration,
}

/// The ports of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// All ports, `*`.
    Any,
    /// One port, 1 to 65535.
    One(u16),
}

impl Ports {
    fn has(self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => one == port,
        }
    }
}

/// A machine that is reached over VMCI sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Reached by `AF_VSOCK` and this context ID.
    Cid(u32),
    /// Reached on the host by the Unix socket of its VMCI device, with the `CONNECT <port>`
    /// handshake.
    Unix(PathBuf),
}

/// A machine that connects to this one. Borrowed, because accept must not allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine<'a> {
    /// By its context ID.
    Cid(u32),
    /// By the path of its Unix socket.
    Unix(&'a Path),
}

impl fmt::Display for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cid(cid) => write!(f, "cid {cid}"),
            Self::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}

impl Target {
    /// The machine.
    pub(crate) fn machine(&self) -> Machine<'_> {
        match self {
            Self::Cid(cid) => Machine::Cid(*cid),
            Self::Unix(path) => Machine::Unix(path),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.machine(), f)
    }
}

/// A line `ADDRESS:PORTS -> TARGET`.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The address that programs connect to.
    pub(crate) ip: IpAddr,
    /// Its ports that the line is about.
    pub(crate) ports: Ports,
    /// The machine behind the address.
    pub(crate) target: Target,
    /// The VMCI port; `None` for the same number as the TCP port.
    pub(crate) port: Option<u32>,
    /// Time until which this peer is not tried because it did not answer, in milliseconds of the
    /// monotonic clock.
    pub(crate) rests_until: AtomicU64,
}

impl Peer {
    /// The VMCI port for a TCP port.
    pub(crate) fn vmci_port(&self, port: u16) -> u32 {
        self.port.unwrap_or(u32::from(port))
    }
}

/// The bound addresses that a `listen` line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// `*`: all except loopback addresses, whose programs do not expect connections from elsewhere.
    Any,
    /// Exactly this address; `0.0.0.0` and `::` are the same.
    Ip(IpAddr),
}

impl Bound {
    fn has(self, ip: IpAddr) -> bool {
        match self {
            Self::Any => !ip.is_loopback(),
            Self::Ip(one) => one == ip || (one.is_unspecified() && ip.is_unspecified()),
        }
    }
}

/// The way in which a listening port is reachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// By `AF_VSOCK`, at this port; `None` for the same number as the TCP port.
    Vsock(Option<u32>),
    /// By the Unix socket `<path>_<port>`, which a VM's VMCI device connects to when its guest
    /// connects to the host.
    Unix(PathBuf, Option<u32>),
}

/// A line `listen ADDRESS:PORTS -> ENTRANCE`.
#[derive(Debug)]
pub(crate) struct Listen {
    bound: Bound,
    ports: Ports,
    entrance: Entrance,
}

impl Map {
    /// Reads a map file.
    pub(crate) fn read(path: &Path) -> Result<Self, MapError> {
        let text = std::fs::read_to_string(path).map_err(|error| MapError {
            file: path.to_owned(),
            line: 0,
            cause: error.to_string(),
            hint: format!("write the map to {DEFAULT_PATH}, or name another file in TAUT_VMCI_MAP"),
        })?;
        Self::parse(&text, path)
    }

    /// The line about an address that a program connects to.
    pub(crate) fn peer(&self, to: SocketAddr) -> Option<&Peer> {
        let ip = to.ip().to_canonical();
        self.peers.iter().find(|peer| peer.ip == ip && peer.ports.has(to.port()))
    }

    /// The first address of a machine, if a line gives one: of this family (true for IPv6), or of
    /// any.
    pub(crate) fn address_of(&self, machine: Machine<'_>, v6: Option<bool>) -> Option<IpAddr> {
        let mut all = self.peers.iter().filter(|peer| peer.target.machine() == machine).map(|peer| peer.ip);
        all.find(|ip| v6.is_none_or(|v6| ip.is_ipv6() == v6))
    }

    /// The entrance of a socket that listens at `at`, if a line names it.
    pub(crate) fn entrance(&self, at: SocketAddr) -> Option<&Entrance> {
        let ip = at.ip().to_canonical();
        let line = self.listens.iter().find(|line| line.bound.has(ip) && line.ports.has(at.port()))?;
        Some(&line.entrance)
    }

    /// This machine's own address of a family, if a `local` line gives one.
    pub(crate) fn local(&self, like: IpAddr) -> Option<IpAddr> {
        self.locals.iter().copied().find(|local| local.is_ipv4() == like.is_ipv4())
    }
}

/// Reason why a map cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapError {
    /// The file.
    pub(crate) file: PathBuf,
    /// The line, from 1; 0 for the whole file.
    pub(crate) line: usize,
    /// The fault.
    pub(crate) cause: String,
    /// A hint at the remedy.
    pub(crate) hint: String,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}\nhint: {}", self.cause, self.hint)
    }
}

impl std::error::Error for MapError {}
