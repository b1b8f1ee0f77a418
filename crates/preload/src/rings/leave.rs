//! A connection leaves its channel, so that anything may use its socket again. The fabric then
//! sends by packets what the program has not read, and delivers what the program has written before
//! packets that it sends later.

use std::os::fd::RawFd;

use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::{Shutdown, shutdown};

use super::input::Input;
use super::output::Output;
use super::record::Pair;
use super::settings::is_on;
use super::words::flag;
use crate::hidden::{end_control, hide, is_there};
use crate::say::tell;
use crate::state::{TABLE, owns};
use crate::sys::at;
use crate::table::Way;

/// Has a connection go by packets from now on, in all processes.
pub(crate) fn leave(fd: RawFd) {
    if !is_on() {
        return;
    }
    match TABLE.way(fd) {
        // The rings have moved no bytes yet. If another thread asks for a channel just
        // now, its answer comes first.
        Way::Open if TABLE.change_way(fd, Way::Open, Way::Refused) => {}
        Way::Open => leave(fd),
        Way::Asking => {
            super::attach::is_attached(fd);
            leave(fd);
        }
        Way::Channel(index) => {
            let Some(pair) = Pair::of(fd) else { return forget(fd) };
            leave_now(&pair);
            tell!("descriptor {fd}: by packets again, after channel {index}");
            follow(fd);
        }
        Way::Packets | Way::Refused => {}
    }
}

fn leave_now(pair: &Pair) {
    let (Ok(input), Ok(output)) = (Input::lock(pair), Output::lock(pair)) else { return };
    // The next thread that takes a lock finds this, and with the end of the control connection all
    // that sleep wake up.
    pair.set_left();
    if is_there(pair.control)
        && let Ok(control) = at(pair.control)
    {
        let _ = shutdown(control, Shutdown::Both);
    }
    drop((input, output));
    if pair.has(flag::SHUT_WRITE)
        && let Ok(stream) = at(pair.fd)
    {
        let _ = shutdown(stream, Shutdown::Write);
    }
}

/// Does in this process what follows from [`leave`], which another thread or process may have
/// called.
///
/// A child of vfork leaves the table and the watch to its parent. It may have closed the epoll
/// instance, and then it could not give the watch back to the kernel.
pub(super) fn follow(fd: RawFd) {
    if owns() {
        super::watch::hand_back(fd);
        TABLE.set_way(fd, Way::Refused);
    }
    end_control(fd);
}

/// Forgets the channel of a number that the program has closed unseen, and that is another file by
/// now.
pub(super) fn forget(fd: RawFd) {
    if owns() {
        // The watch of the number may be that of the file.
        TABLE.end_edge(fd);
        TABLE.set_way(fd, Way::Packets);
        end_control(fd);
    } else {
        super::vfork::note_unseen_close();
    }
}

/// Has all connections go by packets, or with `true` those that the next program inherits.
pub(crate) fn leave_if(inherited_only: bool) {
    if !is_on() {
        return;
    }
    for fd in TABLE.numbers().filter(|fd| !matches!(TABLE.way(*fd), Way::Packets | Way::Refused)) {
        let is_inherited =
            || at(fd).and_then(fcntl_getfd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
        if !inherited_only || is_inherited() {
            leave(fd);
        }
    }
}

/// Records that `to` has become a duplicate of `from`.
pub(crate) fn duplicated(from: RawFd, to: RawFd) {
    if !is_on() {
        return;
    }
    if (0..=2).contains(&to) || TABLE.way(from) == Way::Open {
        leave(from);
    }
    let Some(pair) = Pair::of(from).filter(|_| owns()) else { return };
    match hide(pair.control, true) {
        Ok(control) => {
            TABLE.set_control(to, Some(control));
            TABLE.set_way(to, Way::Channel(pair.channel.index()));
        }
        Err(_) => leave(from),
    }
}

/// Shuts down both halves of a connection, or one. The caller shuts down the socket, too.
pub(crate) fn shut_down(fd: RawFd, how: i32) {
    let Some(pair) = Pair::of(fd) else { return };
    if matches!(how, libc::SHUT_RD | libc::SHUT_RDWR) {
        pair.set(flag::SHUT_READ);
    }
    if matches!(how, libc::SHUT_WR | libc::SHUT_RDWR)
        && let Ok(mut output) = Output::lock(&pair)
    {
        output.shut();
    }
}

/// Number of bytes that can be read without waiting.
pub(crate) fn unread(fd: RawFd) -> Option<u64> {
    let pair = Pair::of(fd)?;
    let input = Input::lock(&pair).ok()?;
    Some(pair.by_packets() + u64::from(input.available()))
}

/// Number of bytes that the fabric has not taken.
pub(crate) fn unsent(fd: RawFd) -> Option<u32> {
    let pair = Pair::of(fd)?;
    Some(Output::lock(&pair).ok()?.used())
}

/// Takes the error of a connection (`SO_ERROR`); `None` if it has none of its own.
pub(crate) fn pending_error(fd: RawFd) -> Option<i32> {
    let pair = Pair::of(fd)?;
    let end = Input::lock(&pair).ok()?.end();
    let is_reset = end == taut_queue_pair::End::Reset || pair.has(flag::FAULT);
    (is_reset && !pair.set(flag::TOLD)).then_some(libc::ECONNRESET)
}
