//! Reports of the engine to the control thread.

use taut_api::fabric::PortId;

use crate::net::queue::QueueIdx;
use crate::port::Failure;

/// Something that `tautd` has to know, or to do.
#[derive(Debug)]
pub enum VsockEvent {
    /// A guest connects to the host: only `tautd` can open the program's socket.
    HostConnect {
        /// The guest's device.
        port: PortId,
        /// Number of the question, for the answer.
        request: u32,
        /// Port of the host that the guest connects to.
        to: u32,
    },
    /// A guest did what only an attacker or a broken driver does.
    Violation {
        /// The guest's device.
        port: PortId,
        /// Description of what the guest did.
        what: String,
    },
    /// A guest has taken nothing from its device for a second, though something of its peers waits
    /// for it.
    TakesNothing {
        /// The guest's device.
        port: PortId,
    },
    /// A socket on the host takes no connections, because too many descriptors that came over it
    /// wait for their close.
    HostSocketFull {
        /// The guest's device.
        port: PortId,
        /// Port of the program that listens for the guest at this socket; `None` for the socket at
        /// which clients connect to the guest.
        of: Option<u32>,
    },
    /// A ring stopped working.
    Broken {
        /// The device.
        port: PortId,
        /// The queue.
        queue: QueueIdx,
        /// Reason.
        failure: Failure,
    },
}
