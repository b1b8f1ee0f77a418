//! The device: packets between the stack and the driver ends of the two queues.

use std::os::fd::BorrowedFd;

use anyhow::Result;
use taut_bench::front_end;
use taut_virtq::SocketHeader;
use taut_virtq::driver::{Shape, SocketRxDriver, SocketTxDriver};

use super::wire::{self, Wire};
use crate::queues::{Queues, no_room};

/// Bytes and packets after which both queues are published.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_PACKETS: usize = 32;
/// Packets after which the transmit buffers that the device is done with are taken back, even if
/// there is room. To take back a whole ring at once takes 1 µs, by which one packet would be late.
const RECLAIM_PACKETS: usize = 2;

/// The queues of a vsock device, once it has a link.
#[derive(Debug, Default)]
pub(super) struct Card(Option<Link>);

#[derive(Debug)]
struct Link {
    queues: Queues<SocketRxDriver, SocketTxDriver>,
    /// Bytes and packets since the last [`Link::flush`].
    gathered_bytes: usize,
    gathered_packets: usize,
    /// Packets sent since transmit buffers were last taken back.
    sent_since_reclaim: usize,
    /// A sender found no room since the last [`Card::arm`].
    full: bool,
}

impl Card {
    /// Connects a new link. Packets are sent with `most` bytes of payload at most, and received in
    /// buffers of `buffer` bytes.
    pub(super) fn connect(&mut self, link: front_end::Link, most: u32, buffer: u32) -> Result<()> {
        let front_end::Link { mut ram, features, rx, tx, .. } = link;
        let room = buffer - taut_virtq::socket_header::LEN as u32;
        let rx_driver = SocketRxDriver::new(&mut ram, rx.layout, features, Shape::Whole, room)?
            .ok_or_else(|| no_room("receive", rx.layout.size, room))?;
        let tx_driver = SocketTxDriver::new(&mut ram, tx.layout, features, Shape::Apart, most)?
            .ok_or_else(|| no_room("transmit", tx.layout.size, most))?;
        let queues = Queues::new((rx_driver, tx_driver), rx, tx);
        let mut link =
            Link { queues, gathered_bytes: 0, gathered_packets: 0, sent_since_reclaim: 0, full: false };
        link.flush();
        self.0 = Some(link);
        Ok(())
    }

    /// Drops the link.
    pub(super) fn disconnect(&mut self) {
        self.0 = None;
    }

    /// Returns whether a packet could be sent now. If not, an interrupt tells when.
    pub(super) fn has_room(&mut self) -> bool {
        self.0.as_mut().is_some_and(Link::has_room)
    }

    /// Publishes everything sent and taken so far, and kicks the back end if it asked for that.
    /// Drops the link and returns false if the back end broke the rules.
    pub(super) fn flush(&mut self) -> bool {
        let Some(link) = &mut self.0 else { return true };
        link.flush();
        let sound = link.queues.are_sound();
        if !sound {
            self.0 = None;
        }
        sound
    }

    /// Asks for interrupts. Returns true if something arrived meanwhile.
    pub(super) fn arm(&mut self) -> bool {
        let Some(link) = &mut self.0 else { return false };
        let full = std::mem::take(&mut link.full);
        link.queues.arm(full)
    }

    /// Asks for no interrupts.
    pub(super) fn disarm(&mut self) {
        if let Some(link) = &mut self.0 {
            link.queues.disarm();
        }
    }

    /// Returns the descriptors that become readable with an interrupt.
    pub(super) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(|link| link.queues.interrupts())
    }
}

impl Link {
    fn flush(&mut self) {
        (self.gathered_bytes, self.gathered_packets) = (0, 0);
        self.queues.publish();
    }

    fn gather(&mut self, bytes: u32) {
        self.gathered_bytes += bytes as usize;
        self.gathered_packets += 1;
        if self.gathered_bytes >= BATCH_BYTES || self.gathered_packets >= BATCH_PACKETS {
            self.flush();
        }
    }

    /// Returns whether there is room for a packet. All packets count like the longest one.
    fn has_room(&mut self) -> bool {
        let tx = &mut self.queues.tx;
        if self.sent_since_reclaim < RECLAIM_PACKETS && tx.has_room(1) {
            return true;
        }
        self.sent_since_reclaim = 0;
        if let Err(fault) = tx.reclaim() {
            self.queues.fault = Some(fault);
        }
        let room = self.queues.tx.has_room(1);
        self.full |= !room;
        room
    }
}

impl Wire for Card {
    fn send(&mut self, header: &SocketHeader, payload: &[u8]) -> bool {
        let Some(link) = &mut self.0 else { return false };
        let sent = link.has_room() && link.queues.tx.send(*header, &[payload]);
        if sent {
            link.sent_since_reclaim += 1;
            link.gather(header.len);
        }
        sent
    }

    fn send_anything(&mut self, header: &SocketHeader) -> bool {
        let Some(link) = &mut self.0 else { return false };
        let sent = link.has_room() && link.queues.tx.send_as_it_is(*header, header.len);
        if sent {
            link.sent_since_reclaim += 1;
            link.gather(header.len);
        }
        sent
    }

    fn receive(&mut self, take: &mut dyn FnMut(&SocketHeader, &mut wire::Payload<'_>)) -> bool {
        let Some(link) = &mut self.0 else { return false };
        let received = link.queues.rx.receive(|header, payload| {
            take(&header, &mut |piece| _ = payload.read(piece));
            header.len
        });
        match received {
            Ok(Some(len)) => link.gather(len),
            Ok(None) => return false,
            Err(fault) => {
                link.queues.fault = Some(fault);
                return false;
            }
        }
        true
    }
}
