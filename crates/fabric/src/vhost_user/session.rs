//! One vhost-user session: what a front end has told so far, and the rings that follow from it.
//!
//! All that matters is in a [`SessionRecord`] and its descriptors, so that another process can go on from them. Every
//! request changes the record first; then rings that can run are started, and rings that no longer can are stopped. A ring
//! that has run before always continues from the position in guest memory, whether it was this process that ran it or
//! the one before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use taut_api::fabric::session::{MemoryRecord, QueueRecord, SessionFd, SessionRecord};
use taut_virtq::fault::{QueueError, RingFault};
use taut_virtq::features::RING_PACKED;
use taut_virtq::memory::{GuestMemory, RegionSpec};
use taut_virtq::{QueueConfig, Start};
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};

use super::device::{Ring, StartError};
use super::message::{Header, MAX_REGIONS, Request};
use super::{Connection, Device, MessageError, SessionError, base};
use crate::sys::epoll::set_nonblocking;

/// Device status bits (virtio 1.2, 2.1) of a driver that has finished setting up.
const STATUS_RUNNING: u8 = 0x0f;

/// A front end's session on a device.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    device: Arc<dyn Device>,
    record: SessionRecord,
    memory_fds: Vec<OwnedFd>,
    memory: Option<Arc<GuestMemory>>,
    queues: Vec<QueueFds>,
    /// Device status. Not handed over: a running device has the status of a running device.
    status: u8,
    fault: Option<BrokenRing>,
    /// The record has changed since it was last taken.
    changed: bool,
}

/// What a guest did to a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenRing {
    /// It could not be set up.
    #[error("the guest's driver set up a ring that cannot be used: {0}")]
    SetUp(#[from] QueueError),
    /// It broke while it ran.
    #[error("the guest's driver broke a ring: {0}")]
    Running(#[from] RingFault),
}

/// Descriptors of one queue.
#[derive(Debug, Default)]
struct QueueFds {
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<OwnedFd>,
}

/// What is sent back for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// Nothing, or zero if an acknowledgement was asked for.
    Done,
    /// Nothing, or one if an acknowledgement was asked for.
    Refused,
    /// The reply's body.
    Body(Vec<u8>),
}

impl Answer {
    /// A 64-bit word.
    fn word(word: u64) -> Self {
        Self::Body(word.to_ne_bytes().to_vec())
    }
}

