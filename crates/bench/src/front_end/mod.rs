//! The front end of a vNIC or vsock device: negotiates with a vhost-user back end and sets up one
//! pair of queues.

pub mod event;
pub mod socket;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use taut_virtq::driver::{QueueLayout, Ram};
use taut_virtq::features;
use taut_virtq::first_position;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

pub use event::Event;

/// Index of the receive queue; the transmit queue follows.
const RX_QUEUE: usize = 0;
const TX_QUEUE: usize = 1;

/// The memory, rings and features that a front end offers and asks for.
#[derive(Debug)]
pub struct Wanted {
    /// Feature bits to accept if the back end offers them, besides those that this module needs.
    pub features: u64,
    /// Entries of the receive and of the transmit ring.
    pub entries: [u16; 2],
    /// The guest's memory.
    pub ram: Ram,
    /// Bytes of the device's configuration space to read.
    pub config: u32,
}

/// One queue with its notifications.
#[derive(Debug)]
pub struct QueueEnds {
    /// Addresses and size of the ring.
    pub layout: QueueLayout,
    /// Event that the driver raises when the device asked for it.
    pub kick: Event,
    /// Event that the device raises.
    pub call: Event,
}

/// Memory and queues that were negotiated with a back end. The queues are still empty.
#[derive(Debug)]
pub struct Link {
    /// The guest's memory, without the parts that the rings take.
    pub ram: Ram,
    /// Negotiated feature bits.
    pub features: u64,
    /// The first bytes of the device's configuration space, as many as were asked for.
    pub config: Vec<u8>,
    /// Receive queue.
    pub rx: QueueEnds,
    /// Transmit queue.
    pub tx: QueueEnds,
}

/// Negotiates with a back end and starts the queues.
///
/// Calls `up` with the link before the back end is told to start, so that it can fill the queues.
/// The session lasts as long as the returned value.
///
/// # Errors
/// If the back end lacks a needed feature or ends the session, if the memory is too small, or if
/// `up` fails.
pub fn connect(stream: UnixStream, wanted: Wanted, up: impl FnOnce(Link) -> Result<()>) -> Result<Frontend> {
    let Wanted { features: asked, entries, mut ram, config } = wanted;
    let mut session = Frontend::from_stream(stream, 2);
    session.set_owner().context("set owner")?;
    let offered = session.get_features().context("get features")?;
    let needed = features::VERSION_1 | features::PROTOCOL_FEATURES;
    if offered & needed != needed {
        bail!("the back end offers features {offered:#x}; VERSION_1 and protocol features are needed");
    }
    let accepted = offered & (needed | asked);
    let protocol = session.get_protocol_features().context("get protocol features")?;
    let mut needed = VhostUserProtocolFeatures::empty();
    needed.set(VhostUserProtocolFeatures::CONFIG, config > 0);
    if !protocol.contains(needed) {
        bail!(
            "the back end offers protocol features {:#x}; the device's configuration is needed",
            protocol.bits()
        );
    }
    session
        .set_protocol_features(protocol & (needed | VhostUserProtocolFeatures::REPLY_ACK))
        .context("set protocol features")?;
    if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
        session.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    session.set_features(accepted).context("set features")?;

    let config = if config > 0 { read_config(&mut session, config)? } else { Vec::new() };
    let spec = ram.spec();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: spec.guest_addr,
        memory_size: spec.size,
        userspace_addr: spec.user_addr,
        mmap_offset: spec.file_offset,
        mmap_handle: ram.file().as_raw_fd(),
    };
    session.set_mem_table(&[region]).context("set memory table")?;
    let rx = queue(&mut ram, entries[0])?;
    let tx = queue(&mut ram, entries[1])?;
    let base = first_position(accepted);
    start_queue(&session, RX_QUEUE, &rx, base).context("receive queue")?;
    start_queue(&session, TX_QUEUE, &tx, base).context("transmit queue")?;
    up(Link { ram, features: accepted, config, rx, tx })?;
    for index in [RX_QUEUE, TX_QUEUE] {
        session.set_vring_enable(index, true).context("enable queue")?;
    }
    Ok(session)
}

fn read_config(session: &mut Frontend, len: u32) -> Result<Vec<u8>> {
    let zeros = vec![0; len as usize];
    let (_, config) = session
        .get_config(0, len, VhostUserConfigFlags::empty(), &zeros)
        .context("read the device's configuration")?;
    Ok(config)
}

fn queue(ram: &mut Ram, size: u16) -> Result<QueueEnds> {
    let layout = QueueLayout::allocate(ram, size).context("the memory is too small for the rings")?;
    Ok(QueueEnds { layout, kick: Event::new()?, call: Event::new()? })
}

fn start_queue(session: &Frontend, index: usize, queue: &QueueEnds, base: u16) -> Result<()> {
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
    session.set_vring_base(index, base)?;
    session.set_vring_call(index, &queue.call.for_vhost()?)?;
    session.set_vring_kick(index, &queue.kick.for_vhost()?)?;
    Ok(())
}
