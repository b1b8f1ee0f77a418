//! Where back ends connect: the vhost-user socket of one vNIC, and the link over it, anew whenever a back end has gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use taut_virtq::driver::Ram;
use taut_virtq::features;

use super::options::NicOptions;
use crate::front_end::{self, Link, Wanted};

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

/// Serves one back end after the other. `up` gets each link before the back end is told to start, and prepares its queues;
/// `down` is called when it has gone.
pub(super) fn serve(
    listener: &UnixListener,
    nic: &NicOptions,
    memory: u64,
    up: impl Fn(Link) -> Result<()>,
    down: impl Fn(),
) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().context("cannot accept a back end")?;
        let watched = stream.as_fd().try_clone_to_owned()?;
        match connect(stream, nic, memory, &up) {
            Ok(_session) => wait_for_hang_up(&watched)?,
            Err(error) => eprintln!("taut-micro: {}: {error:#}", nic.socket.display()),
        }
        down();
    }
}

/// One session with the memory of a new guest.
fn connect(
    stream: UnixStream,
    nic: &NicOptions,
    memory: u64,
    up: impl FnOnce(Link) -> Result<()>,
) -> Result<vhost::vhost_user::Frontend> {
    let choices =
        [(nic.offloads, OFFLOADS), (nic.packed, features::RING_PACKED), (nic.in_order, features::IN_ORDER)];
    let chosen = choices.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, features)| all | features);
    let wanted = Wanted {
        features: features::EVENT_IDX | features::INDIRECT_DESC | chosen,
        entries: [nic.rx, nic.tx],
        ram: Ram::new(memory)?,
    };
    front_end::connect(stream, wanted, up)
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