impl Session {
    /// A session at its very beginning.
    pub fn new(socket: OwnedFd, device: Arc<dyn Device>) -> Self {
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
            record,
            memory_fds: Vec::new(),
            memory: None,
            queues: (0..queues).map(|_| QueueFds::default()).collect(),
            status: 0,
            fault: None,
            changed: true,
        }
    }

    /// Goes on with a session that another process began: its memory is mapped, its rings run after [`Self::go_on`].
    pub fn resume(
        record: SessionRecord,
        fds: Vec<OwnedFd>,
        device: Arc<dyn Device>,
    ) -> Result<Self, SessionError> {
        let roles = record.descriptors();
        if roles.len() != fds.len() {
            return Err(SessionError::Record { got: fds.len(), wanted: roles.len() });
        }
        if record.queues.len() != device.queues() {
            return Err(SessionError::NoSuchQueue { queue: record.queues.len(), queues: device.queues() });
        }
        let mut fds = fds.into_iter();
        let socket = fds.next().ok_or(SessionError::Record { got: 0, wanted: roles.len() })?;
        let mut session = Self::new(socket, device);
        only_offered(record.features, session.device.offered())?;
        for (role, fd) in roles.into_iter().skip(1).zip(fds) {
            match role {
                SessionFd::Connection => {}
                SessionFd::Memory(_) => session.memory_fds.push(fd),
                SessionFd::Kick(queue) => session.queues[queue].kick = Some(event(fd)?),
                SessionFd::Call(queue) => session.queues[queue].call = Some(event(fd)?),
                SessionFd::Err(queue) => session.queues[queue].err = Some(fd),
            }
        }
        if record.queues.iter().any(|queue| queue.started) {
            session.status = STATUS_RUNNING;
        }
        session.record = SessionRecord { port: session.device.id(), ..record };
        session.map_memory()?;
        Ok(session)
    }

    /// Starts the rings where whoever ran them before stopped, and interrupts the guest once for each: its predecessor may
    /// have owed it that. The other process must have let go of them.
    pub fn go_on(&mut self) -> Result<(), SessionError> {
        self.start_rings()?;
        self.device.interrupt_all();
        Ok(())
    }

    /// Has the record or a descriptor changed since the last [`Self::mark_told`]?
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// The record is known elsewhere as it is now.
    pub fn mark_told(&mut self) {
        self.changed = false;
    }

    /// The record as of now.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// The descriptors that travel with [`Self::record`].
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

    /// What the guest did to its rings, if it broke one.
    pub fn fault(&self) -> Option<&BrokenRing> {
        self.fault.as_ref()
    }

    /// A worker found a ring broken: stops them all until the driver sets them up anew.
    pub fn break_rings(&mut self, queue: usize, fault: BrokenRing) {
        for queue in 0..self.queues.len() {
            self.device.stop_ring(queue);
        }
        if let Some(err) = self.queues.get(queue).and_then(|queue| queue.err.as_ref()) {
            crate::sys::epoll::signal(err);
        }
        self.fault = Some(fault);
    }

    /// Ends the session for the front end as well. A session that is merely dropped lives on in its duplicates.
    pub fn end(&self) {
        self.connection.shut();
    }

    /// Reads the next whole request; `None` until there is one.
    pub fn receive(&mut self) -> Result<Option<(Header, Request)>, SessionError> {
        self.connection.receive()
    }

    /// Carries out a request. The answer goes out by [`Self::reply`], after the changed record has been passed on.
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

    /// Sends what [`Self::apply`] returned, if the front end waits for anything.
    pub fn reply(&self, reply: &Reply) -> Result<(), SessionError> {
        reply.body.as_ref().map_or(Ok(()), |body| self.connection.reply(reply.request, body))
    }

    /// Questions are answered at once; what changes the record may let rings start.
    fn carry_out(&mut self, request: Request) -> Result<Answer, SessionError> {
        match request {
            Request::GetFeatures => return Ok(Answer::word(self.device.offered())),
            Request::GetProtocolFeatures => return Ok(Answer::word(self.device.protocol())),
            Request::GetQueueNum => return Ok(Answer::word(self.queues.len() as u64)),
            Request::GetMaxMemSlots => return Ok(Answer::word(MAX_REGIONS as u64)),
            Request::GetStatus => return Ok(Answer::word(u64::from(self.status))),
            Request::SetOwner => return Ok(Answer::Done),
            Request::GetConfig(part) => {
                let space = self.config_space(FrontendReq::GET_CONFIG)?;
                return Ok(Answer::Body(part.of(space)));
            }
            // No device here has anything that a driver may write.
            Request::SetConfig => {
                return self.config_space(FrontendReq::SET_CONFIG).map(|_| Answer::Refused);
            }
            Request::GetVringBase { queue } => {
                let position = self.halt(queue)?;
                self.changed = true;
                let state = [queue as u32, base::base(position, self.record.features)];
                return Ok(Answer::Body(state.map(u32::to_ne_bytes).concat()));
            }
            Request::SetFeatures(accepted) => {
                only_offered(accepted, self.device.offered())?;
                if accepted != self.record.features {
                    self.stop_rings();
                    self.record.features = accepted;
                }
            }
            Request::SetProtocolFeatures(accepted) => {
                only_offered(accepted, self.device.protocol())?;
                self.record.protocol_features = accepted;
            }
            Request::ResetOwner => self.reset(),
            Request::SetStatus(status) => {
                self.status = status;
                if status == 0 {
                    self.reset();
                }
            }
            Request::SetMemTable(regions) => {
                self.stop_rings();
                (self.record.memory, self.memory_fds) = regions.into_iter().unzip();
                self.map_memory()?;
            }
            Request::AddMemReg(region, fd) => {
                if self.record.memory.len() == MAX_REGIONS {
                    return Err(SessionError::Region(region.guest_addr));
                }
                self.stop_rings();
                self.record.memory.push(region);
                self.memory_fds.push(fd);
                self.map_memory()?;
            }
            Request::RemMemReg(region) => {
                let same = |other: &MemoryRecord| {
                    (other.guest_addr, other.user_addr, other.size)
                        == (region.guest_addr, region.user_addr, region.size)
                };
                let at = self.record.memory.iter().position(same);
                let at = at.ok_or(SessionError::Region(region.guest_addr))?;
                self.stop_rings();
                self.record.memory.remove(at);
                self.memory_fds.remove(at);
                self.map_memory()?;
            }
            Request::SetVringNum { queue, size } => {
                self.known(queue)?;
                let packed = self.record.features & RING_PACKED != 0;
                if size == 0 || size > 32768 || !(packed || size.is_power_of_two()) {
                    return Err(SessionError::QueueSize { queue, size });
                }
                self.device.stop_ring(queue);
                self.record.queues[queue].size = size;
            }
            Request::SetVringAddr { queue, desc, avail, used } => {
                self.known(queue)?;
                self.device.stop_ring(queue);
                let record = &mut self.record.queues[queue];
                (record.desc, record.avail, record.used) = (desc, avail, used);
            }
            Request::SetVringBase { queue, base } => {
                self.known(queue)?;
                let position = base::position(base, self.record.features);
                let position = position.ok_or(SessionError::Base { queue, base })?;
                self.device.stop_ring(queue);
                self.fault = None;
                let record = &mut self.record.queues[queue];
                (record.base, record.started) = (position, false);
            }
            Request::SetVringKick { queue, fd } => {
                self.known(queue)?;
                self.device.stop_ring(queue);
                self.queues[queue].kick = Some(event(fd)?);
                self.record.queues[queue].kick = true;
            }
            Request::SetVringCall { queue, fd } => {
                self.known(queue)?;
                let call = fd.map(event).transpose()?;
                self.device.set_call(queue, call.clone());
                self.record.queues[queue].call = call.is_some();
                self.queues[queue].call = call;
            }
            Request::SetVringErr { queue, fd } => {
                self.known(queue)?;
                self.record.queues[queue].err = fd.is_some();
                self.queues[queue].err = fd;
            }
            Request::SetVringEnable { queue, on } => {
                self.known(queue)?;
                self.record.queues[queue].enabled = on;
                // A transmit ring that is no longer used goes on until it is taken away: what the guest has sent leaves,
                // and its buffers come back.
                if !on && queue.is_multiple_of(2) {
                    self.device.stop_ring(queue);
                }
            }
        }
        self.changed = true;
        self.start_rings()?;
        Ok(Answer::Done)
    }

    /// The configuration space, for a device that offered to tell it.
    fn config_space(&self, request: FrontendReq) -> Result<&[u8], SessionError> {
        let space = self.device.config_space();
        if space.is_empty() { Err(MessageError::NotOffered(request).into()) } else { Ok(space) }
    }

    fn known(&self, queue: usize) -> Result<(), SessionError> {
        let queues = self.queues.len();
        if queue < queues { Ok(()) } else { Err(SessionError::NoSuchQueue { queue, queues }) }
    }

    fn map_memory(&mut self) -> Result<(), SessionError> {
        // The old mapping goes first: both at once might not fit into the address space limit.
        self.memory = None;
        if self.record.memory.is_empty() {
            return Ok(());
        }
        let specs: Vec<_> = self.record.memory.iter().map(region_spec).collect();
        let fds: Vec<_> = self.memory_fds.iter().map(AsFd::as_fd).collect();
        self.memory = Some(Arc::new(GuestMemory::map(&specs, &fds)?));
        Ok(())
    }

    /// Device reset: the driver sets up everything but the event descriptors for interrupts anew.
    fn reset(&mut self) {
        self.stop_rings();
        self.fault = None;
        for (record, fds) in self.record.queues.iter_mut().zip(&mut self.queues) {
            fds.kick = None;
            *record = QueueRecord { call: record.call, err: record.err, ..QueueRecord::default() };
        }
    }

    fn stop_rings(&mut self) {
        for queue in 0..self.queues.len() {
            self.device.stop_ring(queue);
        }
    }

    /// Stops one ring for good and tells its position; the front end gives a new kick when it is to run again.
    fn halt(&mut self, queue: usize) -> Result<u16, SessionError> {
        self.known(queue)?;
        let position = self.device.stop_ring(queue).or_else(|| self.position_in_memory(queue));
        self.fault = None;
        self.queues[queue].kick = None;
        let record = &mut self.record.queues[queue];
        (record.kick, record.started) = (false, false);
        record.base = position.unwrap_or(record.base);
        Ok(record.base)
    }

    /// The position of a ring that has run, but does not run now.
    fn position_in_memory(&self, queue: usize) -> Option<u16> {
        let config = self.record.queues[queue].started.then(|| self.queue_config(queue))?;
        self.device.position_in_memory(self.memory.as_ref()?, queue, &config)
    }

    fn queue_config(&self, queue: usize) -> QueueConfig {
        let record = &self.record.queues[queue];
        QueueConfig {
            size: record.size,
            desc: record.desc,
            avail: record.avail,
            used: record.used,
            features: self.record.features,
            start: if record.started { Start::Recover } else { Start::At(record.base) },
            log: self.device.position_log(queue),
        }
    }

    /// Starts every ring that can run and does not.
    fn start_rings(&mut self) -> Result<(), SessionError> {
        let enabled_from_the_start = self.record.features & taut_virtq::features::PROTOCOL_FEATURES == 0;
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        for queue in 0..self.queues.len() {
            let record = &self.record.queues[queue];
            let set_up = record.size > 0 && record.desc != 0 && (record.enabled || enabled_from_the_start);
            let Some(kick) = self.queues[queue].kick.clone() else { continue };
            if self.fault.is_some() || !set_up || self.device.runs(queue) {
                continue;
            }
            let ring = Ring { kick, call: self.queues[queue].call.clone(), config: self.queue_config(queue) };
            match self.device.start_ring(queue, &memory, ring) {
                Ok(()) => self.record.queues[queue].started = true,
                Err(StartError::Queue(error)) => self.break_rings(queue, error.into()),
                Err(StartError::Kick(error)) => return Err(SessionError::Event(error)),
            }
        }
        Ok(())
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

/// An answer to a request.
#[derive(Debug)]
pub struct Reply {
    request: FrontendReq,
    body: Option<Vec<u8>>,
}

impl Reply {
    /// Does the front end wait for it?
    pub fn is_awaited(&self) -> bool {
        self.body.is_some()
    }
}

fn only_offered(accepted: u64, offered: u64) -> Result<(), SessionError> {
    match accepted & !offered {
        0 => Ok(()),
        strange => Err(SessionError::NotOffered(strange)),
    }
}

/// Event descriptors are never waited for: a front end that fills one up must not stop a worker.
fn event(fd: OwnedFd) -> Result<Arc<OwnedFd>, SessionError> {
    set_nonblocking(&fd).map_err(SessionError::Event)?;
    Ok(Arc::new(fd))
}

fn region_spec(record: &MemoryRecord) -> RegionSpec {
    RegionSpec {
        guest_addr: record.guest_addr,
        user_addr: record.user_addr,
        size: record.size,
        file_offset: record.file_offset,
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
