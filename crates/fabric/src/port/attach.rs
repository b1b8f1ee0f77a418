//! Attaching rings and devices to a port's queues, and removing them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::ForeignFd;
use taut_api::fabric::message::{PacketSocket, XdpSocket};

use super::Port;
use super::end::{RxEnd, TxEnd};
use super::notifier::Notifier;
use super::slot::TxSlot;
use super::{packet, stream, tap, vnic, xdp};
use crate::net::queue::{Direction, PairIdx, QueueIdx};
use crate::net::software_offload::Offloads;
use crate::sys::epoll::{EventFlags, Watched, set_nonblocking};
use crate::sys::lock::lock;
use crate::vhost_user::device::{Ring, StartError};
use crate::wake::mailbox::Mailboxes;
use crate::wake::token;

/// Edge-triggered: an event is reported once, even if the worker leaves the cause in place.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::ET);

impl Port {
    /// Starts a guest's ring.
    pub fn start_ring(&self, queue: QueueIdx, ring: Ring, mailboxes: &Mailboxes) -> Result<(), StartError> {
        let (pair, token) = (queue.pair(), token::of_queue(self.id, queue));
        let kick = Arc::clone(&ring.kick);
        let coalescing = *lock(&self.coalescing);
        match queue.direction() {
            Direction::Receive => {
                let end = RxEnd::Vnic(vnic::Rx::new(ring, coalescing)?);
                let mut slot = self.rx(pair);
                // Remove the old watch first: it may be on the same descriptor.
                slot.clear(&self.counters);
                slot.watch = Some(mailboxes.events(self.owner(pair)).watch(kick, token, READABLE)?);
                slot.end = Some(end);
                self.set_receiving(pair, true);
            }
            Direction::Transmit => {
                let end = TxEnd::Vnic(vnic::Tx::new(ring, coalescing)?);
                let mut slot = self.tx(pair);
                *slot = TxSlot::default();
                slot.watches.push(mailboxes.events(self.owner(pair)).watch(kick, token, READABLE)?);
                slot.end = Some(end);
            }
        }
        Ok(())
    }

    /// Stops a queue after publishing everything that was delivered, and returns a ring's position.
    pub fn stop_ring(&self, queue: QueueIdx) -> Option<u16> {
        match queue.direction() {
            Direction::Receive => {
                let mut slot = self.rx(queue.pair());
                self.set_receiving(queue.pair(), false);
                match slot.clear(&self.counters) {
                    Some(RxEnd::Vnic(end)) => Some(end.position()),
                    _ => None,
                }
            }
            Direction::Transmit => match std::mem::take(&mut *self.tx(queue.pair())).end {
                Some(TxEnd::Vnic(mut end)) => {
                    end.notifier().release(Instant::now(), &self.counters);
                    Some(end.position())
                }
                _ => None,
            },
        }
    }

    /// Calls `action` with the notifier of a guest's ring; does nothing if no ring runs there.
    pub(super) fn with_notifier(&self, queue: QueueIdx, action: impl FnOnce(&mut Notifier)) {
        match queue.direction() {
            Direction::Receive => {
                if let Some(RxEnd::Vnic(end)) = &mut self.rx(queue.pair()).end {
                    action(end.notifier());
                }
            }
            Direction::Transmit => {
                if let Some(TxEnd::Vnic(end)) = &mut self.tx(queue.pair()).end {
                    action(end.notifier());
                }
            }
        }
    }

    /// Attaches a TAP device. `offloads` says what the device was configured to accept.
    pub fn attach_tap(
        &self,
        device: Arc<ForeignFd>,
        offloads: Offloads,
        mailboxes: &Mailboxes,
    ) -> io::Result<()> {
        set_nonblocking(&*device)?;
        let rx = RxEnd::Tap(tap::Rx::new(Arc::clone(&device), offloads));
        let tx = TxEnd::Tap(tap::Tx::new(Arc::clone(&device)));
        self.attach(vec![device], READABLE, (rx, None), tx, mailboxes)
    }

    /// Attaches the stream of an emulated card.
    pub fn attach_stream(&self, fd: ForeignFd, mailboxes: &Mailboxes) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let socket = Arc::new(fd);
        let rx = RxEnd::Stream(stream::Rx::new(Arc::clone(&socket)));
        let tx = TxEnd::Stream(stream::Tx::new(Arc::clone(&socket)));
        self.attach(vec![socket], READABLE | EventFlags::OUT, (rx, None), tx, mailboxes)
    }

    /// Attaches a packet socket that is bound to a card of the host.
    pub fn attach_packet(
        &self,
        socket: Arc<ForeignFd>,
        setup: PacketSocket,
        mailboxes: &Mailboxes,
    ) -> io::Result<()> {
        set_nonblocking(&*socket)?;
        let rx = RxEnd::Packet(packet::Rx::new(Arc::clone(&socket), setup));
        let tx = TxEnd::Packet(packet::Tx::new(&socket, setup, self.counters.clone())?);
        // An epoll set has one watch for each descriptor.
        let room = socket.as_fd().try_clone_to_owned()?;
        let token = token::of_queue(self.id, QueueIdx::receive(PairIdx::FIRST));
        let events = mailboxes.events(self.owner(PairIdx::FIRST));
        let room = events.prepare(room, token, EventFlags::OUT | EventFlags::ET);
        self.attach(vec![socket], READABLE, (rx, Some(room)), tx, mailboxes)
    }

    /// Attaches the XDP sockets of a card of the host: those of its queues, in their order. The
    /// first one sends.
    pub fn attach_xdp(
        &self,
        queues: &[xdp::Queue],
        setup: &XdpSocket,
        mailboxes: &Mailboxes,
    ) -> io::Result<()> {
        queues.iter().try_for_each(|queue| set_nonblocking(&*queue.socket))?;
        let (rx, tx) = xdp::map(self.id, queues, setup)?;
        let sockets = queues.iter().map(|queue| Arc::clone(&queue.socket)).collect();
        self.attach(sockets, READABLE, (RxEnd::Xdp(rx), None), TxEnd::Xdp(tx), mailboxes)
    }

    /// Attaches both ends of devices that are watched for these events, and what tells of room at
    /// the receiving one. Nothing is attached if one of them cannot be watched.
    fn attach(
        &self,
        devices: Vec<Arc<ForeignFd>>,
        flags: EventFlags,
        (rx, room): (RxEnd, Option<Watched<OwnedFd>>),
        tx: TxEnd,
        mailboxes: &Mailboxes,
    ) -> io::Result<()> {
        let pair = PairIdx::FIRST;
        let token = token::of_queue(self.id, QueueIdx::transmit(pair));
        // Remove the old watches first: they may be on the same descriptors.
        *self.tx(pair) = TxSlot::default();
        let events = mailboxes.events(self.owner(pair));
        let watches = devices.into_iter().map(|device| events.watch(device, token, flags));
        let watches = watches.collect::<io::Result<Vec<_>>>()?;
        {
            let mut slot = self.rx(pair);
            slot.clear(&self.counters);
            (slot.end, slot.room) = (Some(rx), room);
            self.set_receiving(pair, true);
        }
        let mut slot = self.tx(pair);
        (slot.watches, slot.end) = (watches, Some(tx));
        Ok(())
    }
}
