//! XDP sockets (`AF_XDP`): a socket that sends and receives all frames of an interface's only queue
//! through memory that it shares with the kernel, and the program that hands it these frames.
//!
//! All that needs privileges happens here. Whoever gets the descriptors can use the socket without
//! any.

mod program;
mod socket;

use std::io;
use std::os::fd::OwnedFd;

use taut_api::fabric::message::XdpSocket;
use taut_api::uplink::XdpMode;

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

/// A socket with all that belongs to it.
#[derive(Debug)]
pub struct XdpPort {
    /// The socket.
    pub socket: OwnedFd,
    /// Memory of its frames.
    pub memory: OwnedFd,
    /// Attaches the program to the interface as long as somebody has it open.
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
    /// Another socket has the queue.
    #[error("another XDP socket uses its queue")]
    Taken(#[source] io::Error),
    /// The driver cannot work without copies.
    #[error("its driver has no zero copy")]
    NoZeroCopy(#[source] io::Error),
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
            Self::NoSockets(_) | Self::Program { .. } => {
                "do without: remove the uplink and add it again with --backend packet"
            }
            Self::Memory { .. } => {
                "give tautd the capability CAP_IPC_LOCK, or a higher limit of locked memory (LimitMEMLOCK=)"
            }
            Self::Socket { .. } => "see the cause; taut tries again each second",
            Self::Taken(_) => "end the program that uses it; taut tries again each second",
            Self::NoZeroCopy(_) => "do without: remove the uplink and add it again without --zero-copy",
            Self::OtherProgram(_) => {
                "remove it first (`ip link show` lists it): ip link set dev INTERFACE xdp off; or end the program \
                 that holds it"
            }
        }
    }
}

/// Opens the socket of an interface and attaches the program. The interface has one queue.
///
/// # Errors
/// The kernel or the driver lacks something, or something else uses the queue.
pub fn open(interface: u32, zero_copy: bool) -> Result<XdpPort, XdpError> {
    let (socket, memory, setup) = socket::open()?;
    socket::bind(&socket, interface, zero_copy)?;
    let program = program::load(&socket)?;
    let (link, why_generic) = program::attach(&program, interface)?;
    let native = why_generic.is_none();
    if zero_copy && !native {
        return Err(XdpError::NoZeroCopy(why_generic.unwrap_or_else(|| io::ErrorKind::Unsupported.into())));
    }
    Ok(XdpPort { socket, memory, link, setup, mode: XdpMode { native, zero_copy }, why_generic })
}
