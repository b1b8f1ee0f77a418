//! A region: mapped memory and where the channels in it are.

use std::sync::Arc;

use thiserror::Error;

use super::{Channel, Memory};
use crate::layout::{Geometry, HEADER_LEN, HeaderError};

/// The memory of a VM's queue pairs.
#[derive(Debug, Clone)]
pub struct Region {
    memory: Arc<Memory>,
    /// Invariant: its channels lie in `memory`.
    geometry: Geometry,
}

/// Reason why memory cannot be used as a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RegionError {
    /// The memory is shorter than its geometry says.
    #[error("{mapped} bytes of memory are mapped for a region of {needed} bytes")]
    Short {
        /// Length of the memory, in bytes.
        mapped: u64,
        /// Length that is needed, in bytes.
        needed: u64,
    },
    /// The header of the region is not accepted.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl Region {
    /// Uses memory with a geometry that is known, whatever the header in the memory says. The
    /// fabric, whose other side may overwrite the header, uses [`Geometry::made_with`].
    pub fn new(memory: Arc<Memory>, geometry: Geometry) -> Result<Self, RegionError> {
        let (mapped, needed) = (memory.len() as u64, geometry.end());
        if mapped < needed {
            return Err(RegionError::Short { mapped, needed });
        }
        Ok(Self { memory, geometry })
    }

    /// Uses memory as its header says. For programs in the guest.
    pub fn open(memory: Arc<Memory>) -> Result<Self, RegionError> {
        let mapped = memory.len() as u64;
        let header = memory.header().ok_or(RegionError::Short { mapped, needed: HEADER_LEN as u64 })?;
        let geometry = Geometry::read(&header, mapped)?;
        Self::new(memory, geometry)
    }

    /// Where the channels are.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The memory of the region.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// A channel that borrows the memory, which costs no count of its users; `None` if there is
    /// none with this index.
    #[inline]
    pub fn channel_ref(&self, index: u32) -> Option<Channel<&Memory>> {
        let offset = self.geometry.channel(index)?;
        Some(Channel::new(&*self.memory, &self.geometry, index, offset as usize))
    }

    /// A channel; `None` if there is none with this index.
    pub fn channel(&self, index: u32) -> Option<Channel> {
        let offset = self.geometry.channel(index)?;
        Some(Channel::new(Arc::clone(&self.memory), &self.geometry, index, offset as usize))
    }
}
