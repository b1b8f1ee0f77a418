//! The counters file: created once per run directory, written by each fabric in turn, read here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use taut_api::fabric::PortId;
use taut_api::fabric::connections::{self, RecordedConnection};
use taut_api::fabric::counters::{
    CONNECTION_WORDS, CONNECTIONS, FILE_SIZE, MAX_CONNECTIONS, PORT_WORDS, PortCounters, VmciCounters,
    WorkerCounters, port_base, worker_base,
};

use crate::process::huge_pages;

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
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        // The counters of all ports are read once a second, which costs less in huge pages.
        if let Err(error) = huge_pages::gather(file.as_fd(), FILE_SIZE as usize) {
            tracing::debug!(file = %path.display(), %error, "the counters file, or a part of it, stays in small pages");
        }
        Ok(Self(file))
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

    /// Reads the connections of VMCI sockets.
    pub(crate) fn connections(&self) -> io::Result<Vec<RecordedConnection>> {
        let about_all: [u64; CONNECTION_WORDS] = self.words(CONNECTIONS)?;
        let highest = about_all[connections::HIGHEST].min(MAX_CONNECTIONS as u64 - 1) as usize;
        let mut bytes = vec![0; highest * CONNECTION_WORDS * 8];
        self.0.read_exact_at(&mut bytes, (CONNECTIONS + CONNECTION_WORDS) as u64 * 8)?;
        let words = bytes.chunks_exact(CONNECTION_WORDS * 8).map(words_of);
        Ok(words.filter_map(|words| RecordedConnection::from_words(&words)).collect())
    }

    fn words<const N: usize>(&self, base: usize) -> io::Result<[u64; N]> {
        let mut bytes = vec![0; N * 8];
        self.0.read_exact_at(&mut bytes, base as u64 * 8)?;
        Ok(words_of(&bytes))
    }

    /// Clears a port's counters before its number gets a new owner.
    pub(crate) fn clear(&self, port: PortId) -> io::Result<()> {
        self.0.write_all_at(&[0; PORT_WORDS * 8], port_base(port) as u64 * 8)
    }
}

/// Reads the words of many ports, block by block: one call for each port would take longer, and
/// one for all ports would fill more memory than the processor's nearest cache has.
#[derive(Debug, Default)]
pub(crate) struct PortBlocks {
    /// Number of the block that was read last.
    block: Option<usize>,
    bytes: Vec<u8>,
}

impl PortBlocks {
    /// Ports of a block.
    const PORTS: usize = 16;
    /// Bytes of a block.
    const BYTES: usize = Self::PORTS * PORT_WORDS * 8;

    /// Begins a new reading.
    pub(crate) fn begin(&mut self) {
        self.block = None;
    }

    /// Returns the words of a port. A caller that asks for ports in the order of their numbers has
    /// each block read once.
    pub(crate) fn words(&mut self, counters: &Counters, port: PortId) -> io::Result<[u64; PORT_WORDS]> {
        let block = port.0 as usize / Self::PORTS;
        if self.block != Some(block) {
            self.block = None;
            self.bytes.resize(Self::BYTES, 0);
            counters.0.read_exact_at(&mut self.bytes, (block * Self::BYTES) as u64)?;
            self.block = Some(block);
        }
        let at = port.0 as usize % Self::PORTS * PORT_WORDS * 8;
        Ok(words_of(&self.bytes[at..]))
    }
}

/// The words in bytes of the file.
fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
    }
    words
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use taut_api::fabric::connections::{BY_RINGS, USED};
    use taut_api::fabric::counters::MAX_PORTS;
    use taut_api::vmci::Cid;

    use super::*;

    #[test]
    fn the_file_has_all_its_pages_even_if_an_earlier_version_left_it_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters");
        File::create(&path).unwrap().set_len(FILE_SIZE).unwrap();
        let counters = Counters::open(&path).unwrap();
        assert!(path.metadata().unwrap().blocks() * 512 >= FILE_SIZE);
        assert_eq!(counters.read(PortId(7)).unwrap(), PortCounters::default());
        assert_eq!(counters.connections().unwrap(), []);
    }

    #[test]
    fn words_of_ports_are_read_block_by_block() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters::open(&dir.path().join("counters")).unwrap();
        let write = |port: u16, value: u64| {
            let at = (port_base(PortId(port)) + 5) as u64 * 8;
            counters.file().write_all_at(&value.to_le_bytes(), at).unwrap();
        };
        let last = MAX_PORTS as u16 - 1;
        for port in [0, 15, 16, last] {
            write(port, u64::from(port) + 1);
        }
        let mut blocks = PortBlocks::default();
        let mut words = |port: u16| blocks.words(&counters, PortId(port)).unwrap();
        assert_eq!([0, 1, 15, 16, last, 0].map(|port| words(port)[5]), [1, 0, 16, 17, MAX_PORTS as u64, 1]);
        assert_eq!(words(last)[4], 0);
        write(last, 7);
        assert_eq!(words(last)[5], MAX_PORTS as u64, "the block was read before");
        blocks.begin();
        assert_eq!(blocks.words(&counters, PortId(last)).unwrap()[5], 7);
        rustix::fs::ftruncate(&counters.0, 100).unwrap();
        assert!(blocks.words(&counters, PortId(0)).is_err());
        assert!(blocks.words(&counters, PortId(last)).is_err(), "nothing is left of the block before");
    }

    #[test]
    fn connections_that_exist_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters::open(&dir.path().join("counters")).unwrap();
        let write = |number: usize, word: usize, value: u64| {
            let at = CONNECTIONS + number * CONNECTION_WORDS + word;
            counters.file().write_all_at(&value.to_le_bytes(), at as u64 * 8).unwrap();
        };
        write(0, connections::HIGHEST, 3);
        write(1, 0, USED | BY_RINGS[0]);
        write(1, 1, 7 << 32 | 0x50);
        write(3, 0, USED);
        // Not below the highest number.
        write(4, 0, USED);
        let read = counters.connections().unwrap();
        assert_eq!(read.iter().map(|each| each.ends[0].cid).collect::<Vec<_>>(), [Cid(7), Cid(0)]);
        assert!(read[0].ends[0].is_by_rings && !read[0].ends[1].is_by_rings && read[0].ends[0].port == 80);
        // A number that no fabric writes.
        write(0, connections::HIGHEST, u64::MAX);
        assert_eq!(counters.connections().unwrap().len(), 3);
    }
}
