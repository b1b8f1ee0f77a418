//! A packet socket that is bound to an interface (packet(7)), with all options that the fabric
//! cannot set itself.
#![allow(unsafe_code)]

use std::fs::{File, read_to_string};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{LinkAddr, getsockname};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::system::uname;
use taut_api::fabric::message::{Attachment, PacketRing, PacketSocket};
use taut_api::uplink::XdpMode;
use taut_host::kernel::netlink::ingress;
use taut_host::kernel::xdp;
use taut_plan::facts::InterfaceSeen;

use super::Role;

/// Version of the ring's format (`enum tpacket_versions`).
const TPACKET_V2: libc::c_int = 1;
/// Option that sets the length of virtio-net headers (linux/if_packet.h).
const PACKET_VNET_HDR_SZ: libc::c_int = 24;
/// Bytes of a slot: the longest frame that the kernel merges, and the headers before it.
const SLOT: u32 = 68 << 10;
/// Number of slots in a block. The kernel allocates blocks in powers of two of pages; this many
/// slots fill one but for a page, in whose first bytes the fabric keeps its place.
const SLOTS_PER_BLOCK: u32 = 15;
/// Bytes of a block.
const BLOCK: u32 = 1 << 20;
/// Number of blocks.
const BLOCKS: u32 = 17;

/// The ring of received frames: 255 slots, 17 MiB.
const RING: PacketRing =
    PacketRing { slot: SLOT, slots_per_block: SLOTS_PER_BLOCK, block: BLOCK, blocks: BLOCKS };

/// Bytes of frames that may be on their way through the kernel. The default would hold three of the
/// longest.
const SENDING: usize = 1 << 20;

/// Protocol of a packet socket that receives nothing.
const NO_FRAMES: u16 = 0;

/// A socket of an interface.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Kind and properties of the socket that the fabric is told.
    pub(crate) via: Attachment,
    /// The descriptors that belong to it. The first one is the socket.
    pub(crate) fds: Vec<OwnedFd>,
    /// Mode of an XDP socket.
    pub(crate) xdp: Option<XdpMode>,
    /// Abilities that the kernel lacks, each with its consequence.
    pub(crate) missing: Vec<String>,
}

/// Opens the kernel's file that tells whether an interface has a carrier.
pub(super) fn carrier(name: &str, interface: u32) -> io::Result<OwnedFd> {
    let folder = format!("/sys/class/net/{name}");
    let carrier = File::open(format!("{folder}/carrier"))?.into();
    let index = read_to_string(format!("{folder}/ifindex"))?;
    if index.trim().parse() != Ok(interface) {
        // The interface was renamed just now.
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(carrier)
}

/// Opens a socket that receives nothing and lets an interface receive frames to all addresses, as
/// long as it is open, or until [`end_membership`]. It is bound to the interface, which is found by
/// that.
pub(super) fn promiscuous(interface: u32) -> io::Result<OwnedFd> {
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    bind(&fd, interface, NO_FRAMES)?;
    receive_all(&fd, interface)?;
    Ok(fd)
}

/// Opens a socket that sends and receives all frames of an interface, and the file of its carrier.
pub(super) fn open(name: &str, interface: u32, role: Role) -> io::Result<Socket> {
    let carrier = carrier(name, interface)?;
    // Without a protocol it receives nothing before it is bound.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set(&fd, libc::PACKET_VERSION, &TPACKET_V2)?;
    set(&fd, libc::PACKET_IGNORE_OUTGOING, &1)?;
    set(&fd, libc::PACKET_VNET_HDR, &1)?;
    if role == Role::Port {
        // The filter that keeps the host's own frames away lets frames with this mark pass.
        set_at(&fd, libc::SOL_SOCKET, libc::SO_MARK, &ingress::MARK)?;
    }
    let mut missing = Vec::new();
    let uso = takes_uso();
    if !uso {
        missing.push(
            "segmentation of UDP for packet sockets (Linux 6.2): taut does it itself, which takes more CPU time"
                .to_owned(),
        );
    }
    if !takes_long_headers(&fd)? {
        missing.push(
            "virtio-net headers of 12 bytes for packet sockets (Linux 6.4): nothing is lost, because taut uses \
             headers of 10 bytes with every kernel"
                .to_owned(),
        );
    }
    let ring = libc::tpacket_req {
        tp_block_size: BLOCK,
        tp_block_nr: BLOCKS,
        tp_frame_size: SLOT,
        tp_frame_nr: SLOTS_PER_BLOCK * BLOCKS,
    };
    set(&fd, libc::PACKET_RX_RING, &ring)?;
    set_socket_send_buffer_size_force(&fd, SENDING)?;
    bind(&fd, interface, libc::ETH_P_ALL as u16)?;
    receive_all(&fd, interface)?;
    let via = Attachment::Packet(PacketSocket { uso, ring: RING });
    Ok(Socket { via, fds: vec![fd, carrier], xdp: None, missing })
}

/// Has an interface pass on what is for addresses of guests. It ends with the socket, or by
/// [`end_membership`].
fn receive_all(fd: &OwnedFd, interface: u32) -> io::Result<()> {
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &all_frames(interface.cast_signed()))
}

