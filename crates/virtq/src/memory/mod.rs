//! Guest memory: mapped once, translated often, never borrowed.
//!
//! The mappings are shared with processes that may write at any moment, so no Rust reference into
//! them exists. The unsafe parts are [`mapping`] (system calls), [`lost`] (pages that vanish),
//! [`area`] (atomic words of a ring),
//! [`spans`] (addresses, and copies between them), [`buffer`] and [`frame_copy`] (bulk copies),
//! [`messages`] (to a socket), [`prefetch`] (hints to the processor) and [`wide`] (functions for
//! wider registers).

mod area;
mod atomic;
mod buffer;
mod extent;
mod frame_copy;
mod lost;
mod mapping;
pub(crate) mod messages;
pub(crate) mod prefetch;
mod spans;
pub(crate) mod wide;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use thiserror::Error;

pub(crate) use area::{Area, AreaError};
pub(crate) use buffer::Buffer;
pub use lost::survive_lost_pages;
pub(crate) use mapping::Mapping;
pub(crate) use spans::{SpanView, Spans};

/// Most regions of one guest.
pub const MAX_REGIONS: usize = 64;

/// One region of guest memory, as vhost-user's `SET_MEM_TABLE` describes it. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionSpec {
    /// Guest physical address. Descriptors contain such addresses.
    pub guest_addr: u64,
    /// Address in the front end's process. Ring areas are given by such addresses.
    pub user_addr: u64,
    /// Length.
    pub size: u64,
    /// Offset of the region in its file.
    pub file_offset: u64,
}

/// Reason why guest memory cannot be mapped or accessed.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// There are not as many descriptors as regions, or too many regions, or none.
    #[error("{regions} memory regions with {files} descriptors; 1 to {MAX_REGIONS} pairs are possible")]
    Count {
        /// Regions announced.
        regions: usize,
        /// Descriptors received.
        files: usize,
    },
    /// A region is empty or wraps around an address space.
    #[error("memory region at guest address {guest_addr:#x} with {size} bytes is empty or wraps around")]
    Extent {
        /// Guest address.
        guest_addr: u64,
        /// Length in bytes.
        size: u64,
    },
    /// Two regions share addresses.
    #[error("memory regions at guest addresses {first:#x} and {second:#x} overlap")]
    Overlap {
        /// Guest address of the lower region.
        first: u64,
        /// Guest address of the higher region.
        second: u64,
    },
    /// A descriptor is not a regular file, so its length is unknown. The memory is not shared.
    #[error("the descriptor of the region at guest address {guest_addr:#x} is not a memory file")]
    NotAFile {
        /// Guest address.
        guest_addr: u64,
    },
    /// The file ends before the region does. An access to the rest would raise SIGBUS.
    #[error("the region at guest address {guest_addr:#x} needs a file of {needed} bytes, it has {actual}")]
    FileTooShort {
        /// Guest address.
        guest_addr: u64,
        /// Offset plus size of the region.
        needed: u64,
        /// Length of the file.
        actual: u64,
    },
    /// The kernel refused the mapping.
    #[error("cannot map {size} bytes of guest memory")]
    Map {
        /// Length in bytes.
        size: u64,
        /// Reason of the kernel.
        #[source]
        source: std::io::Error,
    },
    /// The access is outside all regions.
    #[error("{len} bytes at guest address {addr:#x} are outside guest memory")]
    Outside {
        /// Guest address.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// A guest's memory, mapped until dropped.
///
/// The length of each file is checked when it is mapped. Pages that vanish *afterwards* raise
/// `SIGBUS` at the next access, unless the process has called [`survive_lost_pages`].
#[derive(Debug)]
pub struct GuestMemory {
    /// Sorted by guest address.
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    spec: RegionSpec,
    mapping: Mapping,
    /// Offset of the region in the mapping.
    offset: usize,
}

impl GuestMemory {
    /// Maps regions. `files[i]` is the file of `specs[i]`; the descriptors may be closed
    /// afterwards.
    pub fn map(specs: &[RegionSpec], files: &[BorrowedFd<'_>]) -> Result<Self, MemoryError> {
        if specs.len() != files.len() || specs.is_empty() || specs.len() > MAX_REGIONS {
            return Err(MemoryError::Count { regions: specs.len(), files: files.len() });
        }
        let mut regions = specs
            .iter()
            .zip(files)
            .map(|(spec, file)| Region::map(*spec, *file))
            .collect::<Result<Vec<_>, _>>()?;
        regions.sort_by_key(|region| region.spec.user_addr);
        check_overlap(&regions, |spec| spec.user_addr)?;
        regions.sort_by_key(|region| region.spec.guest_addr);
        check_overlap(&regions, |spec| spec.guest_addr)?;
        Ok(Self { regions })
    }

    /// Sum of the sizes of all regions in bytes.
    pub fn size(&self) -> u64 {
        self.regions.iter().map(|region| region.spec.size).sum()
    }

    /// Tells whether pages of a region have vanished. The region reads as zeros since then.
    pub fn has_lost_pages(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
    }

    /// The regions by ascending guest address.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = RegionSpec> + '_ {
        self.regions.iter().map(|region| region.spec)
    }

    /// Copies bytes out, starting at a guest address. The guest may change them at the same time.
    pub fn read(self: &Arc<Self>, guest_addr: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let mut spans = Spans::new(Arc::clone(self), 1);
        if !spans.push(guest_addr, out.len() as u64) {
            return Err(MemoryError::Outside { addr: guest_addr, len: out.len() as u64 });
        }
        spans.buffer(0, spans.len()).read(out);
        Ok(())
    }

    /// Copies bytes in, starting at a guest address.
    pub fn write(self: &Arc<Self>, guest_addr: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let mut spans = Spans::new(Arc::clone(self), 1);
        if !spans.push(guest_addr, bytes.len() as u64) {
            return Err(MemoryError::Outside { addr: guest_addr, len: bytes.len() as u64 });
        }
        spans.buffer(0, spans.len()).write(bytes);
        Ok(())
    }

    /// The region that contains a guest address.
    fn find(&self, guest_addr: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|region| region.spec.guest_addr <= guest_addr);
        let region = &self.regions[after.checked_sub(1)?];
        (guest_addr - region.spec.guest_addr < region.spec.size).then_some(region)
    }

    /// The region that contains `len` bytes at a front-end address, and their offset in its
    /// mapping.
    fn find_user(&self, user_addr: u64, len: u64) -> Option<(&Region, usize)> {
        self.regions.iter().find_map(|region| {
            let at = user_addr.checked_sub(region.spec.user_addr)?;
            let inside = at < region.spec.size && len <= region.spec.size - at;
            inside.then(|| (region, region.offset + at as usize))
        })
    }
}

