//! The two requests to the kernel's routing socket (rtnetlink) that bring an interface up.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

// Numbers of <linux/netlink.h>, <linux/rtnetlink.h>, <linux/if_addr.h> and <linux/if.h>.
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
/// Message header: length, type, flags, sequence, sender.
const HEADER: usize = 16;

/// A routing socket.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sets the interface with this number up.
    pub(crate) fn set_up(&mut self, index: u32) -> io::Result<()> {
        // struct ifinfomsg: family, padding, type, index, flags, changed flags.
        let mut body = vec![0; 4];
        for word in [index, IFF_UP, IFF_UP] {
            body.extend(word.to_ne_bytes());
        }
        self.request(RTM_NEWLINK, 0, &body)
    }

    /// Gives the interface with this number an address.
    pub(crate) fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        // struct ifaddrmsg: family, prefix length, flags, scope, index; then attributes.
        let mut body = vec![AF_INET, prefix, 0, 0];
        body.extend(index.to_ne_bytes());
        for kind in [IFA_LOCAL, IFA_ADDRESS] {
            body.extend(8_u16.to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(address.octets());
        }
        self.request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body)
    }

    /// Sends one request and waits for the kernel's verdict.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.socket.as_raw_fd(), &message, &kernel, MsgFlags::empty())?;

        let mut answer = [0; 1024];
        let received = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let (Some(kind), Some(code)) = (answer.get(4..6), answer.get(HEADER..HEADER + 4)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let kind = u16::from_ne_bytes([kind[0], kind[1]]);
        let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
        match (kind, code) {
            _ if received < HEADER + 4 => Err(io::ErrorKind::InvalidData.into()),
            (NLMSG_ERROR, 0) => Ok(()),
            (NLMSG_ERROR, code) => Err(io::Error::from_raw_os_error(-code)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