/// Has the interface of a socket pass on only what is for its own addresses, as far as this socket
/// is concerned. Without it the interface stays promiscuous until the last duplicate of the socket
/// is closed, which another process may have.
pub(crate) fn end_membership(socket: &impl AsFd) {
    let fd = socket.as_fd().as_raw_fd();
    // An interface that is gone has no members.
    let Ok(bound) = getsockname::<LinkAddr>(fd) else { return };
    let interface = i32::try_from(bound.ifindex()).unwrap_or_default();
    let _ = set(socket, libc::PACKET_DROP_MEMBERSHIP, &all_frames(interface));
}

/// Membership of a socket that gets all frames of an interface.
fn all_frames(interface: i32) -> libc::packet_mreq {
    libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    }
}

/// Numbers of frames for a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// All of them.
    pub(crate) all: u64,
    /// Those that the kernel has dropped: the ring had no room for them, or a virtio-net header
    /// cannot describe them.
    pub(crate) lost: u64,
    /// The ring has frames that were not read yet.
    pub(crate) more: bool,
    /// Number of frames that XDP sockets have lost since they were opened. The other numbers are 0.
    pub(crate) lost_by_xdp: u64,
}

impl Received {
    /// Adds the numbers to what is known of the interface.
    pub(crate) fn count(self, seen: &mut InterfaceSeen) {
        let Self { all, lost, more, lost_by_xdp } = self;
        seen.stalled_looks = if more || all > lost { 0 } else { seen.stalled_looks + u32::from(all > 0) };
        let before = std::mem::replace(&mut seen.lost_by_xdp, lost_by_xdp);
        seen.lost_frames += lost + lost_by_xdp.saturating_sub(before);
    }
}

/// Returns the frames that have come to the sockets of an interface since this was asked last. Each
/// of them is an XDP socket, or there is one packet socket.
///
/// # Errors
/// There is no socket, or the kernel does not tell. Both say nothing of the frames: numbers of 0
/// would have those that XDP sockets have lost counted again at the next look.
pub(crate) fn received<S: AsFd>(sockets: &[S]) -> io::Result<Received> {
    let first = sockets.first().ok_or(io::ErrorKind::NotFound)?;
    let lost: io::Result<Vec<u64>> = sockets.iter().map(xdp::lost).collect();
    if let Ok(lost) = lost {
        return Ok(Received { lost_by_xdp: lost.iter().sum(), ..Received::default() });
    }
    let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let counted = get(first, libc::PACKET_STATISTICS, none)?;
    let mut polled = [PollFd::new(first, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let more = polled[0].revents().contains(PollFlags::IN);
    Ok(Received { all: counted.tp_packets.into(), lost: counted.tp_drops.into(), more, lost_by_xdp: 0 })
}

/// Returns whether packet sockets take UDP frames to be segmented: since Linux 6.2. No call tells.
fn takes_uso() -> bool {
    uname().release().to_str().is_ok_and(|release| is_at_least(release, (6, 2)))
}

/// Returns whether packet sockets know virtio-net headers of 12 bytes: since Linux 6.4.
fn takes_long_headers(fd: &OwnedFd) -> io::Result<bool> {
    match get(fd, PACKET_VNET_HDR_SZ, 0_i32) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    found >= wanted
}

/// Binds a packet socket to an interface, to receive frames of this protocol.
fn bind(fd: &OwnedFd, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`, which has that many. The descriptor is
    // open.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the value of an option of packet sockets. `T` is the type that the kernel writes for it,
/// plain data that may have any content.
fn get<T: Copy>(socket: impl AsFd, option: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which has that many. The descriptor
    // is open during the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option of packet sockets. `T` is the type that the kernel reads for it.
fn set<T: Copy>(fd: &impl AsFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_PACKET, option, value)
}

/// Sets an option of one level. `T` is the type that the kernel reads for it.
fn set_at<T: Copy>(fd: &impl AsFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`, which has that many. The descriptor is open.
    let result = unsafe {
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels_are_compared_by_number() {
        for (release, new) in [
            ("6.1.0-18-amd64", false),
            ("6.2.0", true),
            ("6.18.44-fc-v657", true),
            ("10.0", true),
            ("", false),
        ] {
            assert_eq!(is_at_least(release, (6, 2)), new, "{release}");
        }
    }

    #[test]
    fn lost_frames_are_counted_once_and_nothing_is_known_without_a_socket() {
        assert_eq!(received::<OwnedFd>(&[]).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut seen = InterfaceSeen::default();
        let by_xdp = |lost_by_xdp| Received { lost_by_xdp, ..Received::default() };
        let mut total = |received: Received| {
            received.count(&mut seen);
            seen.lost_frames
        };
        assert_eq!([by_xdp(5), by_xdp(5), by_xdp(7)].map(&mut total), [5, 5, 7]);
        let packets = Received { all: 3, lost: 3, ..by_xdp(7) };
        assert_eq!(total(packets), 10);
        assert_eq!(seen.stalled_looks, 1);
        packets.count(&mut seen);
        Received { more: true, ..packets }.count(&mut seen);
        assert_eq!((seen.stalled_looks, seen.lost_frames), (0, 16));
    }

    #[test]
    fn a_block_is_a_power_of_two_of_pages_but_for_one() {
        assert_eq!(BLOCK - SLOT * SLOTS_PER_BLOCK, 4096);
        const { assert!(SLOT >= 65536 + 14 + 128, "the longest merged frame and its headers") };
    }
}
