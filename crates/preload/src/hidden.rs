//! Descriptors that the program does not know: the VMCI sockets of its listeners, the control
//! connections of queue pairs, the sockets of datagram carriers, and connections that the program
//! has closed while gathered bytes wait.
//!
//! A program can close one by a system call of its own, and another file may get the number. Uses
//! therefore compare the socket's cookie with the one in the table. Data calls on a connection with
//! a queue pair are an exception, since a comparison is a system call: they send and receive bytes
//! of the control connection by its number alone.

use std::os::fd::{AsRawFd as _, RawFd};

use rustix::event::epoll;
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit};

use crate::state::{TABLE, owns};
use crate::sys::{self, at};
use crate::table::{Edge, Held, Listener, State, Way};

/// Hidden descriptors have at least this number, or half of the process's limit if that is less.
///
/// Below 1024: the kernel takes the greatest number ever used for the size of the sets of a
/// `select` whose count is greater. Programs pass their limit of open files as the count, with sets
/// of the usual size.
const HIDDEN_FROM: u64 = 960;

/// Duplicates a socket to a number that the program does not know.
pub(crate) fn hide(fd: RawFd, cloexec: bool) -> Result<RawFd, Errno> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let from = HIDDEN_FROM.min(limit / 2) as RawFd;
    let cookie = sockopt::socket_cookie(at(fd)?)?;
    let hidden = fcntl_dupfd_cloexec(at(fd)?, from)?;
    if !cloexec {
        fcntl_setfd(&hidden, FdFlags::empty())?;
    }
    let number = hidden.as_raw_fd();
    if owns() {
        // The number may have been closed without the library noticing.
        let _ = closing(number);
    }
    if owns() && !TABLE.set(number, Held::Hidden(cookie)) {
        return Err(Errno::MFILE);
    }
    // From here on the descriptor is closed by its number.
    std::mem::forget(hidden);
    Ok(number)
}

/// Tells whether a number of the table still is the hidden descriptor that it was. One of which the
/// kernel does not tell this counts as there.
pub(crate) fn is_there(fd: RawFd) -> bool {
    matches!(TABLE.get(fd), Held::Hidden(cookie) if sys::is_socket(fd, cookie) != Some(false))
}

/// Closes a hidden descriptor, if it still is one.
pub(crate) fn unhide(fd: RawFd) {
    let is_there = is_there(fd);
    if owns() && TABLE.is_hidden(fd) {
        TABLE.forget(fd);
    }
    if is_there {
        let _ = sys::close(fd);
    }
}

/// Ends the entry of a listener that is gone, and closes its hidden descriptor.
pub(crate) fn release(fd: RawFd, listener: Listener) {
    let vmci = if owns() { TABLE.end(fd, listener.cookie).and_then(|last| last.vmci) } else { listener.vmci };
    if let Some(vmci) = vmci {
        unhide(vmci);
    }
}

/// Closes the control connection of a queue pair at this number. The channel is free when no number
/// of any process has it.
pub(crate) fn end_control(fd: RawFd) {
    let control = if owns() { TABLE.take_control(fd) } else { TABLE.control(fd) };
    let Some(control) = control else { return };
    // A process that was forked may have the same sockets, and then the instance would continue to
    // watch them. The watches of a parent stay.
    if owns()
        && TABLE.edge(fd).has(Edge::WATCHED.and(Edge::OWN))
        && let Ok(Some(watch)) = TABLE.watch(fd)
        && let Ok(instance) = at(watch.epoll)
    {
        for number in [fd, control] {
            let _ = at(number).and_then(|socket| epoll::delete(instance, socket));
        }
    }
    unhide(control);
}

/// Forgets a hidden descriptor that the program has closed without the library noticing.
pub(crate) fn lost(number: RawFd) {
    if !owns() {
        return;
    }
    for fd in TABLE.numbers() {
        if let Held::Listener(listener) = TABLE.get(fd)
            && listener.vmci == Some(number)
        {
            TABLE.change(fd, listener.cookie, |state| match state.vmci {
                Some(vmci) if vmci == number => State { vmci: None, armed: false, ..state },
                _ => state,
            });
        }
        if TABLE.control(fd) == Some(number) {
            TABLE.set_control(fd, None);
        }
    }
    if TABLE.is_hidden(number) {
        TABLE.forget(number);
    }
}

/// Prepares that the program closes a descriptor. Fails with `EBADF` for a hidden descriptor, whose
/// number the program cannot know.
pub(crate) fn closing(fd: RawFd) -> Result<(), Errno> {
    match TABLE.get(fd) {
        Held::Hidden(_) if is_there(fd) => return Err(Errno::BADF),
        Held::Hidden(_) => lost(fd),
        Held::Listener(listener) => release(fd, listener),
        Held::Connection(_) => {
            // Before its control connection is closed, so that another thread's call on this number
            // does not take that for the end of the connection.
            if owns() && matches!(TABLE.way(fd), Way::Channel(_)) {
                TABLE.set_way(fd, Way::Refused);
            }
            end_control(fd);
        }
        Held::Nothing => {}
    }
    if TABLE.is_known(fd) && owns() {
        if TABLE.is_instance(fd) {
            // Its watches end with it.
            TABLE.numbers().for_each(|watched| TABLE.unwatched(watched, fd));
        }
        // Before the number is closed, since then another thread may get it.
        TABLE.forget(fd);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::table::Connection;

    #[test]
    fn a_hidden_descriptor_is_neither_attached_nor_gathered_whatever_its_number_was() {
        const TRIES: usize = 100;
        let socket = UnixDatagram::unbound().unwrap();
        let cookie = sockopt::socket_cookie(&socket).unwrap();
        let address = "192.0.2.1:1".parse().unwrap();
        let connection =
            Connection { cookie: cookie + 1, peer: address, local: address, no_delay: false, unasked: false };
        let got_the_number = (0..TRIES).any(|_| {
            let number = hide(socket.as_raw_fd(), true).unwrap();
            // Now a connection that the program closes unseen.
            TABLE.set(number, Held::Connection(connection));
            TABLE.set_way(number, Way::Open);
            TABLE.set_private(number);
            sys::close(number).unwrap();
            let again = hide(socket.as_raw_fd(), true).unwrap();
            assert_eq!(TABLE.get(again), Held::Hidden(cookie));
            assert_eq!(TABLE.way(again), Way::Packets);
            assert!(!TABLE.is_private(again));
            assert!(is_there(again));
            unhide(again);
            // Another test may have got it.
            again == number
        });
        assert!(got_the_number);
    }
}
