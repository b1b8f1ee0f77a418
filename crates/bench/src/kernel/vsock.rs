//! Features of `AF_VSOCK` sockets: addresses, buffer sizes, the machine's context ID.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr;

use rustix::ioctl::{Getter, ioctl, opcode};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

use crate::agent::protocol::Address;

/// Context ID of the host. Higher ones are those of VMs.
const HOST: u32 = 2;
/// Route the connection through the machine's own device, even if the machine is a host itself
/// (`VMADDR_FLAG_TO_HOST`).
const TO_HOST: u8 = 1;
/// Options of level `AF_VSOCK`, from `linux/vm_sockets.h`. Their values have 64 bits.
const BUFFER_SIZE: i32 = 0;
const BUFFER_MIN_SIZE: i32 = 1;
const BUFFER_MAX_SIZE: i32 = 2;
/// `IOCTL_VM_SOCKETS_GET_LOCAL_CID`.
const LOCAL_CID: rustix::ioctl::Opcode = opcode::none(7, 0xb9);

/// A vsock address.
#[derive(Debug, Clone, Copy)]
pub struct VsockAddress {
    /// Context ID of the machine.
    pub cid: u32,
    /// Port.
    pub port: u32,
}

// SAFETY: the pointer is to a whole `sockaddr_vm` that lives until `f` has returned, and the length
// is that of the struct.
unsafe impl SocketAddrArg for VsockAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        // The kernel uses the first byte of what the C library calls padding for flags (since Linux
        // 5.11). A connection to a neighbour VM must leave through the device that leads to the
        // host (spec row VC-1).
        let flags = if (HOST + 1..Address::ANY_CID).contains(&self.cid) { TO_HOST } else { 0 };
        let address = libc::sockaddr_vm {
            svm_family: libc::AF_VSOCK as libc::sa_family_t,
            svm_reserved1: 0,
            svm_port: self.port,
            svm_cid: self.cid,
            svm_zero: [flags, 0, 0, 0],
        };
        f(ptr::from_ref(&address).cast(), size_of_val(&address) as SocketAddrLen)
    }
}

/// Sets a socket's buffer size in bytes: what its peer may send ahead. Call before it connects or
/// listens.
pub fn set_buffer_size(socket: &impl AsFd, size: u32) -> io::Result<()> {
    // The bounds come first, because the kernel clamps the size to them.
    for option in [BUFFER_MAX_SIZE, BUFFER_MIN_SIZE, BUFFER_SIZE] {
        set(socket, option, size.into())?;
    }
    Ok(())
}

fn set(socket: &impl AsFd, option: i32, value: u64) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call, and the kernel reads the value at the given
    // length before the call returns.
    let result =
        unsafe { libc::setsockopt(descriptor, libc::AF_VSOCK, option, ptr::from_ref(&value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the machine's context ID.
pub fn local_cid() -> io::Result<u32> {
    let device = File::open("/dev/vsock")?;
    // SAFETY: this request writes a `u32` and nothing else.
    Ok(unsafe { ioctl(&device, Getter::<LOCAL_CID, u32>::new()) }?)
}
