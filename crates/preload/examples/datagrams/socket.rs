//! Datagram sockets of `AF_VSOCK` by the C library's functions, which `libtaut_vmci.so` replaces.
#![allow(unsafe_code, reason = "C functions")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr::{from_mut, from_ref, null_mut};

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, sockaddr, sockaddr_vm, socklen_t};

/// Context ID and port.
pub(crate) type Address = (u32, u32);

/// Any context ID of this machine (`VMADDR_CID_ANY`), or any port (`VMADDR_PORT_ANY`).
pub(crate) const ANY: u32 = u32::MAX;

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn native((cid, port): Address) -> sockaddr_vm {
    let family = libc::AF_VSOCK as libc::sa_family_t;
    sockaddr_vm { svm_family: family, svm_reserved1: 0, svm_port: port, svm_cid: cid, svm_zero: [0; 4] }
}

const LEN: socklen_t = size_of::<sockaddr_vm>() as socklen_t;

fn pointer(address: &sockaddr_vm) -> *const sockaddr {
    from_ref(address).cast()
}

/// A message of one part, and its address.
fn message(part: &mut iovec, address: Option<&mut sockaddr_vm>) -> msghdr {
    // SAFETY: a message of zeros has no address, no parts and no control data.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (part, 1);
    if let Some(address) = address {
        (message.msg_name, message.msg_namelen) = (from_mut(address).cast(), LEN);
    }
    message
}

