//! A card of the host as a port has it: a socket with all that belongs to it.

use std::iter;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use taut_api::fabric::ForeignFd;
use taut_api::fabric::message::Attachment;

use crate::control::attach::AttachError;
use crate::port::vnic_device::VnicDevice;
use crate::port::xdp::Queue;
use crate::sys::carrier::Carrier;

/// A card of the host.
#[derive(Debug)]
pub(super) struct Card {
    /// The attachment, as `tautd` sent it.
    pub(super) via: Attachment,
    socket: Arc<ForeignFd>,
    /// Tells whether the card has a carrier.
    pub(super) carrier: Arc<Carrier>,
    /// Descriptors that belong to the socket: memory that the next process needs, what works as
    /// long as it is open, and sockets of other queues with their memory.
    others: Vec<Arc<ForeignFd>>,
}

impl Card {
    /// Attaches a card to a port.
    pub(super) fn plug(
        device: &VnicDevice,
        via: Attachment,
        mut fds: Vec<ForeignFd>,
    ) -> Result<Self, AttachError> {
        fds.iter_mut().for_each(ForeignFd::admit);
        let (got, wanted) = (fds.len(), via.descriptors());
        let mut fds = fds.into_iter();
        let (true, Some(socket), Some(carrier)) = (got == wanted, fds.next(), fds.next()) else {
            return Err(AttachError::Descriptors { got, wanted });
        };
        let others: Vec<_> = fds.map(Arc::new).collect();
        let (socket, carrier) = (Arc::new(socket), Carrier::watch(carrier)?);
        match (&via, others.as_slice()) {
            (Attachment::Xdp(setup), [memory, _link, _promiscuous, others @ ..]) => {
                let queue = |socket, memory| Queue { socket: Arc::clone(socket), memory: Arc::clone(memory) };
                let others = others.as_chunks().0.iter().map(|[socket, memory]| queue(socket, memory));
                let queues: Vec<_> = iter::once(queue(&socket, memory)).chain(others).collect();
                device.port.attach_xdp(&queues, setup, &device.mailboxes)?;
            }
            (Attachment::Packet(setup), _) => {
                device.port.attach_packet(Arc::clone(&socket), *setup, &device.mailboxes)?;
            }
            _ => return Err(AttachError::Descriptors { got, wanted }),
        }
        Ok(Self { via, socket, carrier, others })
    }

    /// The descriptors, as `tautd` sent them.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let first = [self.socket.as_fd(), self.carrier.as_fd()].into_iter();
        first.chain(self.others.iter().map(|other| other.as_fd())).collect()
    }
}
