//! A packet socket that sends frames by an interface of the host, many at once.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, bind, sendmmsg,
    socket_with,
};

/// Frames that are sent by one system call.
const AT_ONCE: usize = 64;
/// `AF_PACKET` of <linux/socket.h>.
const AF_PACKET: u16 = 17;

/// Sends frames by an interface of the host. It receives nothing.
#[derive(Debug)]
pub struct FrameSender(OwnedFd);

/// `struct sockaddr_ll` of <linux/if_packet.h>, as `bind` reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Address {
    family: u16,
    protocol: u16,
    interface: u32,
    rest: [u8; 12],
}

// SAFETY: the closure gets the address and the size of this value, which is plain data without
// padding and lives as long as the call. Its family says how it is read.
unsafe impl SocketAddrArg for Address {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f((&raw const *self).cast(), size_of::<Self>() as SocketAddrLen)
    }
}

impl FrameSender {
    /// Opens a socket at an interface.
    ///
    /// # Panics
    /// If there is no such interface, or the kernel opens no socket.
    pub fn open(interface: &str) -> Self {
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("packet sockets");
        let interface = name_to_index(&socket, interface).expect("the interface is there");
        // Without a protocol the socket receives nothing.
        bind(&socket, &Address { family: AF_PACKET, protocol: 0, interface, rest: [0; 12] })
            .expect("the socket can be bound");
        Self(socket)
    }

    /// Sends a frame 64 times. The kernel may drop some of them, as a wire does.
    pub fn send_many(&self, frame: &[u8]) {
        let parts = [IoSlice::new(frame)];
        let mut controls: Vec<_> = (0..AT_ONCE).map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> = controls.iter_mut().map(|control| MMsgHdr::new(&parts, control)).collect();
        // An error stands for a frame that found no room.
        let _ = sendmmsg(&self.0, &mut messages, SendFlags::empty());
    }
}
