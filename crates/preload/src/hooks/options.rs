//! `getsockopt`, `setsockopt` and `ioctl`.

use std::ffi::{c_int, c_ulong, c_void};

use libc::socklen_t;
use rustix::io::Errno;

use super::{fail, guard};
use crate::datagram;
use crate::lookup::{connection, listener};
use crate::options::{Get, Set, get, receive_buffer, set, tcp_info};
use crate::say::complain;
use crate::state::{TABLE, owns};
use crate::sys::{MOST_COUNTED, count_unread, errno, option};
use crate::table::{Connection, Held};
use crate::{adopt, descriptors, gather, real, rings};

/// `getsockopt(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let of_datagrams = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(libc::AF_VSOCK),
        (libc::SOL_SOCKET, libc::SO_TYPE) => Some(libc::SOCK_DGRAM),
        _ => None,
    };
    if let Some(number) = of_datagrams
        && datagram::find(fd).is_some()
    {
        // SAFETY: as the caller promises.
        return unsafe { give(&number.to_ne_bytes(), value, len) };
    }
    let known = match TABLE.get(fd) {
        Held::Connection(_) => guard(None, || connection(fd)),
        _ => None,
    };
    if (level, name) == (libc::SOL_TCP, libc::TCP_CORK) && known.is_some() && gather::is_on() {
        // SAFETY: as the caller promises.
        return unsafe { give(&c_int::from(TABLE.has_cork(fd)).to_ne_bytes(), value, len) };
    }
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
        && rings::concerns(fd)
        && let Some(error) = guard(None, || rings::pending_error(fd))
    {
        // SAFETY: as the caller promises.
        return unsafe { give(&error.to_ne_bytes(), value, len) };
    }
    let known = known.or_else(|| foreign(fd, level, name));
    match known.map_or(Get::Kernel, |it| get(level, name, &it)) {
        // SAFETY: as the caller promises.
        Get::Kernel => unsafe { real::getsockopt(fd, level, name, value, len) },
        // SAFETY: as the caller promises.
        Get::Value(number) => unsafe { give(&number.to_ne_bytes(), value, len) },
        // SAFETY: as the caller promises.
        Get::Congestion => unsafe { give(b"vmci\0", value, len) },
        // SAFETY: as the caller promises.
        Get::TcpInfo => unsafe { give(&tcp_info(fd), value, len) },
        Get::Refuse => refused("getsockopt", level, name),
    }
}

/// Stores the value of an option, as far as there is room, and its length.
///
/// # Safety
/// `len` is null or points to the size of what `value` points to.
unsafe fn give(bytes: &[u8], value: *mut c_void, len: *mut socklen_t) -> c_int {
    if value.is_null() || len.is_null() {
        return fail(Errno::FAULT);
    }
    // SAFETY: as the caller promises.
    let count = (unsafe { len.read_unaligned() } as usize).min(bytes.len());
    // SAFETY: not more bytes than source and target have.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count) };
    // SAFETY: as the caller promises.
    unsafe { len.write_unaligned(count as socklen_t) };
    0
}

/// `setsockopt(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let number = || unsafe { integer(value, len) };
    let held = TABLE.get(fd);
    if let Held::Listener(_) = held
        && (level, name) == (libc::SOL_SOCKET, libc::SO_RCVBUF)
        && let (Some(listener), Some(size)) = (guard(None, || listener(fd)), number())
    {
        guard((), || descriptors::set_receive_buffer(listener, size));
    }
    let known = match held {
        Held::Connection(_) => guard(None, || connection(fd)),
        _ => None,
    };
    if let Some(connection) = known.or_else(|| foreign(fd, level, name)) {
        match set(level, name) {
            Set::Kernel => {}
            Set::Ignore if name == libc::TCP_CORK && level == libc::SOL_TCP && gather::is_on() => {
                let Some(number) = number() else { return fail(Errno::INVAL) };
                TABLE.set_cork(fd, number != 0);
                if number == 0 {
                    guard((), || gather::flush(fd));
                }
                return 0;
            }
            Set::Ignore => return 0,
            Set::NoDelay => {
                let Some(number) = number() else { return fail(Errno::INVAL) };
                if owns() {
                    TABLE.set_no_delay(fd, connection.cookie, number != 0);
                }
                if number != 0 && gather::is_on() {
                    guard((), || gather::flush(fd));
                }
                return 0;
            }
            Set::ReceiveBuffer => {
                if let Some(size) = number() {
                    guard((), || receive_buffer(fd, size));
                }
            }
            Set::Refuse => return refused("setsockopt", level, name),
        }
    }
    // SAFETY: as the caller promises.
    let result = unsafe { real::setsockopt(fd, level, name, value, len) };
    if level == libc::SOL_SOCKET && rings::concerns(fd) {
        guard((), || rings::mode_changed(fd));
    }
    result
}

