//! Requests: each changes the session's record, and stops the rings that its change affects.

use taut_api::fabric::ForeignFd;
use taut_api::fabric::session::{MemoryRecord, QueueRecord};
use taut_virtq::features::RING_PACKED;
use vhost::vhost_user::message::FrontendReq;

use super::admission::admit_event;
use super::{Answer, Session, only_offered};
use crate::net::queue::{Direction, QueueIdx};
use crate::vhost_user::base;
use crate::vhost_user::error::{MessageError, SessionError};
use crate::vhost_user::message::Request;
use crate::vhost_user::wire::MAX_REGIONS;

/// Largest size of a virtqueue (virtio 1.2, 2.7 and 2.8).
const MAX_QUEUE_SIZE: u16 = 32768;

impl Session {
    /// Answers a question, or makes a change and then starts the rings that can run.
    pub(super) fn carry_out(&mut self, request: Request) -> Result<Answer, SessionError> {
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
            // No device has a field that its driver may write.
            Request::SetConfig => {
                return self.config_space(FrontendReq::SET_CONFIG).map(|_| Answer::Refused);
            }
            Request::GetVringBase { queue } => {
                let queue = self.known(queue)?;
                let position = self.halt(queue);
                self.changed = true;
                let state = [u32::from(queue.0), base::base(position, self.record.features)];
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
            Request::AddMemReg(region, fd) => self.add_region(region, fd)?,
            Request::RemMemReg(region) => self.remove_region(&region)?,
            Request::SetVringNum { queue, size } => self.set_size(queue, size)?,
            Request::SetVringAddr { queue, desc, avail, used } => {
                let queue = self.known(queue)?;
                self.device.stop_ring(queue);
                let record = self.queue_record(queue);
                (record.desc, record.avail, record.used) = (desc, avail, used);
            }
            Request::SetVringBase { queue, base } => self.set_base(queue, base)?,
            Request::SetVringKick { queue, fd } => {
                let queue = self.known(queue)?;
                self.device.stop_ring(queue);
                self.queues[queue.index()].kick = Some(admit_event(&self.rules, fd)?);
                self.queue_record(queue).kick = true;
            }
            Request::SetVringCall { queue, fd } => {
                let queue = self.known(queue)?;
                let call = fd.map(|fd| admit_event(&self.rules, fd)).transpose()?;
                // This waits for a thread that is signalling the former descriptor.
                self.device.set_call(queue, call.clone());
                self.queue_record(queue).call = call.is_some();
                let before = std::mem::replace(&mut self.queues[queue.index()].call, call);
                self.retire(before);
            }
            Request::SetVringErr { queue, fd } => {
                let queue = self.known(queue)?;
                let err = fd.map(|fd| admit_event(&self.rules, fd)).transpose()?;
                self.queue_record(queue).err = err.is_some();
                let before = std::mem::replace(&mut self.queues[queue.index()].err, err);
                self.retire(before);
            }
            Request::SetVringEnable { queue, on } => {
                let queue = self.known(queue)?;
                self.queue_record(queue).enabled = on;
                // A disabled transmit ring runs until it is taken away: frames that the guest has
                // sent leave, and their buffers return.
                if !on && queue.direction() == Direction::Receive {
                    self.device.stop_ring(queue);
                }
            }
        }
        self.changed = true;
        self.start_rings()?;
        Ok(Answer::Done)
    }

    /// The configuration space; an error if the device does not offer one.
    fn config_space(&self, request: FrontendReq) -> Result<&[u8], SessionError> {
        let space = self.device.config_space();
        if space.is_empty() { Err(MessageError::NotOffered(request).into()) } else { Ok(space) }
    }

    /// Checks a queue index of a request.
    fn known(&self, queue: u32) -> Result<QueueIdx, SessionError> {
        let queues = self.queues.len();
        match u16::try_from(queue) {
            Ok(index) if usize::from(index) < queues => Ok(QueueIdx(index)),
            _ => Err(SessionError::NoSuchQueue { queue, queues }),
        }
    }

    fn queue_record(&mut self, queue: QueueIdx) -> &mut QueueRecord {
        &mut self.record.queues[queue.index()]
    }

    fn add_region(&mut self, region: MemoryRecord, fd: ForeignFd) -> Result<(), SessionError> {
        if self.record.memory.len() == MAX_REGIONS {
            return Err(SessionError::Region(region.guest_addr));
        }
        self.stop_rings();
        self.record.memory.push(region);
        self.memory_fds.push(fd);
        self.map_memory()
    }

    fn remove_region(&mut self, region: &MemoryRecord) -> Result<(), SessionError> {
        let same = |other: &MemoryRecord| {
            (other.guest_addr, other.user_addr, other.size)
                == (region.guest_addr, region.user_addr, region.size)
        };
        let at = self.record.memory.iter().position(same);
        let at = at.ok_or(SessionError::Region(region.guest_addr))?;
        self.stop_rings();
        self.record.memory.remove(at);
        self.memory_fds.remove(at);
        self.map_memory()
    }

    fn set_size(&mut self, queue: u32, size: u16) -> Result<(), SessionError> {
        let queue = self.known(queue)?;
        let packed = self.record.features & RING_PACKED != 0;
        if size == 0 || size > MAX_QUEUE_SIZE || !(packed || size.is_power_of_two()) {
            return Err(SessionError::QueueSize { queue, size });
        }
        self.device.stop_ring(queue);
        self.queue_record(queue).size = size;
        Ok(())
    }

    fn set_base(&mut self, queue: u32, base: u32) -> Result<(), SessionError> {
        let queue = self.known(queue)?;
        let position = base::position(base, self.record.features);
        let position = position.ok_or(SessionError::Base { queue, base })?;
        self.device.stop_ring(queue);
        self.fault = None;
        let record = self.queue_record(queue);
        (record.base, record.started) = (position, false);
        Ok(())
    }
}
