//! The driver ends of the two queues, and their notifications.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use taut_bench::front_end::{Event, Link};
use taut_virtq::SocketHeader;
use taut_virtq::driver::{Shape, SocketRxDriver, SocketTxDriver, UsedFault};

use super::wire::{self, Wire};

/// Bytes and packets after which the other side is shown what has gathered.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_PACKETS: usize = 32;

/// A VMCI device's queues, once it has a link.
#[derive(Debug, Default)]
pub(super) struct Card(Option<Queues>);

#[derive(Debug)]
struct Queues {
    rx: SocketRxDriver,
    tx: SocketTxDriver,
    rx_kick: Event,
    tx_kick: Event,
    rx_call: Event,
    tx_call: Event,
    /// Since the other side was last shown something.
    gathered_bytes: usize,
    gathered_packets: usize,
    /// Somebody wanted to send and there was no room.
    full: bool,
    fault: Option<UsedFault>,
}

impl Card {
    /// Sets the driver ends up: packets are sent with `most` bytes of payload at most, and received in buffers of `buffer` bytes.
    pub(super) fn connect(&mut self, link: Link, most: u32, buffer: u32) -> Result<()> {
        let Link { mut ram, features, rx, tx, .. } = link;
        let little = "the memory is too small for the buffers";
        let room = buffer - taut_virtq::socket_header::LEN as u32;
        let rx_driver =
            SocketRxDriver::new(&mut ram, rx.layout, features, Shape::Whole, room)?.context(little)?;
        let tx_driver =
            SocketTxDriver::new(&mut ram, tx.layout, features, Shape::Apart, most)?.context(little)?;
        let mut queues = Queues {
            rx: rx_driver,
            tx: tx_driver,
            rx_kick: rx.kick,
            tx_kick: tx.kick,
            rx_call: rx.call,
            tx_call: tx.call,
            gathered_bytes: 0,
            gathered_packets: 0,
            full: false,
            fault: None,
        };
        queues.flush();
        self.0 = Some(queues);
        Ok(())
    }

    /// The queues have gone.
    pub(super) fn disconnect(&mut self) {
        self.0 = None;
    }

    /// Could a packet be sent now? If not, an interrupt tells when.
    pub(super) fn has_room(&mut self) -> bool {
        self.0.as_mut().is_some_and(Queues::has_room)
    }

    /// Shows the other side everything sent and taken so far, and kicks it if it asked for that. False, and the link is cut, if it
    /// broke the rules.
    pub(super) fn flush(&mut self) -> bool {
        let Some(queues) = &mut self.0 else { return true };
        queues.flush();
        let Some(fault) = queues.fault else { return true };
        eprintln!("taut-micro: the back end broke the rules: {fault}");
        self.0 = None;
        false
    }

    /// Asks for interrupts. True if something arrived in the meantime.
    pub(super) fn arm(&mut self) -> bool {
        let Some(queues) = &mut self.0 else { return false };
        let received = queues.rx.ring().arm_interrupts();
        // Packets sent matter only to somebody who waits for room.
        let sent = queues.full && queues.tx.ring().arm_interrupts();
        queues.full = false;
        received || sent
    }

    /// Asks for no interrupts.
    pub(super) fn disarm(&mut self) {
        let Some(queues) = &mut self.0 else { return };
        queues.rx.ring().suspend_interrupts();
        queues.tx.ring().suspend_interrupts();
    }

    /// What becomes readable when an interrupt comes.
    pub(super) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(|queues| [queues.rx_call.as_fd(), queues.tx_call.as_fd()])
    }
}

impl Queues {
    fn flush(&mut self) {
        (self.gathered_bytes, self.gathered_packets) = (0, 0);
        for (ring, kick) in [(self.rx.ring(), &self.rx_kick), (self.tx.ring(), &self.tx_kick)] {
            ring.publish();
            if ring.needs_kick() {
                kick.raise();
            }
        }
    }

    fn gather(&mut self, bytes: u32) {
        self.gathered_bytes += bytes as usize;
        self.gathered_packets += 1;
        if self.gathered_bytes >= BATCH_BYTES || self.gathered_packets >= BATCH_PACKETS {
            self.flush();
        }
    }

    /// Every packet takes as many descriptors as the longest, or fewer.
    fn has_room(&mut self) -> bool {
        if self.tx.has_room(1) {
            return true;
        }
        if let Err(fault) = self.tx.reclaim() {
            self.fault = Some(fault);
        }
        let room = self.tx.has_room(1);
        self.full |= !room;
        room
    }
}

impl Wire for Card {
    fn send(&mut self, header: &SocketHeader, payload: &[u8]) -> bool {
        let Some(queues) = &mut self.0 else { return false };
        let sent = queues.has_room() && queues.tx.send(*header, &[payload]);
        if sent {
            queues.gather(header.len);
        }
        sent
    }

    fn send_anything(&mut self, header: &SocketHeader) -> bool {
        let Some(queues) = &mut self.0 else { return false };
        let sent = queues.has_room() && queues.tx.send_as_it_is(*header, header.len);
        if sent {
            queues.gather(header.len);
        }
        sent
    }

    fn receive(&mut self, take: &mut dyn FnMut(&SocketHeader, &mut wire::Payload<'_>)) -> bool {
        let Some(queues) = &mut self.0 else { return false };
        let received = queues.rx.receive(|header, payload| {
            take(&header, &mut |piece| _ = payload.read(piece));
            header.len
        });
        match received {
            Ok(Some(len)) => queues.gather(len),
            Ok(None) => return false,
            Err(fault) => {
                queues.fault = Some(fault);
                return false;
            }
        }
        true
    }
}