impl Region {
    fn map(spec: RegionSpec, file: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        let RegionSpec { guest_addr, size, .. } = spec;
        let fits = |start: u64| start.checked_add(size).is_some();
        if size == 0 || !fits(guest_addr) || !fits(spec.user_addr) || !fits(spec.file_offset) {
            return Err(MemoryError::Extent { guest_addr, size });
        }
        let failed = |source: rustix::io::Errno| MemoryError::Map { size, source: source.into() };
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(MemoryError::NotAFile { guest_addr });
        }
        let (needed, actual) = (spec.file_offset + size, stat.st_size as u64);
        if actual < needed {
            return Err(MemoryError::FileTooShort { guest_addr, needed, actual });
        }
        // Huge pages can only be mapped in multiples of their size, which is the file's block size.
        let page = (stat.st_blksize as u64).max(4096).next_power_of_two();
        let start = spec.file_offset & !(page - 1);
        let length = (needed - start).checked_next_multiple_of(page);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(MemoryError::Extent { guest_addr, size })?;
        let mapping = Mapping::shared(file, start, length).map_err(failed)?;
        Ok(Self { spec, mapping, offset: (spec.file_offset - start) as usize })
    }
}

fn check_overlap(sorted: &[Region], start: impl Fn(&RegionSpec) -> u64) -> Result<(), MemoryError> {
    for pair in sorted.windows(2) {
        let (low, high) = (&pair[0].spec, &pair[1].spec);
        if start(high) - start(low) < low.size {
            return Err(MemoryError::Overlap { first: low.guest_addr, second: high.guest_addr });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
