//! Memory for the queue pairs of VMCI devices: `tautd` sends a file for a device whose
//! configuration describes it.
//!
//! The process of the VM has the file mapped, and may be hostile. Nobody can change the size of an
//! accepted file, so that no access to its pages fails.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use taut_api::fabric::config::QueuePairMemory;
use taut_api::fabric::{PortId, discard};
use tracing::{info, warn};

use super::entry::{Entry, Kind};
use super::{Control, chain};
use crate::vsock::{RegionPlace, RegionRefused};

/// Seals of an accepted file.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The file with the queue pairs of a device, as its configuration describes it.
#[derive(Debug)]
pub(super) struct RegionFd {
    file: OwnedFd,
    memory: QueuePairMemory,
}

/// Reasons against a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegionError {
    #[error("{0} descriptors came with memory for queue pairs, which is one")]
    Descriptors(usize),
    #[error("{0} has no queue pairs")]
    Unwanted(PortId),
    #[error("the descriptor cannot be used")]
    Descriptor(#[source] io::Error),
    #[error("it is not the file {wanted}, which is configured, but {got}")]
    Another { wanted: u64, got: u64 },
    #[error("it is no memory file: a file's seals cannot be read")]
    Kind(#[source] io::Error),
    #[error("the file has {got} bytes, and not {wanted} as configured")]
    Size { wanted: u64, got: u64 },
    #[error("the file's size can be changed: its seals are {0:?}")]
    Unsealed(SealFlags),
    #[error("the file cannot be a region")]
    Region(#[from] RegionRefused),
}

impl RegionFd {
    /// The file.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the part of the file that has the queue pairs.
    pub(super) fn place(&self) -> RegionPlace {
        let QueuePairMemory { offset, size, ring, .. } = self.memory;
        // The region refuses the greatest number, as every length that is not possible.
        let ring_len = ring.map(|ring| u32::try_from(ring.0).unwrap_or(u32::MAX));
        RegionPlace { offset: offset.0, len: size.0, ring_len }
    }
}

/// Checks a file.
fn check(file: &OwnedFd, memory: QueuePairMemory) -> Result<(), RegionError> {
    let found = fstat(file).map_err(|error| RegionError::Descriptor(error.into()))?;
    if found.st_ino != memory.inode {
        return Err(RegionError::Another { wanted: memory.inode, got: found.st_ino });
    }
    let seals = fcntl_get_seals(file).map_err(|error| RegionError::Kind(error.into()))?;
    if !seals.contains(SEALS) {
        return Err(RegionError::Unsealed(seals));
    }
    let (wanted, got) = (memory.file_size().0, found.st_size.cast_unsigned());
    if got == wanted { Ok(()) } else { Err(RegionError::Size { wanted, got }) }
}

impl Entry {
    /// The memory that the configuration of a device describes.
    fn wanted_queue_pairs(&self) -> Option<QueuePairMemory> {
        match &self.kind {
            Kind::Socket(config) => config.queue_pairs,
            Kind::Port(..) => None,
        }
    }

    /// Closes memory that the configuration does not describe any more. Returns `true` if there was
    /// any.
    pub(super) fn drop_unwanted_queue_pairs(&mut self) -> bool {
        let wanted = self.wanted_queue_pairs();
        if wanted.is_none() {
            self.unused_queue_pairs = None;
        }
        self.queue_pairs.take_if(|held| wanted != Some(held.memory)).is_some()
    }
}

impl Control {
    /// Takes the memory for the queue pairs of a device. The same memory again changes nothing.
    pub(super) fn queue_pair_memory(&mut self, port: PortId, fds: Vec<OwnedFd>) {
        let unused = self.admit_queue_pairs(port, fds).err().map(|error| chain(&error));
        if let Some(why) = &unused {
            warn!(port = port.0, "its queue pairs are not used: {why}");
        }
        // Memory that nobody has asked for is no state of the device.
        if let Some(entry) = self.entries.get_mut(&port)
            && entry.wanted_queue_pairs().is_some()
        {
            entry.unused_queue_pairs = unused;
        }
    }

    /// Checks the memory, keeps it, and has the device use it.
    fn admit_queue_pairs(&mut self, port: PortId, fds: Vec<OwnedFd>) -> Result<(), RegionError> {
        let [file] = fds.try_into().map_err(|fds: Vec<OwnedFd>| {
            let got = fds.len();
            discard(fds);
            RegionError::Descriptors(got)
        })?;
        let entry = self.entries.get_mut(&port);
        let wanted = entry.as_ref().and_then(|entry| entry.wanted_queue_pairs());
        let (Some(entry), Some(memory)) = (entry, wanted) else {
            discard([file]);
            return Err(RegionError::Unwanted(port));
        };
        if entry.queue_pairs.as_ref().is_some_and(|held| held.memory == memory) {
            discard([file]);
            return Ok(());
        }
        if let Err(error) = check(&file, memory) {
            discard([file]);
            return Err(error);
        }
        let held = RegionFd { file, memory };
        self.vsock.set_region(port, &held)?;
        let held = entry.queue_pairs.insert(held);
        let QueuePairMemory { size, offset, .. } = held.memory;
        info!(port = port.0, %size, %offset, "the device has queue pairs");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    use taut_api::Bytes;

    use super::*;

    fn file(size: u64, seals: SealFlags) -> (OwnedFd, QueuePairMemory) {
        let file = memfd_create("queue-pairs", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, size).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        let inode = fstat(&file).unwrap().st_ino;
        (file, QueuePairMemory { inode, offset: Bytes::mib(2), size: Bytes::mib(4), ring: None })
    }

    fn refused(file: &OwnedFd, memory: QueuePairMemory) -> String {
        chain(&check(file, memory).unwrap_err())
    }

    #[test]
    fn only_the_configured_file_is_accepted_and_only_if_its_size_stays() {
        let (good, memory) = file(6 << 20, SEALS);
        check(&good, memory).unwrap();
        let held = RegionFd { file: good, memory };
        assert_eq!(held.place(), RegionPlace { offset: 2 << 20, len: 4 << 20, ring_len: None });
        check(held.file(), held.memory).unwrap();

        let (another, _) = file(6 << 20, SEALS);
        assert!(refused(&another, memory).contains("is not the file"));
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let (unsealed, memory) = file(6 << 20, seals);
            assert!(refused(&unsealed, memory).contains("size can be changed"));
        }
        for size in [0, (6 << 20) - 1, (6 << 20) + 1] {
            let (other, memory) = file(size, SEALS);
            assert_eq!(
                refused(&other, memory),
                format!("the file has {size} bytes, and not 6291456 as configured")
            );
        }
        let device = OwnedFd::from(std::fs::File::open("/dev/zero").unwrap());
        let inode = fstat(&device).unwrap().st_ino;
        assert!(refused(&device, QueuePairMemory { inode, ..memory }).contains("no memory file"));
        let huge = QueuePairMemory { size: Bytes(u64::MAX), ..held.memory };
        assert!(refused(held.file(), huge).contains("18446744073709551615"));
    }
}
