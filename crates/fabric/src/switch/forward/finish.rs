//! The end of a burst: the receivers' queues are published.

use taut_api::fabric::counters::PortWord;

use super::Forwarder;
use crate::port::RxSlot;
use crate::switch::target::Target;
use crate::wake::timers::{Timers, Wake};

impl Forwarder<'_> {
    /// Ends the burst: publishes the receivers' frames, sets timers for what is due later, and
    /// returns the number of frames.
    ///
    /// The forwarder is not used again. It is not taken by value, because the receivers would wait
    /// for its copy.
    pub fn finish(&mut self, timers: &mut Timers) -> u64 {
        if let Some((target, mut slot)) = self.locked.take() {
            self.publish(target, &mut slot, timers);
            drop(slot);
            // Nearly always this is the only queue.
            self.work.touched.pop_if(|last| *last == target);
        }
        while let Some(target) = self.work.touched.pop() {
            let port = &self.segment.member(target.member).port;
            self.publish(target, &mut port.rx(target.pair), timers);
        }
        if self.frames != 0 {
            let counters = &self.segment.member(self.sender).port.counters;
            counters.add(PortWord::TxFrames, self.frames);
            counters.add(PortWord::TxBytes, self.bytes);
        }
        self.frames
    }

    /// Publishes one receive queue, sets its timers, and wakes those whose turns at an uplink have
    /// begun.
    #[inline]
    fn publish(&self, target: Target, slot: &mut RxSlot, timers: &mut Timers) {
        let port = &self.segment.member(target.member).port;
        if let Some(when) = slot.publish(self.now, &port.counters)
            && slot.deadline.request(when)
        {
            timers.set(when, Wake::Receiver(port.id, target.pair));
        }
        if let Some(paced) = &mut slot.paced
            && let Some(when) = paced.take_due()
            && slot.deadline.request(when)
        {
            timers.set(when, Wake::Receiver(port.id, target.pair));
        }
        if let Some(network_io) = &mut slot.network_io {
            network_io.done(self.port(), self.now);
            if let Some(when) = network_io.wake_senders(self.now, timers)
                && slot.deadline.request(when)
            {
                timers.set(when, Wake::Receiver(port.id, target.pair));
            }
        }
    }
}
