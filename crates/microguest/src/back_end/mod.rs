//! The vhost-user session of one device: waits for a back end, and for the next one when that has
//! gone.

pub(crate) mod hostile;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, poll};
use taut_bench::front_end::{self, Link, Wanted};
use taut_virtq::driver::Ram;
use taut_virtq::features;

use crate::options::{NicOptions, VsockOptions};
use crate::say::say;

const OFFLOADS: u64 = features::NET_CSUM
    | features::NET_GUEST_CSUM
    | features::NET_HOST_TSO4
    | features::NET_GUEST_TSO4
    | features::NET_MRG_RXBUF;

/// Listens on a Unix socket. Replaces the file of an ended process, but not one that is in use.
pub(crate) fn listen(path: &Path) -> Result<UnixListener> {
    let cannot = |what: &str, error: &io::Error| {
        anyhow!("cannot {what} {}: {error}\nhint: {}", path.display(), advice(error.kind()))
    };
    if UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).map_err(|error| cannot("replace", &error))?;
    }
    UnixListener::bind(path).map_err(|error| cannot("listen on", &error))
}

/// Says what to do about a socket's path.
fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "make the folder first",
        io::ErrorKind::PermissionDenied => "choose a folder in which this user may make files",
        io::ErrorKind::AddrInUse => "another process listens there: end it, or choose another path",
        io::ErrorKind::InvalidInput => "choose a shorter path: that of a Unix socket has at most 107 bytes",
        _ => "choose another path",
    }
}

/// How the session's connection comes about.
pub(super) enum BackEnd<'a> {
    /// The back end connects to this socket.
    Connects(Arc<UnixListener>),
    /// The back end listens here, or will.
    Listens(&'a Path),
}

impl BackEnd<'_> {
    fn next(&self) -> Result<UnixStream> {
        match self {
            Self::Connects(listener) => Ok(listener.accept().context("cannot accept a back end")?.0),
            Self::Listens(path) => loop {
                // Retry forever: a back end may start at any time.
                if let Ok(stream) = front_end::socket::connect(path) {
                    return Ok(stream);
                }
            },
        }
    }
}

/// Serves one back end after the other, each with the memory of a new guest.
///
/// `wanted` returns what the device asks for. `up` gets each link before the back end is told to
/// start, so that it can fill the queues. `down` is called when the back end has gone.
pub(super) fn serve(
    back_end: &BackEnd<'_>,
    path: &Path,
    wanted: impl Fn() -> Result<Wanted>,
    up: impl Fn(Link) -> Result<()>,
    down: impl Fn(),
) -> Result<()> {
    loop {
        let stream = back_end.next()?;
        let watched = stream.as_fd().try_clone_to_owned()?;
        match front_end::connect(stream, wanted()?, &up) {
            Ok(_session) => wait_for_hang_up(&watched)?,
            Err(error) => say(format_args!(
                "{}: {error:#}\nhint: the device waits for the next back end; \
                 `taut port list` and the fabric's log have the other side's reason",
                path.display()
            )),
        }
        down();
    }
}

/// Returns what a vNIC asks of its back end.
pub(super) fn of_nic(nic: &NicOptions, memory: u64) -> Result<Wanted> {
    let choices =
        [(nic.offloads, OFFLOADS), (nic.packed, features::RING_PACKED), (nic.in_order, features::IN_ORDER)];
    let chosen = choices.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, features)| all | features);
    Ok(Wanted {
        features: features::EVENT_IDX | features::INDIRECT_DESC | chosen,
        entries: [nic.rx, nic.tx],
        ram: Ram::new(memory)?,
        config: 0,
    })
}

/// Returns what a vsock device asks of its back end. The context ID is the first 64 bits of its
/// configuration space (virtio 1.2, 5.10.4).
pub(super) fn of_vsock(vsock: &VsockOptions, memory: u64) -> Result<Wanted> {
    Ok(Wanted {
        features: features::EVENT_IDX,
        entries: [vsock.rx, vsock.tx],
        ram: Ram::new(memory)?,
        config: 8,
    })
}

/// Waits until the other side has closed. It sends nothing by itself.
fn wait_for_hang_up(stream: &OwnedFd) -> Result<()> {
    loop {
        let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_a_socket_is_told_with_a_hint() {
        let told = |path: &str| format!("{:#}", listen(Path::new(path)).unwrap_err());
        let absent = told("/nowhere/agent.sock");
        assert!(absent.starts_with("cannot listen on /nowhere/agent.sock: "), "{absent}");
        assert!(absent.ends_with("\nhint: make the folder first"), "{absent}");
        let long = told(&format!("/tmp/{}", "x".repeat(200)));
        assert!(long.contains("\nhint: choose a shorter path"), "{long}");
    }
}
