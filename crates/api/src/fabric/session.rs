//! A vhost-user session, whole: what the next fabric needs to go on without the front end noticing.

use serde::{Deserialize, Serialize};

use super::config::PortId;

/// Everything negotiated on one vhost-user connection. Its descriptors travel beside it, in the order that
/// [`SessionRecord::descriptors`] tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The port that it belongs to.
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
    /// Address in the front end's own process; ring addresses are given in this space.
    pub user_addr: u64,
    /// Length.
    pub size: u64,
    /// Where in the descriptor's file it starts.
    pub file_offset: u64,
}

/// One virtqueue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRecord {
    /// Entries; 0 until the front end said.
    pub size: u16,
    /// Descriptor table, driver area and device area in the front end's address space.
    pub desc: u64,
    /// See `desc`.
    pub avail: u64,
    /// See `desc`.
    pub used: u64,
    /// Position to start from, as of the last `SET_VRING_BASE`. A ring that has run is continued from the position
    /// in guest memory (split) or from the counters file (packed), not from here.
    pub base: u16,
    /// Has it run since `base` was set?
    pub started: bool,
    /// vhost-user `SET_VRING_ENABLE`.
    pub enabled: bool,
    /// A kick descriptor is among the descriptors.
    pub kick: bool,
    /// A call descriptor is among the descriptors.
    pub call: bool,
    /// An error descriptor is among the descriptors.
    pub err: bool,
}

/// What one descriptor of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFd {
    /// The connection itself.
    Connection,
    /// Memory region of this index.
    Memory(usize),
    /// Kick of the queue of this index.
    Kick(usize),
    /// Call of the queue of this index.
    Call(usize),
    /// Error of the queue of this index.
    Err(usize),
}

impl SessionRecord {
    /// The roles of the descriptors that travel with this record, in order.
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
