//! The front end of one vNIC: listens on its vhost-user socket, sets queues up with whatever back end connects, and begins
//! anew when that goes away.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use taut_virtq::driver::{QueueLayout, Ram};
use taut_virtq::features;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

use super::event::Event;
use super::options::NicOptions;

/// Index of the receive queue; the transmit queue follows.
const RX_QUEUE: usize = 0;
const TX_QUEUE: usize = 1;

const OFFLOADS: u64 = features::NET_CSUM
    | features::NET_GUEST_CSUM
    | features::NET_HOST_TSO4
    | features::NET_GUEST_TSO4
    | features::NET_MRG_RXBUF;

/// One queue as its driver needs it.
#[derive(Debug)]
pub(super) struct QueueEnds {
    /// Where it lies.
    pub(super) layout: QueueLayout,
    /// To be raised when the device asked for it.
    pub(super) kick: Event,
    /// Raised by the device.
    pub(super) call: Event,
}

/// Memory and queues, agreed on with a back end; nothing is in the queues yet.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ram: Ram,
    pub(super) features: u64,
    pub(super) rx: QueueEnds,
    pub(super) tx: QueueEnds,
}

/// Makes the socket. One that a predecessor left behind is replaced; one that somebody serves is not.
pub(super) fn listen(path: &Path) -> Result<UnixListener> {
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

/// Negotiates and starts the queues. The session lasts as long as what is returned.
fn connect(
    stream: UnixStream,
    nic: &NicOptions,
    memory: u64,
    up: impl Fn(Link) -> Result<()>,
) -> Result<Frontend> {
    let mut session = Frontend::from_stream(stream, 2);
    session.set_owner().context("set owner")?;
    let offered = session.get_features().context("get features")?;
    let offloads = if nic.offloads { OFFLOADS } else { 0 };
    let needed = features::VERSION_1 | features::PROTOCOL_FEATURES;
    if offered & needed != needed {
        bail!("the back end offers features {offered:#x}; VERSION_1 and protocol features are needed");
    }
    let accepted = offered & (needed | features::EVENT_IDX | features::INDIRECT_DESC | offloads);
    let protocol = session.get_protocol_features().context("get protocol features")?;
    session
        .set_protocol_features(protocol & VhostUserProtocolFeatures::REPLY_ACK)
        .context("set protocol features")?;
    if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
        session.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    session.set_features(accepted).context("set features")?;

    let mut ram = Ram::new(memory)?;
    let spec = ram.spec();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: spec.guest_addr,
        memory_size: spec.size,
        userspace_addr: spec.user_addr,
        mmap_offset: spec.file_offset,
        mmap_handle: ram.file().as_raw_fd(),
    };
    session.set_mem_table(&[region]).context("set memory table")?;
    let rx = queue(&mut ram, nic.rx)?;
    let tx = queue(&mut ram, nic.tx)?;
    start_queue(&session, RX_QUEUE, &rx).context("receive queue")?;
    start_queue(&session, TX_QUEUE, &tx).context("transmit queue")?;
    up(Link { ram, features: accepted, rx, tx })?;
    for index in [RX_QUEUE, TX_QUEUE] {
        session.set_vring_enable(index, true).context("enable queue")?;
    }
    Ok(session)
}

fn queue(ram: &mut Ram, size: u16) -> Result<QueueEnds> {
    let layout = QueueLayout::allocate(ram, size).context("the memory is too small for the rings")?;
    Ok(QueueEnds { layout, kick: Event::new()?, call: Event::new()? })
}

fn start_queue(session: &Frontend, index: usize, queue: &QueueEnds) -> Result<()> {
    let QueueLayout { size, desc, avail, used } = queue.layout;
    session.set_vring_num(index, size)?;
    let addresses = VringConfigData {
        queue_max_size: size,
        queue_size: size,
        flags: 0,
        desc_table_addr: desc,
        used_ring_addr: used,
        avail_ring_addr: avail,
        log_addr: None,
    };
    session.set_vring_addr(index, &addresses)?;
    session.set_vring_base(index, 0)?;
    session.set_vring_call(index, &queue.call.for_vhost()?)?;
    session.set_vring_kick(index, &queue.kick.for_vhost()?)?;
    Ok(())
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
