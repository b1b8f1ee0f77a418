//! The state that the control thread and the workers share.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use taut_api::fabric::PortId;

use super::WorkerError;
use super::plan::Plan;
use crate::net::queue::QueueIdx;
use crate::port::Failure;
use crate::sys::epoll::Waker;
use crate::wake::mailbox::Mailboxes;

/// A queue that stopped working by itself. The worker has removed its end.
#[derive(Debug)]
pub struct Incident {
    /// The port.
    pub port: PortId,
    /// The queue.
    pub queue: QueueIdx,
    /// The reason.
    pub failure: Failure,
}

/// The shared state.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) mailboxes: Arc<Mailboxes>,
    /// The plan in force.
    pub(super) plan: Mutex<Arc<Plan>>,
    /// Locked while the owner of a source changes.
    pub(super) moving: Mutex<Moving>,
    pub(super) incidents: Mutex<Vec<Incident>>,
    /// Workers that could not bind themselves to their pCPUs.
    pub(super) unbound: Mutex<Vec<WorkerError>>,
    /// Wakes the control thread for incidents.
    pub(super) alarm: Waker,
}

/// The conditions for a change of ownership.
#[derive(Debug)]
pub(super) struct Moving {
    /// Workers below this number own sources.
    pub(super) workers: usize,
    /// Time at which a worker last gave a source away.
    pub(super) last: Option<Instant>,
}
