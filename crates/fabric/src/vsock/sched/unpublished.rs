//! Rings with changes that their guests have not been shown.

use crate::vsock::guest::{Receiver, Sender};
use crate::vsock::proto::GuestIdx;

/// The rings to publish at the end of a round.
#[derive(Debug, Default)]
pub(crate) struct Unpublished {
    senders: Vec<GuestIdx>,
    receivers: Vec<GuestIdx>,
    /// Payload bytes delivered that the guests have not been shown.
    pub(crate) bytes: u32,
    /// The guest that was last shown a delivered packet.
    pub(crate) last_shown: GuestIdx,
}

impl Unpublished {
    /// Adds the transmit ring of a guest that packets were given back to.
    #[inline]
    pub(crate) fn add_sender(&mut self, guest: GuestIdx, sender: &mut Sender) {
        if !std::mem::replace(&mut sender.unpublished, true) {
            self.senders.push(guest);
        }
    }

    /// Adds the receive ring of a guest that a packet was delivered to.
    #[inline]
    pub(crate) fn add_receiver(&mut self, guest: GuestIdx, receiver: &mut Receiver) {
        if !std::mem::replace(&mut receiver.unpublished, true) {
            self.receivers.push(guest);
        }
    }

    /// Takes a guest that packets were delivered to.
    #[inline]
    pub(crate) fn next_receiver(&mut self) -> Option<GuestIdx> {
        self.receivers.pop()
    }

    /// Takes a guest that packets were given back to.
    #[inline]
    pub(crate) fn next_sender(&mut self) -> Option<GuestIdx> {
        self.senders.pop()
    }

    /// Forgets the rings of a removed guest.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.senders.retain(|&other| other != guest);
        self.receivers.retain(|&other| other != guest);
    }
}

#[cfg(any(test, feature = "rig"))]
impl Unpublished {
    /// Tells whether a guest's rings are to be published: receive, transmit.
    pub(crate) fn has(&self, guest: GuestIdx) -> [bool; 2] {
        [&self.receivers, &self.senders].map(|list| list.contains(&guest))
    }
}
