//! The map: which TCP addresses are reached over VMCI sockets, and which listening ports are reachable over them.
//!
//! ```text
//! # comment
//! 10.0.0.7:*     -> cid 12                      # any port of that machine, the same number over VMCI
//! 10.0.0.7:6379  -> cid 12 port 7000
//! [fd00::7]:*    -> cid 12
//! 10.0.0.1:*     -> host                        # from a guest: its host, CID 2
//! 10.0.0.9:*     -> unix /run/taut/web1.sock    # on the host: a VM, by its host socket (SPEC VC-2)
//! listen *                                      # whatever this machine's programs listen on
//! listen 0.0.0.0:6379 -> vsock port 7000
//! listen *:6379  -> unix /run/taut/web1.sock    # on the host: that VM reaches it at CID 2
//! local 10.0.0.6                                # what accepted connections give as this end's address
//! patience 50 ms                                # longest wait of a non-blocking connect
//! ```
//!
//! The first line that fits counts. One file can serve all machines: the lines of the others also tell which address a peer has.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Where the map is unless `TAUT_VMCI_MAP` says otherwise.
pub(crate) const DEFAULT_PATH: &str = "/etc/taut/vmci.map";

/// The context ID of the host (virtio 1.2, 5.10.4).
pub(crate) const HOST_CID: u32 = 2;

/// What a non-blocking connect waits at most, unless the map says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// A whole map.
#[derive(Debug)]
pub(crate) struct Map {
    peers: Vec<Peer>,
    listens: Vec<Listen>,
    locals: Vec<IpAddr>,
    /// The longest that a non-blocking connect waits for the answer of a mapped peer.
    pub(crate) patience: Duration,
}

/// Which ports a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// All, `*`.
    Any,
    /// This one, 1 to 65535.
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
    /// By `AF_VSOCK` and its context ID.
    Cid(u32),
    /// By the Unix socket of its VMCI device on the host, with the `CONNECT <port>` convention.
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cid(cid) => write!(f, "cid {cid}"),
            Self::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}

/// A line `ADDRESS:PORTS -> TARGET`.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The address that programs connect to.
    pub(crate) ip: IpAddr,
    /// Its ports that are meant.
    pub(crate) ports: Ports,
    /// Where it really is.
    pub(crate) target: Target,
    /// The port over VMCI; the same as over TCP when absent.
    pub(crate) port: Option<u32>,
    /// Until when this peer is not tried, since it did not answer: milliseconds of the monotonic clock.
    pub(crate) rests_until: AtomicU64,
}

impl Peer {
    /// The VMCI port for a TCP port.
    pub(crate) fn vmci_port(&self, port: u16) -> u32 {
        self.port.unwrap_or(u32::from(port))
    }
}

/// Which bound addresses a `listen` line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// `*`: each but the loopback ones, whose programs do not expect to be reached from elsewhere.
    Any,
    /// Exactly this one; `0.0.0.0` and `::` are the same.
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

/// How a listening port is reachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// By `AF_VSOCK`, at this port or, when absent, at TCP's.
    Vsock(Option<u32>),
    /// By the Unix socket `<path>_<port>` that a VM's VMCI device connects to when its guest connects to the host.
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

    /// The line for a peer that a program wants to connect to.
    pub(crate) fn peer(&self, to: SocketAddr) -> Option<&Peer> {
        let ip = to.ip().to_canonical();
        self.peers.iter().find(|peer| peer.ip == ip && peer.ports.has(to.port()))
    }

    /// The address that programs know a machine by, if some line says so: for IPv6 sockets rather an IPv6 one, for others only IPv4.
    pub(crate) fn address_of(&self, target: &Target, v6: bool) -> Option<IpAddr> {
        let mut all = self.peers.iter().filter(|peer| peer.target == *target).map(|peer| peer.ip);
        let first = |wanted: bool| all.clone().find(|ip| ip.is_ipv6() == wanted);
        first(v6).or_else(|| all.find(|_| v6))
    }

    /// How a socket that listens at `at` is to be reachable over VMCI, if it is.
    pub(crate) fn entrance(&self, at: SocketAddr) -> Option<&Entrance> {
        let ip = at.ip().to_canonical();
        let line = self.listens.iter().find(|line| line.bound.has(ip) && line.ports.has(at.port()))?;
        Some(&line.entrance)
    }

    /// This machine's own address of a family, if a `local` line says so.
    pub(crate) fn local(&self, like: IpAddr) -> Option<IpAddr> {
        self.locals.iter().copied().find(|local| local.is_ipv4() == like.is_ipv4())
    }
}

/// Why a map cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapError {
    /// The file.
    pub(crate) file: PathBuf,
    /// The line, from 1; 0: the file as a whole.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) cause: String,
    /// What to do about it.
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
