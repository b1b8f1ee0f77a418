//! XDP sockets (`AF_XDP`): a socket for each receive queue of an interface, which has the queue's
//! frames in memory that it shares with the kernel, and the program that hands it these frames.
//! Frames are sent by the socket of the first queue.
//!
//! All that needs privileges happens here. Whoever gets the descriptors can use the socket without
//! any.

mod program;
mod socket;

use std::io;
use std::os::fd::OwnedFd;

use nix::libc;
use taut_api::fabric::message::XdpSocket;
use taut_api::uplink::XdpMode;

use super::netlink::Links;
pub use program::detach;
pub use socket::lost;

/// Bytes of a chunk: a page, the largest that needs no huge pages.
const CHUNK: u32 = 4096;
/// Bytes at the beginning of a chunk that the kernel keeps for programs (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Longest frame that the interface may receive, with its Ethernet header and tag.
const LONGEST: u32 = CHUNK - HEADROOM;
/// Bytes of an Ethernet header with a tag.
const HEADER: u32 = 18;

/// Bytes of the longest packet that an interface with an XDP socket may send and receive.
pub const MOST_MTU: u32 = LONGEST - HEADER;

/// The socket of a queue.
#[derive(Debug)]
pub struct XdpQueue {
    /// The socket.
    pub socket: OwnedFd,
    /// Memory of its frames.
    pub memory: OwnedFd,
}

/// Sockets of an interface with all that belongs to them.
#[derive(Debug)]
pub struct XdpPort {
    /// Socket of the first queue, which also sends.
    pub first: XdpQueue,
    /// Sockets of the other queues.
    pub others: Vec<XdpQueue>,
    /// Attaches the program to the interface as long as somebody has it open, or until [`detach`].
    pub link: OwnedFd,
    /// Shape of rings and memory.
    pub setup: XdpSocket,
    /// Mode in which it works.
    pub mode: XdpMode,
    /// Reason that the driver does not run the program.
    pub why_generic: Option<io::Error>,
}

/// Reasons that an interface gets no XDP socket.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The kernel has no XDP sockets.
    #[error("this kernel has no XDP sockets (CONFIG_XDP_SOCKETS)")]
    NoSockets(#[source] io::Error),
    /// Memory cannot be registered.
    #[error("the kernel refuses {bytes} bytes of memory for its frames")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The socket cannot be set up.
    #[error("{step} an XDP socket failed")]
    Socket {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The rings of a bound socket cannot be mapped.
    #[error("this kernel lets no process map the rings of an XDP socket that is bound (Linux before 6.4)")]
    NotMapped(#[source] io::Error),
    /// Another socket has the queue.
    #[error("another XDP socket uses a queue of it")]
    Taken(#[source] io::Error),
    /// The driver cannot work without copies.
    #[error("its driver has no zero copy")]
    NoZeroCopy(#[source] io::Error),
    /// The driver has zero copy, but not as the interface is set now.
    #[error("its driver refuses zero copy")]
    ZeroCopyRefused(#[source] io::Error),
    /// The program cannot be loaded.
    #[error("{step} the XDP program failed")]
    Program {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another program is attached.
    #[error("another XDP program is attached to it")]
    OtherProgram(#[source] io::Error),
}

impl XdpError {
    /// Returns the way out.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoSockets(_) | Self::NotMapped(_) | Self::Program { .. } => {
                "do without: remove the uplink and add it again with --backend packet"
            }
            Self::Memory { .. } => {
                "give tautd the capability CAP_IPC_LOCK, or a higher limit of locked memory (LimitMEMLOCK=)"
            }
            Self::Socket { .. } => "see the cause; taut tries again each second",
            Self::Taken(_) => "end the program that uses it; taut tries again each second",
            Self::NoZeroCopy(_) => "do without: remove the uplink and add it again without --zero-copy",
            Self::ZeroCopyRefused(_) => {
                "see the cause, which may be the size of its rings or its MTU (taut pnic show INTERFACE); or do \
                 without: remove the uplink and add it again without --zero-copy"
            }
            Self::OtherProgram(_) => {
                "remove it first (`ip link show` lists it): ip link set dev INTERFACE xdp off; or end the program \
                 that holds it"
            }
        }
    }
}

/// Opens the sockets of an interface's receive queues and attaches the program.
///
/// # Errors
/// The kernel or the driver lacks something, or something else uses the interface.
pub fn open(interface: u32, queues: u32, zero_copy: bool) -> Result<XdpPort, XdpError> {
    // Checked first: otherwise memory would be pinned, and the driver set up anew, for an
    // attachment that fails.
    let found = Links::open().and_then(|mut links| links.interface_by_index(interface));
    if found.is_ok_and(|found| found.is_some_and(|found| found.has_xdp)) {
        return Err(XdpError::OtherProgram(io::Error::from_raw_os_error(libc::EBUSY)));
    }
    let (first, setup) = socket::open_first()?;
    socket::bind(&first.socket, interface, 0, zero_copy)?;
    socket::check_mapping(&first.socket)?;
    let other = |queue| {
        let other = socket::open_other()?;
        socket::bind(&other.socket, interface, queue, zero_copy)?;
        Ok(other)
    };
    let others = (1..queues).map(other).collect::<Result<Vec<_>, XdpError>>()?;
    let sockets: Vec<_> = std::iter::once(&first).chain(&others).map(|queue| &queue.socket).collect();
    let program = program::load(&sockets)?;
    let (link, why_generic) = program::attach(&program, interface, zero_copy)?;
    let setup = XdpSocket { other_queues: others.len() as u16, zero_copy, ..setup };
    let mode = XdpMode { native: why_generic.is_none(), zero_copy, queues };
    Ok(XdpPort { first, others, link, setup, mode, why_generic })
}