/// The VMCI connection that a descriptor outside the table is, made by another program. Only looked
/// for if the option is one that a TCP socket has, so that the usual case costs one look at the
/// family.
fn foreign(fd: c_int, level: c_int, name: c_int) -> Option<Connection> {
    let only_tcp = matches!(level, libc::SOL_TCP | libc::SOL_IP | libc::SOL_IPV6);
    let tells = level == libc::SOL_SOCKET && matches!(name, libc::SO_DOMAIN | libc::SO_PROTOCOL);
    if (only_tcp || tells)
        && !TABLE.is_held(fd)
        && matches!(option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN), Ok(libc::AF_VSOCK | libc::AF_UNIX))
    {
        guard(None, || adopt::connection(fd))
    } else {
        None
    }
}

/// Reads the integer that a program passes, if there are enough bytes.
///
/// # Safety
/// `value` is null or points to `len` bytes.
unsafe fn integer(value: *const c_void, len: socklen_t) -> Option<c_int> {
    if value.is_null() || (len as usize) < size_of::<c_int>() {
        return None;
    }
    // SAFETY: there are enough bytes, as the caller promises.
    Some(unsafe { value.cast::<c_int>().read_unaligned() })
}

fn refused(call: &str, level: c_int, name: c_int) -> c_int {
    guard((), || {
        complain!(
            "{call} of option {name} at level {level} refused (ENOPROTOOPT): a VMCI socket does not have it\n\
             hint: if the program requires it, remove this peer from the map"
        );
    });
    fail(Errno::NOPROTOOPT)
}

/// `ioctl(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: as the caller promises.
    let call = || unsafe { real::ioctl(fd, request, argument) };
    if request == libc::FIONBIO && TABLE.may_listen(fd) {
        return guard(-1, || descriptors::with_flags(fd, true, call));
    }
    if request == libc::TIOCOUTQ && gather::is_on() {
        guard((), || gather::flush(fd));
    }
    if matches!(request, libc::FIONREAD | libc::TIOCOUTQ)
        && rings::concerns(fd)
        && argument != 0
        && let Some(count) = guard(None, || waiting_bytes(fd, request))
    {
        // SAFETY: the argument of these requests is a pointer to an int, as the caller promises.
        unsafe { (argument as *mut c_int).write_unaligned(count) };
        return 0;
    }
    let result = call();
    if request == libc::FIONBIO && rings::concerns(fd) {
        guard((), || rings::mode_changed(fd));
    }
    if !TABLE.is_held(fd) {
        return result;
    }
    match request {
        libc::FIOCLEX | libc::FIONCLEX if result == 0 => {
            guard((), || descriptors::set_cloexec(fd, request == libc::FIOCLEX));
        }
        // Older kernels do not support it for AF_VSOCK and fail in one of two ways.
        libc::FIONREAD
            if result < 0 && matches!(errno(), Errno::NOTTY | Errno::OPNOTSUPP) && argument != 0 =>
        {
            let Some(count) = guard(None, || connection(fd).map(|_| unread(fd))) else { return result };
            // SAFETY: the argument of FIONREAD is a pointer to an int, as the caller promises.
            unsafe { (argument as *mut c_int).write_unaligned(count) };
            return 0;
        }
        _ => {}
    }
    result
}

/// Number of bytes of a connection with rings that wait for the program, or for the peer.
fn waiting_bytes(fd: c_int, request: c_ulong) -> Option<c_int> {
    if !rings::is_attached(fd) {
        return None;
    }
    let count = if request == libc::FIONREAD { rings::unread(fd)? } else { rings::unsent(fd)?.into() };
    Some(c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// Number of bytes that can be read without waiting, as far as peeking counts them.
fn unread(fd: c_int) -> c_int {
    let counted = count_unread(fd, MOST_COUNTED);
    counted.map_or(0, |count| c_int::try_from(count).unwrap_or(c_int::MAX))
}
