//! One vhost-user session: what a front end has said so far, and the rings that follow from it.
//!
//! Everything that matters is in a [`SessionRecord`] and its descriptors, so that another process
//! can resume the session. Every request ([`requests`]) changes the record first. Then rings that
//! can run are started, and rings that no longer can are stopped ([`rings`]). A ring that has run
//! before continues from the position in guest memory, whichever process ran it.

mod admission;
mod requests;
#[cfg(feature = "rig")]
pub mod rig;
mod rings;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use taut_api::fabric::config::FrontEndRules;
use taut_api::fabric::session::{QueueRecord, SessionFd, SessionRecord};
use taut_api::fabric::{ForeignFd, keep_urgent};
use taut_virtq::memory::GuestMemory;
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};

use super::connection::Connection;
use super::device::Device;
use super::error::{BrokenRing, SessionError};
use super::message::{Header, Request};
use crate::net::queue::QueueIdx;
use crate::sys::event_fd::EventFd;
use admission::admit_event;

/// Device status bits (virtio 1.2, 2.1) of a driver that has finished its setup.
const STATUS_RUNNING: u8 = 0x0f;

/// A front end's session on a device.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    device: Arc<dyn Device>,
    /// The rules for the front end.
    rules: FrontEndRules,
    record: SessionRecord,
    memory_fds: Vec<ForeignFd>,
    memory: Option<Arc<GuestMemory>>,
    queues: Vec<QueueFds>,
    /// Device status. A session that is resumed with running rings gets [`STATUS_RUNNING`].
    status: u8,
    fault: Option<BrokenRing>,
    /// A descriptor that was replaced has blocked a thread.
    blocked: bool,
    /// The record or a descriptor has changed since the last [`Self::mark_recorded`].
    changed: bool,
}

/// Descriptors of one queue.
#[derive(Debug, Default)]
struct QueueFds {
    kick: Option<Arc<ForeignFd>>,
    call: Option<Arc<EventFd>>,
    err: Option<Arc<EventFd>>,
}

impl Session {
    /// Begins a session on a connected socket.
    pub fn new(socket: ForeignFd, device: Arc<dyn Device>, rules: FrontEndRules) -> Self {
        let queues = device.queues();
        let record = SessionRecord {
            port: device.id(),
            features: 0,
            protocol_features: 0,
            memory: Vec::new(),
            queues: vec![QueueRecord::default(); queues],
        };
        Self {
            connection: Connection::new(socket),
            device,
            rules,
            record,
            memory_fds: Vec::new(),
            memory: None,
            queues: (0..queues).map(|_| QueueFds::default()).collect(),
            status: 0,
            fault: None,
            blocked: false,
            changed: true,
        }
    }

    /// Restores a session that another process began.
    ///
    /// Guest memory is mapped at once; the rings start with [`Self::start_resumed`].
    pub fn resume(
        record: SessionRecord,
        fds: Vec<ForeignFd>,
        device: Arc<dyn Device>,
        rules: FrontEndRules,
    ) -> Result<Self, SessionError> {
        let roles = record.descriptors();
        if roles.len() != fds.len() {
            return Err(SessionError::Record { got: fds.len(), wanted: roles.len() });
        }
        let queues = device.queues();
        if record.queues.len() != queues {
            return Err(SessionError::NoSuchQueue { queue: record.queues.len() as u32, queues });
        }
        let mut fds = fds.into_iter();
        let socket = fds.next().ok_or(SessionError::Record { got: 0, wanted: roles.len() })?;
        // An earlier version of the process may not have set the option.
        keep_urgent(&socket).map_err(|error| SessionError::Socket(error.into()))?;
        let mut session = Self::new(socket, device, rules);
        only_offered(record.features, session.device.offered())?;
        for (role, fd) in roles.into_iter().skip(1).zip(fds) {
            match role {
                SessionFd::Connection => {}
                SessionFd::Memory(_) => session.memory_fds.push(fd),
                SessionFd::Kick(queue) => session.queues[queue].kick = Some(admit_event(&rules, fd)?),
                SessionFd::Call(queue) => session.queues[queue].call = Some(admit_event(&rules, fd)?),
                SessionFd::Err(queue) => session.queues[queue].err = Some(admit_event(&rules, fd)?),
            }
        }
        if record.queues.iter().any(|queue| queue.started) {
            session.status = STATUS_RUNNING;
        }
        session.record = SessionRecord { port: session.device.id(), ..record };
        session.map_memory()?;
        Ok(session)
    }

