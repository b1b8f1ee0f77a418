//! The record of a vhost-user session, with which the next fabric continues it unnoticed by the
//! front end.

use serde::{Deserialize, Serialize};

use super::config::PortId;

/// Everything negotiated on one vhost-user connection. Its descriptors travel beside it, in the
/// order of [`SessionRecord::descriptors`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Port of the session.
    pub port: PortId,
    /// Features that the driver accepted.
    pub features: u64,
    /// Protocol features that the front end accepted.
    pub protocol_features: u64,
    /// Guest memory, in the front end's order.
    pub memory: Vec<MemoryRecord>,
    /// Queues by index.
    pub queues: Vec<QueueRecord>,
}

/// One region of guest memory (vhost-user `SET_MEM_TABLE`). Addresses and sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRecord {
    /// Guest physical address.
    pub guest_addr: u64,
    /// Address in the front end's process; ring addresses are given in this address space.
    pub user_addr: u64,
    /// Length.
    pub size: u64,
    /// Offset in the descriptor's file.
    pub file_offset: u64,
}

/// One virtqueue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRecord {
    /// Number of entries; 0 until the front end has set it.
    pub size: u16,
    /// Descriptor table in the front end's address space.
    pub desc: u64,
    /// Driver area in the front end's address space.
    pub avail: u64,
    /// Device area in the front end's address space.
    pub used: u64,
    /// Start position from the last `SET_VRING_BASE`. A ring that has run continues from the
    /// position in guest memory (split) or in the counters file (packed) instead.
    pub base: u16,
    /// True if the ring has run since `base` was set.
    pub started: bool,
    /// vhost-user `SET_VRING_ENABLE`.
    pub enabled: bool,
    /// True if a kick descriptor is among the descriptors.
    pub kick: bool,
    /// True if a call descriptor is among the descriptors.
    pub call: bool,
    /// True if an error descriptor is among the descriptors.
    pub err: bool,
}

/// Role of one descriptor of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFd {
    /// The vhost-user connection.
    Connection,
    /// Memory region with this index.
    Memory(usize),
    /// Kick of the queue with this index.
    Kick(usize),
    /// Call of the queue with this index.
    Call(usize),
    /// Error of the queue with this index.
    Err(usize),
}

impl SessionRecord {
    /// Returns the roles of the descriptors that travel with this record, in order.
    pub fn descriptors(&self) -> Vec<SessionFd> {
        let mut roles = vec![SessionFd::Connection];
        roles.extend((0..self.memory.len()).map(SessionFd::Memory));
        for (index, queue) in self.queues.iter().enumerate() {
            let of_queue = [
                (queue.kick, SessionFd::Kick(index)),
                (queue.call, SessionFd::Call(index)),
                (queue.err, SessionFd::Err(index)),
            ];
            roles.extend(of_queue.into_iter().filter(|(there, _)| *there).map(|(_, role)| role));
        }
        roles
    }
}
