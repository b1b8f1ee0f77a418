//! The device under smoltcp: frames between its stack and the driver ends of two queues.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;
use taut_bench::front_end::Link;
use taut_virtq::driver::{RxDriver, TxDriver};
use taut_virtq::features;
use taut_virtq::header::{self, NetHeader};

use super::checksum;
use super::keep_alive::KeepAlives;
use crate::queues::{Queues, no_room};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of the longest frame with segmentation offload, by the limit of IP.
const MAX_TSO: usize = 65_535;
/// Bytes of a receive buffer: one frame each, or large ones of which a frame takes as many as it
/// needs.
const RX_BUFFER: usize = 2048;
const MERGEABLE_RX_BUFFER: u32 = 16_384;
const TX_BUFFER: u32 = 4096;
/// Frames after which both queues are published.
const BATCH: usize = 32;

/// A vNIC. Without a link it sends and receives nothing, like a card without a cable.
#[derive(Debug)]
pub(crate) struct Device {
    /// Bytes of the longest frame that is not to be segmented.
    longest: usize,
    link: Option<Card>,
    received: Vec<u8>,
    offloads: Offloads,
}

/// Negotiated offloads.
#[derive(Debug, Clone, Copy, Default)]
struct Offloads {
    checksum: bool,
    tso: Option<NonZeroUsize>,
}

/// Queues with a link.
#[derive(Debug)]
struct Card {
    queues: Queues<RxDriver, TxDriver>,
    /// Bytes of the longest frame that the stack sends.
    most: usize,
    /// Buffer in which the stack writes a frame.
    sent: Vec<u8>,
    keep_alives: KeepAlives,
    /// Frames since the last [`Card::flush`].
    gathered: usize,
    /// Frames that found no room in the ring, oldest first: at most one of each socket.
    left: VecDeque<(NetHeader, Vec<u8>)>,
}

impl Device {
    /// Creates a vNIC without a link. `mtu` is the length of the longest packet in bytes.
    pub(crate) fn new(mtu: u16) -> Self {
        let longest = ETHERNET + usize::from(mtu);
        Self { longest, link: None, received: Vec::new(), offloads: Offloads::default() }
    }

    /// Connects a new link: sets up the driver ends and posts receive buffers.
    pub(crate) fn connect(&mut self, link: Link) -> Result<()> {
        let Link { mut ram, features, rx, tx, .. } = link;
        let negotiated = |mask: u64| features & mask == mask;
        let frame = (header::LEN + self.longest).max(RX_BUFFER) as u32;
        let rx_buffer = if negotiated(features::NET_MRG_RXBUF) { MERGEABLE_RX_BUFFER } else { frame };
        let rx_driver = RxDriver::new(&mut ram, rx.layout, features, rx_buffer)?
            .ok_or_else(|| no_room("receive", rx.layout.size, rx_buffer))?;
        let tx_driver = TxDriver::new(&mut ram, tx.layout, features, TX_BUFFER)?
            .ok_or_else(|| no_room("transmit", tx.layout.size, TX_BUFFER))?;
        let half_the_ring = usize::from(tx.layout.size) / 2 * TX_BUFFER as usize - header::LEN;
        let tso =
            NonZeroUsize::new(half_the_ring.min(MAX_TSO)).filter(|_| negotiated(features::NET_HOST_TSO4));
        let checksum = negotiated(features::NET_CSUM | features::NET_GUEST_CSUM);
        self.offloads = Offloads { checksum, tso: tso.filter(|_| checksum) };
        let mut card = Card {
            queues: Queues::new((rx_driver, tx_driver), rx, tx),
            most: self.offloads.tso.map_or(self.longest, NonZeroUsize::get),
            sent: Vec::new(),
            keep_alives: KeepAlives::default(),
            gathered: 0,
            left: VecDeque::new(),
        };
        card.flush();
        self.link = Some(card);
        Ok(())
    }

    /// Drops the link.
    pub(crate) fn disconnect(&mut self) {
        self.link = None;
    }

    /// Returns whether there is a link.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Returns whether a frame could be sent now. If not, an interrupt or a new link tells when.
    pub(crate) fn can_send(&mut self) -> bool {
        self.link.as_mut().is_some_and(|card| card.has_room() && card.left.is_empty())
    }

