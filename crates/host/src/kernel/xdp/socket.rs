//! The socket, its rings and the memory of its frames.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::ptr::null_mut;

use nix::libc;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::sockopt::{
    set_socket_send_buffer_size_force, set_xdp_rx_ring_size, set_xdp_tx_ring_size,
    set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets,
    xdp_statistics,
};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind as bind_socket, socket_with};
use taut_api::fabric::message::{XdpMemory, XdpRing, XdpSocket};

use super::{CHUNK, XdpError, XdpQueue};

/// Number of chunks of each direction.
const CHUNKS: u32 = 2048;
/// Number of entries of each ring: more than chunks, so that none is ever full.
const ENTRIES: u32 = 2 * CHUNKS;
/// Bytes of frames that may be on their way through the kernel, so that their number is the limit.
const SENDING: usize = 32 << 20;
/// Bytes of a page of memory.
const PAGE: usize = 4096;
/// Option: number of frames that one call sends (Linux 6.17, <linux/if_xdp.h>).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Number of frames that one call sends. Without the option it is 32.
const BUDGET: u32 = 256;

/// Shape of the memory of the first queue: a page of notes, a word for each chunk of frames to be
/// sent, and chunks.
const FIRST: XdpMemory = XdpMemory {
    chunk: CHUNK,
    receiving: CHUNKS,
    sending: CHUNKS,
    first: XdpMemory::WORDS + (CHUNKS as u64 * 4).next_multiple_of(4096),
};

/// Opens the socket of the first queue with its rings and memory. It is not bound yet.
pub(super) fn open_first() -> Result<(XdpQueue, XdpSocket), XdpError> {
    let queue = open(FIRST)?;
    let setup = receive_and_send(&queue.socket).map_err(no_rings)?;
    Ok((queue, setup))
}

/// Opens the socket of another queue, which sends nothing. It is not bound yet.
pub(super) fn open_other() -> Result<XdpQueue, XdpError> {
    let queue = open(FIRST.receiving_only())?;
    receive(&queue.socket).map_err(no_rings)?;
    Ok(queue)
}

fn no_rings(error: Errno) -> XdpError {
    XdpError::Socket { step: "making the rings of", source: error.into() }
}

/// Opens a socket with memory, without rings.
fn open(shape: XdpMemory) -> Result<XdpQueue, XdpError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None);
    let socket = socket.map_err(|error| match error {
        Errno::AFNOSUPPORT => XdpError::NoSockets(error.into()),
        _ => XdpError::Socket { step: "opening", source: error.into() },
    })?;
    let refused = |error: Errno| XdpError::Memory { bytes: shape.bytes(), source: error.into() };
    let memory = memory(shape).map_err(refused)?;
    register(&socket, &memory, shape).map_err(refused)?;
    Ok(XdpQueue { socket, memory })
}

/// Binds a socket to a queue of an interface.
pub(super) fn bind(socket: &OwnedFd, interface: u32, queue: u32, zero_copy: bool) -> Result<(), XdpError> {
    let copies = if zero_copy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
    let address = SocketAddrXdp::new(copies | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, interface, queue);
    bind_socket(socket, &address).map_err(|error| match error {
        Errno::BUSY => XdpError::Taken(error.into()),
        Errno::NODEV | Errno::PERM | Errno::NETDOWN => {
            XdpError::Socket { step: "binding", source: error.into() }
        }
        Errno::OPNOTSUPP if zero_copy => XdpError::NoZeroCopy(error.into()),
        _ if zero_copy => XdpError::ZeroCopyRefused(error.into()),
        _ => XdpError::Socket { step: "binding", source: error.into() },
    })
}

/// Checks that the rings of a bound socket can be mapped, as each fabric does. Kernels before 6.4
/// map them only before that.
pub(super) fn check_mapping(socket: &OwnedFd) -> Result<(), XdpError> {
    // A part is enough. The receive ring begins at offset 0 (`XDP_PGOFF_RX_RING`).
    // SAFETY: the kernel chooses an address that is not in use.
    let mapped = unsafe { mmap(null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, socket, 0) };
    let address = mapped.map_err(|error| match error {
        Errno::BUSY => XdpError::NotMapped(error.into()),
        _ => XdpError::Socket { step: "mapping the rings of", source: error.into() },
    })?;
    // SAFETY: this is the whole mapping, to which nothing refers.
    let unmapped = unsafe { munmap(address, PAGE) };
    unmapped.map_err(|error| XdpError::Socket { step: "mapping", source: error.into() })
}

/// Returns the number of frames that a socket has lost since it was opened: there was no chunk for
/// them, or they did not fit into one.
///
/// # Errors
/// The descriptor is no XDP socket.
pub fn lost(socket: impl AsFd) -> io::Result<u64> {
    let counted = xdp_statistics(socket)?;
    Ok(counted.rx_dropped + counted.rx_ring_full.unwrap_or(0))
}

/// Makes the memory, which nobody can shorten.
fn memory(shape: XdpMemory) -> rustix::io::Result<OwnedFd> {
    let memory = memfd_create("xdp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, shape.bytes())?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Gives a socket the chunks of the memory. The kernel keeps their pages.
fn register(socket: &OwnedFd, memory: &OwnedFd, shape: XdpMemory) -> rustix::io::Result<()> {
    let len = shape.bytes() - shape.first;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an address that is not in use.
    let address = unsafe { mmap(null_mut(), len as usize, access, MapFlags::SHARED, memory, shape.first)? };
    let chunks = XdpUmemReg {
        addr: address as u64,
        len,
        chunk_size: shape.chunk,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let registered = set_xdp_umem_reg(socket, chunks);
    // SAFETY: this is the whole mapping, to which nothing refers. The kernel uses its pages from
    // now on, and not its address.
    unsafe { munmap(address, len as usize)? };
    registered
}

/// Makes the rings of a socket that receives. The kernel wants a completion ring of each socket.
fn receive(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_xdp_umem_fill_ring_size(socket, ENTRIES)?;
    set_xdp_umem_completion_ring_size(socket, ENTRIES)?;
    set_xdp_rx_ring_size(socket, ENTRIES)
}

/// Makes the rings of a socket that receives and sends.
fn receive_and_send(socket: &OwnedFd) -> rustix::io::Result<XdpSocket> {
    receive(socket)?;
    set_xdp_tx_ring_size(socket, ENTRIES)?;
    set_socket_send_buffer_size_force(socket, SENDING)?;
    raise_budget(socket);
    let offsets = xdp_mmap_offsets(socket)?;
    let ring = |offset: XdpRingOffset| {
        // Kernels before 5.4 have no flags.
        let flags = offset.flags.ok_or(Errno::OPNOTSUPP)?;
        let XdpRingOffset { producer, consumer, desc: first, .. } = offset;
        Ok::<_, Errno>(XdpRing { entries: ENTRIES, producer, consumer, flags, first })
    };
    Ok(XdpSocket {
        receive: ring(offsets.rx)?,
        fill: ring(offsets.fr)?,
        transmit: ring(offsets.tx)?,
        completion: ring(offsets.cr)?,
        memory: FIRST,
        zero_copy: false,
        other_queues: 0,
    })
}

/// Lets one call send more frames. Kernels before 6.17 cannot.
fn raise_budget(socket: &OwnedFd) {
    let budget = BUDGET;
    let len = size_of_val(&budget) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `budget`, which has that many. The descriptor is
    // open.
    let _ = unsafe {
        let value = (&raw const budget).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, value, len)
    };
}
