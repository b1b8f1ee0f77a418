//! A connection gets its channel at its first data call.

use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use taut_vmci_client::{Granted, NotAttached};

use super::record::Pair;
use super::settings::{complain_of_unclear, is_on, settings};
use super::wait::pause;
use crate::gather;
use crate::hidden::{end_control, hide};
use crate::say::tell;
use crate::state::{TABLE, owns};
use crate::sys::{Undisturbed, at};
use crate::table::{Held, Way};

/// Longest time that the host may take. A connection that the host may have given a channel ends
/// then, so this is long: on a busy host, the fabric's thread waits for a pCPU.
const PATIENCE: Duration = Duration::from_secs(5);
/// Standard input, output and error: other programs and the C library's streams may use them.
const STANDARD: std::ops::RangeInclusive<RawFd> = 0..=2;

/// Lets a new connection, which this process alone has, get a channel later.
pub(crate) fn begin(fd: RawFd) {
    if !is_on() || !owns() {
        return;
    }
    // The program may have closed the connection before it unseen.
    end_control(fd);
    let knows =
        |settings: &super::settings::Settings| at(fd).is_ok_and(|socket| settings.service.knows(socket));
    let may = settings().is_some_and(knows) && !STANDARD.contains(&fd) && !TABLE.is_duplicated(fd);
    TABLE.set_way(fd, if may { Way::Open } else { Way::Refused });
}

/// Tells whether the bytes of a connection go through a channel. If that is not decided yet,
/// decides it now.
pub(crate) fn is_attached(fd: RawFd) -> bool {
    super::inherited::check(fd);
    loop {
        match TABLE.way(fd) {
            Way::Channel(_) if Pair::known(fd).is_some() => return true,
            // The channel is another connection's by now.
            Way::Channel(_) => {
                super::leave::follow(fd);
                return false;
            }
            Way::Packets | Way::Refused => return false,
            Way::Asking => pause(),
            Way::Open => {
                // A handler of this thread would wait for it.
                let _undisturbed = Undisturbed::begin();
                if TABLE.change_way(fd, Way::Open, Way::Asking) {
                    let way = attach(fd);
                    TABLE.set_way(fd, way);
                    if matches!(way, Way::Channel(_)) && !super::watch::take_over(fd) {
                        super::leave::leave(fd);
                    }
                }
            }
        }
    }
}

fn attach(fd: RawFd) -> Way {
    // A child of vfork has descriptors of its own, but its parent's table.
    if !owns() || STANDARD.contains(&fd) || TABLE.has_stream(fd) || TABLE.watch(fd).is_err() {
        return Way::Refused;
    }
    match ask(fd) {
        Ok(index) => {
            tell!("descriptor {fd}: in channel {index}");
            gather::share(fd);
            Way::Channel(index)
        }
        Err(reason) => {
            tell!("descriptor {fd}: by packets, since {reason}");
            if reason.is_unclear() {
                complain_of_unclear(&reason);
                if let Ok(stream) = at(fd) {
                    let _ = shutdown(stream, Shutdown::Both);
                }
            }
            Way::Refused
        }
    }
}

fn ask(fd: RawFd) -> Result<u32, NotAttached> {
    let settings = settings().ok_or(NotAttached::NoDevice)?;
    let stream = at(fd).map_err(std::io::Error::from)?;
    let cookie = sockopt::socket_cookie(stream).map_err(std::io::Error::from)?;
    if !matches!(TABLE.get(fd), Held::Connection(connection) if connection.cookie == cookie) {
        return Err(NotAttached::NotAStream(None));
    }
    let granted = Granted::ask(&settings.service, stream, &settings.region, PATIENCE)?;
    let index = granted.channel.index();
    // If this fails, or there is no number for the control connection, the host takes the channel
    // back.
    Pair::begin(index, cookie, granted.by_packets).map_err(std::io::Error::from)?;
    let control = hide(granted.control.as_raw_fd(), true).map_err(std::io::Error::from)?;
    TABLE.set_control(fd, Some(control));
    Ok(index)
}

/// Decides for all connections, before a fork: afterwards each process would decide for itself.
pub(super) fn attach_all() {
    if !is_on() || !owns() {
        return;
    }
    for fd in TABLE.numbers() {
        if matches!(TABLE.way(fd), Way::Open | Way::Asking) {
            is_attached(fd);
        }
    }
}

/// Has a child stay with packets for connections about which a thread of its parent decides just
/// now. With `all`, also for those that its parent may yet decide about: the child was made without
/// the C library's fork. The first call on a connection that has a channel asks what its number is.
pub(super) fn forked(all: bool) {
    if !is_on() {
        return;
    }
    for fd in TABLE.numbers() {
        let way = TABLE.way(fd);
        if way == Way::Asking || all && way == Way::Open {
            TABLE.set_way(fd, Way::Refused);
        }
        if let Some(pair) = Pair::known(fd) {
            pair.set_shared();
            TABLE.set_inherited(fd, true);
        }
    }
    TABLE.inherit_edges();
}
