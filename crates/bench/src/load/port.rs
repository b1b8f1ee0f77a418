//! One port: a vhost-user session with its two rings and buffers.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use taut_virtq::driver::Ram;
use taut_virtq::driver::burst::{BufferPool, BurstQueue, Frame};
use taut_virtq::features;
use taut_virtq::header;
use vhost::vhost_user::Frontend;

use super::frames::Frames;
use super::{LoadOptions, Setup};
use crate::front_end::socket::{accept, connect, listen};
use crate::front_end::{self, Event, Wanted};

/// Buffers for each ring entry, so that a buffer is not reused at once, as with a real driver.
const BUFFERS_PER_ENTRY: u32 = 2;
/// Bytes of memory for the rings.
const RINGS: u64 = 2 << 20;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

pub(super) struct Port {
    rx: BurstQueue,
    rx_pool: BufferPool,
    tx: BurstQueue,
    tx_pool: BufferPool,
    kicks: [Event; 2],
    features: u64,
    burst: usize,
    /// Entries of a ring.
    entries: usize,
    /// Bytes of every frame, with header.
    len: u32,
    /// Frames received with another length or number of buffers than sent.
    pub(super) wrong: u64,
    /// The session ends when this is dropped.
    _session: Frontend,
}

/// Returns the number of buffers of each ring, unless frames are prepared.
pub(super) fn buffers(setup: &Setup) -> u32 {
    u32::from(setup.entries) * BUFFERS_PER_ENTRY
}

/// Returns the numbers of buffers to receive and to send.
fn pools(setup: &Setup) -> [u32; 2] {
    [buffers(setup), buffers(setup).max(setup.prepared)]
}

impl Port {
    /// Connects both ports. The switch may connect to them in any order.
    pub(super) fn connect_both(options: &LoadOptions, frames: &[Frames; 2]) -> Result<[Self; 2]> {
        let [first, second] = &options.sockets;
        if !options.listen {
            let first = Self::new(connect(first)?, options, &frames[0])?;
            return Ok([first, Self::new(connect(second)?, options, &frames[1])?]);
        }
        let listeners = [listen(first)?, listen(second)?];
        let [first, second] = &listeners;
        let first = Self::new(accept(first)?, options, &frames[0])?;
        Ok([first, Self::new(accept(second)?, options, &frames[1])?])
    }

    fn new(stream: UnixStream, options: &LoadOptions, frames: &Frames) -> Result<Self> {
        let bytes = frames.with_header();
        let room = bytes.len() as u32;
        let setup = &options.setup;
        let pools = pools(setup);
        let memory = RINGS + u64::from(pools.iter().sum::<u32>()) * (u64::from(room).max(2048) + 512);
        let memory = memory.next_multiple_of(HUGE);
        let ram = if options.huge_pages { Ram::huge(memory) } else { Ram::new(memory) };
        let ram = ram.context("no memory; huge pages have to be reserved in /proc/sys/vm/nr_hugepages")?;
        let transport = [(setup.packed, features::RING_PACKED), (setup.in_order, features::IN_ORDER)];
        let transport = transport.iter().filter(|(asked, _)| *asked).map(|(_, feature)| feature).sum::<u64>();
        let mut wanted = features::NET_MRG_RXBUF | transport;
        if frames.are_segmented() {
            wanted |= features::NET_CSUM | features::NET_GUEST_CSUM;
            wanted |= features::NET_HOST_TSO4 | features::NET_GUEST_TSO4;
        }
        let wanted = Wanted { features: wanted, entries: [setup.entries; 2], ram, config: 0 };
        let mut made = None;
        let session = front_end::connect(stream, wanted, |mut link| {
            let mut pool = |buffers| {
                BufferPool::allocate(&mut link.ram, buffers, room).context("the memory is too small")
            };
            let (mut rx_pool, tx_pool) = (pool(pools[0])?, pool(pools[1])?);
            for buffer in 0..tx_pool.count() {
                link.ram.memory().write(tx_pool.frame_addr(buffer) - header::LEN as u64, &bytes)?;
            }
            let mut rx = BurstQueue::new(link.ram.memory(), link.rx.layout, link.features)?;
            rx.fill(&mut rx_pool);
            let tx = BurstQueue::new(link.ram.memory(), link.tx.layout, link.features)?;
            made = Some((rx, rx_pool, tx, tx_pool, [link.rx.kick, link.tx.kick], link.features));
            Ok(())
        })?;
        let (rx, rx_pool, tx, tx_pool, kicks, features) = made.context("nothing was set up")?;
        // A first kick, for a switch that waits for one before it reads the rings.
        kicks.iter().for_each(Event::raise);
        let (burst, entries, len, wrong) = (setup.burst, setup.entries.into(), room, 0);
        Ok(Self { rx, rx_pool, tx, tx_pool, kicks, features, burst, entries, len, wrong, _session: session })
    }

    pub(super) fn packed(&self) -> bool {
        self.features & features::RING_PACKED != 0
    }

    pub(super) fn in_order(&self) -> bool {
        self.features & features::IN_ORDER != 0
    }

    /// Sends up to `count` frames. Returns how many there was room for.
    #[inline]
    pub(super) fn send(&mut self, count: usize, touch: &mut impl FnMut(Frame<'_>)) -> Result<usize> {
        Ok(self.tx.send(&mut self.tx_pool, count, self.len, touch)?)
    }

    /// Tells whether the ring to send on has no room left, as far as is known: what the switch has
    /// given back since the last look at it does not count.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.tx.in_flight() == self.entries
    }

    /// Kicks the switch if it asked for that, for frames to send or for room to receive.
    pub(super) fn kick(&self) {
        for (queue, kick) in [&self.rx, &self.tx].into_iter().zip(&self.kicks) {
            if queue.needs_kick() {
                kick.raise();
            }
        }
    }

    /// Receives up to a burst. Reads the frames' contents only if `look` is true.
    #[inline]
    pub(super) fn receive(&mut self, look: bool, see: &mut impl FnMut(Frame<'_>, u32)) -> Result<usize> {
        let (expected, wrong) = (self.len, &mut self.wrong);
        let count = self.rx.receive(&mut self.rx_pool, self.burst, look, |frame, len| {
            // Frames that the switch originates itself count as wrong, too.
            *wrong += u64::from(len != expected || frame.buffers() != 1);
            see(frame, len);
        })?;
        Ok(count)
    }
}