    /// Starts the rings of a resumed session where its predecessor stopped them.
    ///
    /// Interrupts the guest once for each ring, because the predecessor may have held an interrupt
    /// back. The predecessor must have stopped its rings.
    pub fn start_resumed(&mut self) -> Result<(), SessionError> {
        self.start_rings()?;
        for queue in QueueIdx::all(self.queues.len()) {
            self.device.interrupt(queue);
        }
        Ok(())
    }

    /// Tells whether the record or a descriptor has changed since the last [`Self::mark_recorded`].
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Notes that another process holds the record as it is now.
    pub fn mark_recorded(&mut self) {
        self.changed = false;
    }

    /// The current record.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// The descriptors that accompany [`Self::record`].
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.connection.as_fd()];
        fds.extend(self.memory_fds.iter().map(AsFd::as_fd));
        for queue in &self.queues {
            fds.extend(queue.kick.iter().map(AsFd::as_fd));
            fds.extend(queue.call.iter().map(AsFd::as_fd));
            fds.extend(queue.err.iter().map(AsFd::as_fd));
        }
        fds
    }

    /// The fault that the guest's driver caused, if a ring is broken.
    pub fn fault(&self) -> Option<&BrokenRing> {
        self.fault.as_ref()
    }

    /// Stops all rings after a fault in one of them, until the driver sets them up again.
    pub fn break_rings(&mut self, queue: QueueIdx, fault: BrokenRing) {
        self.stop_rings();
        if let Some(err) = self.queues.get(queue.index()).and_then(|queue| queue.err.as_ref()) {
            err.signal();
        }
        self.fault = Some(fault);
    }

    /// Tells whether pages of the guest's memory have vanished.
    pub fn has_lost_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.has_lost_pages())
    }

    /// Tells whether a signal to the front end has ever blocked the thread that sent it.
    pub fn has_blocked(&self) -> bool {
        let events = |queue: &QueueFds| [queue.call.clone(), queue.err.clone()];
        self.blocked || self.queues.iter().flat_map(events).flatten().any(|event| event.has_blocked())
    }

    /// Remembers whether an event descriptor that is no longer used has blocked a thread.
    fn retire(&mut self, event: Option<Arc<EventFd>>) {
        self.blocked |= event.is_some_and(|event| event.has_blocked());
    }

    /// Ends the session for the front end too. A session that is only dropped lives on in the
    /// duplicates of its descriptors.
    pub fn end(&self) {
        self.connection.shut();
    }

    /// Reads the next whole request. Returns `None` until there is one.
    pub fn receive(&mut self) -> Result<Option<(Header, Request)>, SessionError> {
        self.connection.receive()
    }

    /// Carries out a request. The caller passes the changed record on and then calls
    /// [`Self::reply`].
    pub fn apply(&mut self, header: &Header, request: Request) -> Result<Reply, SessionError> {
        let answer = self.carry_out(request)?;
        let acknowledges = VhostUserProtocolFeatures::REPLY_ACK.bits();
        let body = match answer {
            Answer::Body(body) => Some(body),
            Answer::Done | Answer::Refused
                if !header.wants_ack || self.record.protocol_features & acknowledges == 0 =>
            {
                None
            }
            Answer::Done => Some(0_u64.to_ne_bytes().to_vec()),
            Answer::Refused => Some(1_u64.to_ne_bytes().to_vec()),
        };
        Ok(Reply { request: header.request, body })
    }

    /// Sends what [`Self::apply`] returned, if the front end waits for it.
    pub fn reply(&self, reply: &Reply) -> Result<(), SessionError> {
        reply.body.as_ref().map_or(Ok(()), |body| self.connection.reply(reply.request, body))
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop_rings();
    }
}

/// The result of a request, before acknowledgements are considered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// Success: acknowledged by zero.
    Done,
    /// Refusal: acknowledged by one.
    Refused,
    /// A reply with this body.
    Body(Vec<u8>),
}

impl Answer {
    /// A reply with a 64-bit word.
    fn word(word: u64) -> Self {
        Self::Body(word.to_ne_bytes().to_vec())
    }
}

/// The reply to a request.
#[derive(Debug)]
pub struct Reply {
    request: FrontendReq,
    body: Option<Vec<u8>>,
}

impl Reply {
    /// Tells whether the front end waits for the reply.
    pub fn is_awaited(&self) -> bool {
        self.body.is_some()
    }
}

/// Refuses features that were not offered.
fn only_offered(accepted: u64, offered: u64) -> Result<(), SessionError> {
    match accepted & !offered {
        0 => Ok(()),
        strange => Err(SessionError::NotOffered(strange)),
    }
}

#[cfg(test)]
mod tests;
