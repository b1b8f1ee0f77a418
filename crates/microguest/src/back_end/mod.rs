//! Where back ends are met: the vhost-user socket of one device, and the link over it, anew whenever a back end has gone.

pub(crate) mod hostile;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use taut_bench::front_end::{self, Link, Wanted};
use taut_virtq::driver::Ram;
use taut_virtq::features;

use crate::options::{NicOptions, VsockOptions};

const OFFLOADS: u64 = features::NET_CSUM
    | features::NET_GUEST_CSUM
    | features::NET_HOST_TSO4
    | features::NET_GUEST_TSO4
    | features::NET_MRG_RXBUF;

/// Makes the socket. One that a predecessor left behind is replaced; one that somebody serves is not.
pub(crate) fn listen(path: &Path) -> Result<UnixListener> {
    if UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}

/// Where a device's back end is.
pub(super) enum Meeting<'a> {
    /// It connects.
    At(Arc<UnixListener>),
    /// It listens here, or will.
    To(&'a Path),
}

impl Meeting<'_> {
    fn next(&self) -> Result<UnixStream> {
        match self {
            Self::At(listener) => Ok(listener.accept().context("cannot accept a back end")?.0),
            Self::To(path) => loop {
                // Nobody there is nothing to give up for: a back end may be started at any time.
                if let Ok(stream) = front_end::socket::connect(path) {
                    return Ok(stream);
                }
            },
        }
    }
}

/// Serves one back end after the other, each with the memory of a new guest; `wanted` says what of it. `up` gets each link before
/// the back end is told to start, and prepares its queues; `down` is called when it has gone.
pub(super) fn serve(
    meeting: &Meeting<'_>,
    path: &Path,
    wanted: impl Fn() -> Result<Wanted>,
    up: impl Fn(Link) -> Result<()>,
    down: impl Fn(),
) -> Result<()> {
    loop {
        let stream = meeting.next()?;
        let watched = stream.as_fd().try_clone_to_owned()?;
        match front_end::connect(stream, wanted()?, &up) {
            Ok(_session) => wait_for_hang_up(&watched)?,
            Err(error) => eprintln!("taut-micro: {}: {error:#}", path.display()),
        }
        down();
    }
}

/// What a vNIC asks of its back end.
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

/// What a VMCI device asks of its back end: the context ID is 64 bits of its configuration (virtio 1.2, 5.10.4).
pub(super) fn of_vsock(vsock: &VsockOptions, memory: u64) -> Result<Wanted> {
    Ok(Wanted {
        features: features::EVENT_IDX,
        entries: [vsock.rx, vsock.tx],
        ram: Ram::new(memory)?,
        config: 8,
    })
}

/// Returns when the other side has closed. It sends nothing by itself.
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
