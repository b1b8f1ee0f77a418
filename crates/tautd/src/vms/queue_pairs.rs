//! Memory for queue pairs (decision 0041): a file in memory that a VM's process has as its NVDIMM,
//! and that the fabric maps.
//!
//! The process keeps the file. A daemon that needs it, also after it was started anew, takes it
//! from there. The process may be hostile, so a descriptor counts only if it leads to the file that
//! was made for the VM.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create, open,
};
use serde::{Deserialize, Serialize};
use taut_api::Bytes;
use taut_api::fabric::config::QueuePairMemory;
use taut_api::vmci::VmciSpec;
use taut_queue_pair::{Geometry, dax, layout};
use taut_vm::launch::{self, Source};

// What users may ask for is what the memory may have.
const _: () = assert!(VmciSpec::QUEUE_PAIRS_OFFSET.0 == dax::DATA_OFFSET);
const _: () = assert!(VmciSpec::QUEUE_PAIRS.start().0 == layout::LEAST_REGION);
const _: () = assert!(VmciSpec::QUEUE_PAIRS.end().0 == layout::MOST_REGION);

/// Nobody can change the size of the file: an access to a page that was cut off would end the
/// fabric.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Name of the file, as `/proc` shows it.
const NAME: &str = "taut-queue-pairs";

/// The file of a running VM, for the next daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuePairFile {
    /// Number of its descriptor in the VM's process.
    descriptor: i32,
    /// Device of the file.
    device: u64,
    /// The file.
    pub(super) memory: QueuePairMemory,
}

/// Makes the file for queue pairs of this size: the block by which the guest's kernel finds them,
/// and their header.
pub(super) fn make(size: Bytes) -> io::Result<OwnedFd> {
    let geometry = Geometry::of(size.0).map_err(io::Error::other)?;
    let length = dax::memory_len(size.0);
    let block = dax::block(length).map_err(io::Error::other)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create(NAME, flags)?);
    file.set_len(length)?;
    file.write_all_at(&block, dax::BLOCK_OFFSET)?;
    file.write_all_at(&geometry.header(), dax::DATA_OFFSET)?;
    fcntl_add_seals(&file, SEALS)?;
    // The process opens it again, under a user of its own.
    file.set_permissions(Permissions::from_mode(0o666))?;
    Ok(file.into())
}

impl QueuePairFile {
    /// Finds the file among the descriptors that a process is given; `None` without queue pairs.
    pub(super) fn among(sources: &[Source], opened: &[OwnedFd]) -> io::Result<Option<Self>> {
        for ((source, fd), descriptor) in sources.iter().zip(opened).zip(launch::FIRST..) {
            if let Source::QueuePairs(size) = source {
                return Self::of(fd, descriptor, *size).map(Some);
            }
        }
        Ok(None)
    }

    /// Describes a file that no process has yet.
    pub(super) fn of_new(fd: impl AsFd, size: Bytes) -> io::Result<Self> {
        Self::of(fd, -1, size)
    }

    fn of(fd: impl AsFd, descriptor: i32, size: Bytes) -> io::Result<Self> {
        let found = fstat(fd)?;
        let offset = VmciSpec::QUEUE_PAIRS_OFFSET;
        let geometry = Geometry::of(size.0).map_err(io::Error::other)?;
        let ring = Some(Bytes(geometry.ring_len().into()));
        let memory = QueuePairMemory { inode: found.st_ino, offset, size, ring };
        Ok(Self { descriptor, device: found.st_dev, memory })
    }

    /// Describes the file for a process that has it by this descriptor.
    pub(super) fn with_descriptor(&self, descriptor: i32) -> Self {
        Self { descriptor, ..*self }
    }