fn part(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

impl Socket {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        Self::of(fd)
    }

    /// The socket of a descriptor that a call has just made, or the error of that call.
    fn of(fd: RawFd) -> io::Result<Self> {
        checked(fd as isize)?;
        // SAFETY: nobody else has this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A socket at a port of this machine.
    pub(crate) fn at(port: u32) -> io::Result<Self> {
        let socket = Self::new()?;
        let address = native((ANY, port));
        // SAFETY: address and length fit.
        checked(unsafe { libc::bind(socket.fd(), pointer(&address), LEN) } as isize)?;
        Ok(socket)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn connect(&self, to: Address) -> io::Result<()> {
        let address = native(to);
        // SAFETY: address and length fit.
        checked(unsafe { libc::connect(self.fd(), pointer(&address), LEN) } as isize).map(drop)
    }

    /// The socket's own address, or that of its peer.
    pub(crate) fn name(&self, of_peer: bool) -> io::Result<Address> {
        let (mut address, mut len) = (native((0, 0)), LEN);
        let name = if of_peer { libc::getpeername } else { libc::getsockname };
        // SAFETY: address and length fit.
        checked(unsafe { name(self.fd(), from_mut(&mut address).cast(), from_mut(&mut len)) } as isize)?;
        assert_eq!((len, i32::from(address.svm_family)), (LEN, libc::AF_VSOCK));
        Ok((address.svm_cid, address.svm_port))
    }

    pub(crate) fn option(&self, name: c_int) -> io::Result<c_int> {
        let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
        let value_pointer = from_mut(&mut value).cast::<c_void>();
        // SAFETY: value and length fit.
        let result =
            unsafe { libc::getsockopt(self.fd(), libc::SOL_SOCKET, name, value_pointer, &raw mut len) };
        checked(result as isize).map(|_| value)
    }

    pub(crate) fn send(&self, bytes: &[u8], flags: c_int) -> io::Result<usize> {
        // SAFETY: the bytes are there.
        checked(unsafe { libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
    }

    pub(crate) fn send_to(&self, bytes: &[u8], to: Address) -> io::Result<usize> {
        let address = native(to);
        // SAFETY: the bytes are there; address and length fit.
        checked(unsafe {
            libc::sendto(self.fd(), bytes.as_ptr().cast(), bytes.len(), 0, pointer(&address), LEN)
        })
    }

    pub(crate) fn receive(&self, room: &mut [u8], flags: c_int) -> io::Result<(usize, Address)> {
        let (mut address, mut len) = (native((0, 0)), LEN);
        let from = from_mut(&mut address).cast();
        // SAFETY: the bytes are there; address and length fit.
        let count = checked(unsafe {
            libc::recvfrom(self.fd(), room.as_mut_ptr().cast(), room.len(), flags, from, &raw mut len)
        })?;
        Ok((count, (address.svm_cid, address.svm_port)))
    }

    /// `recvmsg`, which returns the flags of the message.
    pub(crate) fn receive_message(
        &self,
        room: &mut [u8],
        flags: c_int,
    ) -> io::Result<(usize, Address, c_int)> {
        let (mut part, mut address) = (part(room), native((0, 0)));
        let mut message = message(&mut part, Some(&mut address));
        // SAFETY: all that the message points to is there.
        let count = checked(unsafe { libc::recvmsg(self.fd(), from_mut(&mut message), flags) })?;
        assert_eq!(message.msg_namelen, LEN);
        let flags = message.msg_flags;
        Ok((count, (address.svm_cid, address.svm_port), flags))
    }

    /// `write`, which only a connected socket has.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the bytes are there.
        checked(unsafe { libc::write(self.fd(), bytes.as_ptr().cast(), bytes.len()) })
    }

    pub(crate) fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the bytes are there.
        checked(unsafe { libc::read(self.fd(), room.as_mut_ptr().cast(), room.len()) })
    }

    /// `sendmmsg` of these datagrams.
    pub(crate) fn send_many(&self, datagrams: &[&[u8]], to: Address) -> io::Result<usize> {
        let mut parts: Vec<iovec> = datagrams.iter().map(|bytes| part(bytes)).collect();
        let mut addresses = vec![native(to); parts.len()];
        let mut all: Vec<mmsghdr> = parts
            .iter_mut()
            .zip(&mut addresses)
            .map(|(part, address)| mmsghdr { msg_hdr: message(part, Some(address)), msg_len: 0 })
            .collect();
        // SAFETY: all that the messages point to is there.
        let sent =
            checked(unsafe { libc::sendmmsg(self.fd(), all.as_mut_ptr(), all.len() as u32, 0) } as isize)?;
        assert!(all.iter().take(sent).zip(datagrams).all(|(one, bytes)| one.msg_len as usize == bytes.len()));
        Ok(sent)
    }

    /// `sendmsg` of a datagram in these parts, for a connected socket.
    pub(crate) fn send_parts(&self, parts: &[&[u8]]) -> io::Result<usize> {
        let mut parts: Vec<iovec> = parts.iter().map(|bytes| part(bytes)).collect();
        // SAFETY: a message of zeros has no address, no parts and no control data.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        // SAFETY: all that the message points to is there.
        checked(unsafe { libc::sendmsg(self.fd(), from_ref(&message), 0) })
    }

    /// `recvmmsg` that waits for the first of `count` datagrams. Returns their lengths.
    pub(crate) fn receive_many(&self, count: usize) -> io::Result<Vec<usize>> {
        let mut rooms = vec![[0_u8; 100]; count];
        let mut parts: Vec<iovec> = rooms.iter_mut().map(|room| part(&room[..])).collect();
        let mut all: Vec<mmsghdr> =
            parts.iter_mut().map(|part| mmsghdr { msg_hdr: message(part, None), msg_len: 0 }).collect();
        let (fd, flags) = (self.fd(), libc::MSG_WAITFORONE);
        // SAFETY: all that the messages point to is there.
        let got = unsafe { libc::recvmmsg(fd, all.as_mut_ptr(), count as u32, flags, null_mut()) };
        let got = checked(got as isize)?;
        Ok(all.iter().take(got).map(|one| one.msg_len as usize).collect())
    }

    /// Waits for an event; returns `false` if there is none within this time.
    pub(crate) fn poll(&self, events: i16, ms: c_int) -> io::Result<bool> {
        let mut polled = libc::pollfd { fd: self.fd(), events, revents: 0 };
        // SAFETY: there is one structure.
        let ready = checked(unsafe { libc::poll(&raw mut polled, 1, ms) } as isize)?;
        Ok(ready == 1 && polled.revents == events)
    }

    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        // SAFETY: takes a number only.
        let fd = unsafe { libc::dup(self.fd()) };
        Self::of(fd)
    }
}

/// An `epoll` instance.
#[derive(Debug)]
pub(crate) struct Instance(OwnedFd);

impl Instance {
    /// An instance that waits until the socket can be read.
    pub(crate) fn of(socket: &Socket) -> io::Result<Self> {
        // SAFETY: takes a number only.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        checked(fd as isize)?;
        // SAFETY: nobody else has this descriptor.
        let instance = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event is there.
        let added = unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, socket.fd(), &raw mut event) };
        checked(added as isize).map(|_| instance)
    }

    /// Waits; returns `false` if there is no event within this time.
    pub(crate) fn wait(&self, ms: c_int) -> io::Result<bool> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, ms) };
        checked(count as isize).map(|count| count == 1)
    }
}

/// Ends a child by a signal, and waits for it.
pub(crate) fn kill(child: c_int) {
    // SAFETY: takes numbers, and no place for the status.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, null_mut(), 0);
    }
}

/// Forks. The child runs `child` and ends, by `exit`, with 0 if that succeeds. Returns the child's
/// ID.
pub(crate) fn fork(child: impl FnOnce() -> io::Result<()>) -> io::Result<c_int> {
    // SAFETY: the program has one thread of its own.
    match unsafe { libc::fork() } {
        0 => {
            let code = child().map_or_else(
                |error| {
                    println!("child: {error}");
                    1
                },
                |()| 0,
            );
            std::process::exit(code)
        }
        id if id < 0 => Err(io::Error::last_os_error()),
        id => Ok(id),
    }
}

/// Waits for a child and returns whether it ended with 0.
pub(crate) fn ended_well(child: c_int) -> bool {
    let mut status = 0;
    // SAFETY: takes a number and a place for the status.
    unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
}
