//! A TAP device inside a network namespace.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use taut_host::kernel::namespace;

/// Length of the virtio-net header before each frame, with `num_buffers`.
static VNET_HEADER: libc::c_int = 12;

/// Work that a frame from the namespace may leave to its receiver: checksums, and segmentation of
/// TCP over IPv4 and IPv6.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
/// Segmentation of UDP: since Linux 6.2, both flags together only.
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// An open TAP device.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Its descriptor.
    pub(crate) device: OwnedFd,
    /// The device accepts and sends UDP frames to be segmented.
    pub(crate) uso: bool,
}

nix::ioctl_write_ptr_bad!(tun_set_interface, libc::TUNSETIFF, libc::ifreq);
nix::ioctl_write_ptr_bad!(tun_set_header_size, libc::TUNSETVNETHDRSZ, libc::c_int);
nix::ioctl_write_int_bad!(tun_set_offload, libc::TUNSETOFFLOAD);
nix::ioctl_write_int_bad!(tun_set_persist, libc::TUNSETPERSIST);

/// Opens the TAP device `name` of a network namespace, and makes it if there is none.
///
/// The device belongs to the namespace of the thread that opens it, and stays when the descriptor
/// is closed.
pub(super) fn open(netns: &str, name: &str) -> io::Result<Tap> {
    namespace::within(netns, || configure(name))
}

fn configure(name: &str) -> io::Result<Tap> {
    let device: OwnedFd = File::options().read(true).write(true).open("/dev/net/tun")?.into();
    nix::fcntl::fcntl(&device, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    let request = interface_request(name)?;
    let fd = device.as_raw_fd();
    // SAFETY: `fd` is open for the whole block. `request` and the header size are initialized and
    // of the type that the driver reads for these requests; the other two take their argument by
    // value.
    let uso = unsafe {
        tun_set_interface(fd, &raw const request)?;
        tun_set_header_size(fd, &raw const VNET_HEADER)?;
        let uso = tun_set_offload(fd, (OFFLOADS | USO).cast_signed()).is_ok();
        if !uso {
            tun_set_offload(fd, OFFLOADS.cast_signed())?;
        }
        tun_set_persist(fd, 1)?;
        uso
    };
    Ok(Tap { device, uso })
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{name}` is too long for an interface"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    Ok(request)
}
