//! The counters file: created once per run directory, written by each fabric in turn, read here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use taut_api::fabric::PortId;
use taut_api::fabric::counters::VmciCounters;
use taut_api::fabric::counters::{
    FILE_SIZE, PORT_WORDS, PortCounters, WorkerCounters, port_base, worker_base,
};

/// The open counters file.
#[derive(Debug)]
pub(crate) struct Counters(File);

impl Counters {
    /// Opens the file, and creates it if there is none. All its pages exist afterwards: the fabric
    /// maps it, and a page that the file system had no room for would end the fabric.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.set_len(FILE_SIZE)?;
        match fallocate(&file, FallocateFlags::empty(), 0, FILE_SIZE) {
            // A file system that cannot is none that a run directory should be on.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(Self(file)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the file, for the fabric.
    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Reads a port's counters.
    pub(crate) fn read(&self, port: PortId) -> io::Result<PortCounters> {
        Ok(PortCounters::from_words(&self.words(port_base(port))?))
    }

    /// Reads a VMCI device's counters.
    pub(crate) fn read_vmci(&self, port: PortId) -> io::Result<VmciCounters> {
        Ok(VmciCounters::from_words(&self.words(port_base(port))?))
    }

    /// Reads a worker's counters.
    pub(crate) fn read_worker(&self, worker: usize) -> io::Result<WorkerCounters> {
        Ok(WorkerCounters::from_words(&self.words(worker_base(worker))?))
    }

    fn words<const N: usize>(&self, base: usize) -> io::Result<[u64; N]> {
        let mut bytes = vec![0; N * 8];
        self.0.read_exact_at(&mut bytes, base as u64 * 8)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
        }
        Ok(words)
    }

    /// Clears a port's counters before its number gets a new owner.
    pub(crate) fn clear(&self, port: PortId) -> io::Result<()> {
        self.0.write_all_at(&[0; PORT_WORDS * 8], port_base(port) as u64 * 8)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_file_has_all_its_pages_even_if_an_earlier_version_left_it_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters");
        File::create(&path).unwrap().set_len(FILE_SIZE).unwrap();
        let counters = Counters::open(&path).unwrap();
        assert!(path.metadata().unwrap().blocks() * 512 >= FILE_SIZE);
        assert_eq!(counters.read(PortId(7)).unwrap(), PortCounters::default());
    }
}