    /// Sends frames that had found no room, as far as there is room now.
    pub(crate) fn send_left(&mut self) {
        if let Some(card) = &mut self.link {
            card.send_left();
        }
    }

    /// Publishes everything sent and taken so far, and kicks the back end if it asked for that.
    /// Disconnects a back end that broke the rules.
    pub(crate) fn flush(&mut self) {
        let Some(card) = &mut self.link else { return };
        card.flush();
        if !card.queues.are_sound() {
            self.link = None;
        }
    }

    /// Asks for interrupts. Returns true if something arrived meanwhile.
    pub(crate) fn arm(&mut self) -> bool {
        let Some(card) = &mut self.link else { return false };
        let full = !card.has_room();
        let may_go_on = !full && !card.left.is_empty();
        card.queues.arm(full) || may_go_on
    }

    /// Asks for no interrupts.
    pub(crate) fn disarm(&mut self) {
        if let Some(card) = &mut self.link {
            card.queues.disarm();
        }
    }

    /// Returns the descriptors that become readable with an interrupt.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.link.iter().flat_map(|card| card.queues.interrupts())
    }
}

impl Card {
    fn flush(&mut self) {
        self.gathered = 0;
        self.queues.publish();
    }

    fn gather(&mut self) {
        self.gathered += 1;
        if self.gathered >= BATCH {
            self.flush();
        }
    }

    /// Sends frames that had found no room, as far as there is room now.
    fn send_left(&mut self) {
        while !self.left.is_empty() && self.has_room() {
            if let Some((header, frame)) = self.left.pop_front()
                && self.queues.tx.send(&header, &frame)
            {
                self.gather();
            }
        }
    }

    /// Returns whether the ring has room for a frame of any length.
    fn has_room(&mut self) -> bool {
        if !self.queues.tx.has_room(self.most)
            && let Err(fault) = self.queues.tx.reclaim()
        {
            self.queues.fault = Some(fault);
        }
        self.queues.tx.has_room(self.most)
    }
}

impl phy::Device for Device {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let card = self.link.as_mut()?;
        if !card.keep_alives.again(&mut self.received) {
            match card.queues.rx.receive(&mut self.received) {
                Ok(Some(_)) => card.gather(),
                Ok(None) => return None,
                Err(fault) => {
                    card.queues.fault = Some(fault);
                    return None;
                }
            }
            card.keep_alives.receive(&mut self.received);
        }
        let reply =
            TxToken { card, meta: PacketMeta::default(), checksum: self.offloads.checksum, waits: false };
        Some((RxToken(&self.received), reply))
    }

    /// Always has room if there is a link. smoltcp forgets that it has to repeat a segment if there
    /// is none just then, and the connection stands still for ever.
    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        let card = self.link.as_mut()?;
        // Take back what the back end is done with.
        card.has_room();
        Some(TxToken { card, meta: PacketMeta::default(), checksum: self.offloads.checksum, waits: true })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.longest;
        if self.offloads.checksum {
            capabilities.checksum.tcp = Checksum::None;
            capabilities.checksum.udp = Checksum::None;
        }
        capabilities.segmentation.tcpv4 = self.offloads.tso;
        capabilities
    }
}

/// A received frame.
pub(crate) struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// Room for one frame to send.
pub(crate) struct TxToken<'a> {
    card: &'a mut Card,
    meta: PacketMeta,
    checksum: bool,
    /// The frame waits if the ring is full. A reply does not: nothing bounds their number. It is
    /// lost, as on any full card, and its protocol repeats it.
    waits: bool,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let Self { card, meta, checksum, waits } = self;
        card.sent.clear();
        card.sent.resize(len, 0);
        let result = write(&mut card.sent);
        card.keep_alives.send(&mut card.sent);
        let segment = meta.segmentation_offload_size;
        let header =
            if checksum { checksum::leave_to_device(&mut card.sent, segment) } else { NetHeader::default() };
        if card.left.is_empty() && card.queues.tx.send(&header, &card.sent) {
            card.gather();
        } else if waits {
            card.left.push_back((header, card.sent.clone()));
        }
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.meta = meta;
    }
}