    /// Finds the descriptor by which process `pid` has the file; `None` if it does not have it.
    pub(super) fn found_in(&self, pid: u32) -> io::Result<Option<i32>> {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let path = entry?.path();
            // Files with other names are not touched, because their file systems may not answer. A
            // descriptor that was closed meanwhile has no name.
            let is_named = fs::read_link(&path)
                .is_ok_and(|target| target.to_string_lossy().starts_with(&format!("/memfd:{NAME} ")));
            let number = path.file_name().and_then(|number| number.to_str()?.parse().ok());
            let Some(descriptor) = number.filter(|_| is_named) else { continue };
            if self.with_descriptor(descriptor).open(pid).is_ok() {
                return Ok(Some(descriptor));
            }
        }
        Ok(None)
    }

    /// Opens the file that process `pid` has. Touches no other one: opening it might wait.
    pub(super) fn open(&self, pid: u32) -> io::Result<OwnedFd> {
        let path = format!("/proc/{pid}/fd/{}", self.descriptor);
        let place = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&place)?;
        if (found.st_dev, found.st_ino) != (self.device, self.memory.inode) {
            let message = format!("descriptor {} of process {pid} is another file now", self.descriptor);
            return Err(io::Error::other(message));
        }
        let path = format!("/proc/thread-self/fd/{}", place.as_raw_fd());
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let seals = fcntl_get_seals(&file)?;
        if !seals.contains(SEALS) {
            return Err(io::Error::other(format!("its seals are {seals:?}, not {SEALS:?}")));
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const SIZE: Bytes = Bytes::mib(16);

    fn read<const N: usize>(file: &File, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    #[test]
    fn a_file_has_its_block_its_header_and_a_size_that_stays() {
        let file = File::from(make(SIZE).unwrap());
        let length = SIZE.0 + VmciSpec::QUEUE_PAIRS_OFFSET.0;
        assert_eq!(file.metadata().unwrap().len(), length);
        assert_eq!(read(&file, 4096), dax::block(length).unwrap());
        assert_eq!(&read::<16>(&file, 4096), b"NVDIMM_DAX_INFO\0");
        let header = read(&file, 2 << 20);
        assert_eq!(Geometry::read(&header, SIZE.0).unwrap(), Geometry::of(SIZE.0).unwrap());
        for other in [length - 1, length + 1] {
            assert!(file.set_len(other).is_err());
        }
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err(), "nobody can end its use either");
        for size in [Bytes(0), Bytes::mib(20), Bytes::mib(2048)] {
            assert!(make(size).is_err(), "{size}");
        }
    }

    #[test]
    fn the_file_is_taken_from_the_process_that_has_it() {
        let made = make(SIZE).unwrap();
        let other = File::open("/dev/null").unwrap();
        let sources = [Source::Listener(PathBuf::from("/x")), Source::QueuePairs(SIZE)];
        let opened = [other.into(), made];
        let record = QueuePairFile::among(&sources, &opened).unwrap().unwrap();
        assert_eq!((record.descriptor, record.memory.size), (launch::FIRST + 1, SIZE));
        assert_eq!(record.memory.file_size(), Bytes::mib(18));
        assert_eq!(QueuePairFile::among(&sources[..1], &opened[..1]).unwrap(), None);

        let [null, made] = opened;
        let of = |fd: &OwnedFd| QueuePairFile { descriptor: fd.as_raw_fd(), ..record };
        let own = std::process::id();
        let again = of(&made).open(own).unwrap();
        File::from(made.try_clone().unwrap()).write_all_at(b"bytes", 5 << 20).unwrap();
        assert_eq!(&read::<5>(&File::from(again), 5 << 20), b"bytes");

        let searched = |fd: &OwnedFd| QueuePairFile::of_new(fd, SIZE).unwrap().found_in(own).unwrap();
        assert_eq!(searched(&made), Some(made.as_raw_fd()));
        assert_eq!(searched(&null), None, "it has another name");

        // A process that was taken over puts something else in its place.
        let error = of(&null).open(own).unwrap_err().to_string();
        assert!(error.contains("is another file now"), "{error}");
        let unsealed = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let error = QueuePairFile::of(&unsealed, unsealed.as_raw_fd(), SIZE).unwrap().open(own).unwrap_err();
        assert!(error.to_string().contains("its seals are"), "{error}");
        assert!(of(&null).open(u32::MAX).is_err(), "it has ended");
    }
}
