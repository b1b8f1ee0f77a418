//! The driver ends of a device's receive and transmit queue, with their notifications.

use std::os::fd::{AsFd as _, BorrowedFd};

use taut_bench::front_end::{Event, QueueEnds};
use taut_virtq::driver::{Ring, RxDriver, SocketRxDriver, SocketTxDriver, TxDriver, UsedFault};

use crate::say::say;

/// Returns the error for a link whose memory has no room for the buffers of a queue: `entries`
/// buffers, each with room for `bytes`.
pub(crate) fn no_room(kind: &str, entries: u16, bytes: u32) -> anyhow::Error {
    anyhow::anyhow!(
        "the memory has no room for {entries} {kind} buffers of at least {bytes} bytes; the device \
         stays down\nhint: give the microguest more memory (`memory` in its file)"
    )
}

/// The driver end of one queue, whatever the queue carries.
pub(crate) trait Driver {
    /// Returns the queue's ring.
    fn ring(&mut self) -> &mut Ring;
}

impl Driver for RxDriver {
    fn ring(&mut self) -> &mut Ring {
        self.ring()
    }
}

impl Driver for TxDriver {
    fn ring(&mut self) -> &mut Ring {
        self.ring()
    }
}

impl Driver for SocketRxDriver {
    fn ring(&mut self) -> &mut Ring {
        self.ring()
    }
}

impl Driver for SocketTxDriver {
    fn ring(&mut self) -> &mut Ring {
        self.ring()
    }
}

/// Both queues of a device.
#[derive(Debug)]
pub(crate) struct Queues<R, T> {
    pub(crate) rx: R,
    pub(crate) tx: T,
    kicks: [Event; 2],
    calls: [Event; 2],
    /// The first rule that the back end broke. The device is disconnected after it.
    pub(crate) fault: Option<UsedFault>,
}

impl<R: Driver, T: Driver> Queues<R, T> {
    /// Combines drivers with the notifications of their queues.
    pub(crate) fn new(drivers: (R, T), rx: QueueEnds, tx: QueueEnds) -> Self {
        let (rx_driver, tx_driver) = drivers;
        let (kicks, calls) = ([rx.kick, tx.kick], [rx.call, tx.call]);
        Self { rx: rx_driver, tx: tx_driver, kicks, calls, fault: None }
    }

    /// Publishes all buffers added so far, and kicks the back end if it asked for that.
    pub(crate) fn publish(&mut self) {
        for (ring, kick) in [self.rx.ring(), self.tx.ring()].into_iter().zip(&self.kicks) {
            ring.publish();
            if ring.needs_kick() {
                kick.raise();
            }
        }
    }

    /// Asks for interrupts of the receive queue, and of the transmit queue if the sender waits for
    /// room. Returns true if something arrived meanwhile.
    pub(crate) fn arm(&mut self, wait_for_room: bool) -> bool {
        let received = self.rx.ring().arm_interrupts();
        let sent = wait_for_room && self.tx.ring().arm_interrupts();
        received || sent
    }

    /// Asks for no interrupts.
    pub(crate) fn disarm(&mut self) {
        self.rx.ring().suspend_interrupts();
        self.tx.ring().suspend_interrupts();
    }

    /// Returns the descriptors that become readable with an interrupt.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.calls.iter().map(|call| call.as_fd())
    }

    /// Reports the fault of the back end, if there was one. Returns false then.
    pub(crate) fn are_sound(&self) -> bool {
        if let Some(fault) = &self.fault {
            say(format_args!("the back end broke the rules: {fault}"));
        }
        self.fault.is_none()
    }
}
