//! Turns at uplinks: a sender asks network I/O control before each frame to an uplink that has it.

use std::time::Instant;

use super::wire::on_wire;
use super::{Admitted, Forwarder};
use crate::net::queue::PairIdx;
use crate::switch::index::MemberIdx;
use crate::switch::target::Target;

impl Forwarder<'_> {
    /// Returns when the sender asks again if the frame must not go to an uplink yet; `None` if it
    /// may go now. Nothing of the frame has been delivered yet.
    #[inline]
    pub(super) fn wait_for_turn(&mut self, uplink: MemberIdx, passing: &Admitted<'_>) -> Option<Instant> {
        if self.segment.member(uplink).port.has_network_io() {
            let frame = &passing.frame;
            let bytes = on_wire(frame.first_bytes(), frame.len, &frame.header);
            self.ask_for_turn(Target { member: uplink, pair: PairIdx::FIRST }, bytes)
        } else {
            None
        }
    }

    /// As [`Self::wait_for_turn`], for a frame of these bytes on the wire. Counts the frame as
    /// taken if it may go now.
    #[inline]
    pub(super) fn take_turn(&mut self, target: Target, bytes: u64) -> Option<Instant> {
        if !self.segment.member(target.member).port.has_network_io() {
            return None;
        }
        let until = self.ask_for_turn(target, bytes);
        if until.is_none() {
            self.use_turn(target, bytes);
        }
        until
    }

    fn ask_for_turn(&mut self, uplink: Target, bytes: u64) -> Option<Instant> {
        let (from, pair, now) = (self.port(), self.pair, self.now);
        self.lock_queue(uplink).network_io.as_mut()?.wait(from, pair, bytes, now)
    }

    /// Counts a frame that an uplink has taken, in bytes on the wire.
    pub(super) fn use_turn(&mut self, uplink: Target, bytes: u64) {
        let (from, now) = (self.port(), self.now);
        if let Some(network_io) = &mut self.lock_queue(uplink).network_io {
            network_io.sent(from, bytes, now);
        }
    }

    /// Takes back what [`Self::take_turn`] has counted of frames that wait.
    pub(super) fn give_turn_back(&mut self, uplink: Target, bytes: u64) {
        let from = self.port();
        if let Some(network_io) = &mut self.lock_queue(uplink).network_io {
            network_io.not_sent(from, bytes);
        }
    }
}
