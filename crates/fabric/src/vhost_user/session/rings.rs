//! Rings and guest memory: mapped, started and stopped as the record says.

use std::os::fd::AsFd;
use std::sync::Arc;

use taut_api::fabric::session::{MemoryRecord, QueueRecord};
use taut_virtq::features::PROTOCOL_FEATURES;
use taut_virtq::memory::{GuestMemory, RegionSpec};
use taut_virtq::{QueueConfig, Start};

use super::Session;
use super::admission::check_memory;
use crate::net::queue::QueueIdx;
use crate::vhost_user::device::{Ring, RingSetup, StartError};
use crate::vhost_user::error::SessionError;

impl Session {
    /// Maps guest memory as the record describes it.
    pub(super) fn map_memory(&mut self) -> Result<(), SessionError> {
        // Unmap first: both mappings together might exceed the address space limit.
        self.memory = None;
        if self.record.memory.is_empty() {
            return Ok(());
        }
        check_memory(&self.rules, &self.record.memory, &mut self.memory_fds)?;
        let specs: Vec<_> = self.record.memory.iter().map(region_spec).collect();
        let fds: Vec<_> = self.memory_fds.iter().map(AsFd::as_fd).collect();
        self.memory = Some(Arc::new(GuestMemory::map(&specs, &fds)?));
        Ok(())
    }

    /// Resets the device. The driver sets up everything again, except call and error descriptors.
    pub(super) fn reset(&mut self) {
        self.stop_rings();
        self.fault = None;
        for (record, fds) in self.record.queues.iter_mut().zip(&mut self.queues) {
            fds.kick = None;
            *record = QueueRecord { call: record.call, err: record.err, ..QueueRecord::default() };
        }
    }

    /// Stops all rings.
    pub(super) fn stop_rings(&mut self) {
        for queue in QueueIdx::all(self.queues.len()) {
            self.device.stop_ring(queue);
        }
    }

    /// Stops one ring and returns its position. The ring starts again only with a new kick
    /// descriptor.
    pub(super) fn halt(&mut self, queue: QueueIdx) -> u16 {
        let position = self.device.stop_ring(queue).or_else(|| self.position_in_memory(queue));
        self.fault = None;
        self.queues[queue.index()].kick = None;
        let record = &mut self.record.queues[queue.index()];
        (record.kick, record.started) = (false, false);
        record.base = position.unwrap_or(record.base);
        record.base
    }

    /// The position of a ring that has run and is stopped now.
    fn position_in_memory(&self, queue: QueueIdx) -> Option<u16> {
        if !self.record.queues[queue.index()].started {
            return None;
        }
        let memory = Arc::clone(self.memory.as_ref()?);
        let setup = RingSetup { memory, config: self.queue_config(queue) };
        self.device.position_in_memory(queue, &setup)
    }

    fn queue_config(&self, queue: QueueIdx) -> QueueConfig {
        let record = &self.record.queues[queue.index()];
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

    /// Starts every ring that can run and is stopped.
    pub(super) fn start_rings(&mut self) -> Result<(), SessionError> {
        let enabled_from_the_start = self.record.features & PROTOCOL_FEATURES == 0;
        let Some(memory) = self.memory.clone() else { return Ok(()) };
        for queue in QueueIdx::all(self.queues.len()) {
            let record = &self.record.queues[queue.index()];
            let set_up = record.size > 0 && record.desc != 0 && (record.enabled || enabled_from_the_start);
            let fds = &self.queues[queue.index()];
            let Some(kick) = fds.kick.clone() else { continue };
            if self.fault.is_some() || !set_up || self.device.runs(queue) {
                continue;
            }
            let setup = RingSetup { memory: Arc::clone(&memory), config: self.queue_config(queue) };
            match self.device.start_ring(queue, Ring { setup, kick, call: fds.call.clone() }) {
                Ok(()) => self.record.queues[queue.index()].started = true,
                Err(StartError::Queue(error)) => self.break_rings(queue, error.into()),
                Err(StartError::Kick(error)) => return Err(SessionError::Event(error)),
            }
        }
        Ok(())
    }
}

fn region_spec(record: &MemoryRecord) -> RegionSpec {
    RegionSpec {
        guest_addr: record.guest_addr,
        user_addr: record.user_addr,
        size: record.size,
        file_offset: record.file_offset,
    }
}
