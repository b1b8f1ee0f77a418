//! A guest's memory that an input fills, surrounded by bytes that no guest may reach.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_virtq::counters::SharedWords;
use taut_virtq::{GuestMemory, RegionSpec};

/// Length of the file behind the guest's memory. Bytes outside the regions must never change.
pub(crate) const FILE_LEN: usize = 0x5000;
/// Difference between front-end addresses and guest addresses.
pub(crate) const USER: u64 = 0x7f00_0000_0000;
/// Guest address, file offset and length of the guest's regions. The second adjoins the first in
/// the guest's address space but not in the file. None begins or ends on a page boundary.
pub(crate) const REGIONS: [(u64, usize, usize); 3] =
    [(0x1000, 0x800, 0x2800), (0x3800, 0x3800, 0x800), (0x8000, 0x4800, 0x700)];
/// The parts of the file between the regions.
const GAPS: [Range<usize>; 4] = [0..0x800, 0x3000..0x3800, 0x4000..0x4800, 0x4f00..0x5000];
const GAP_BYTE: u8 = 0xc5;

/// Guest addresses of a ring's areas; all in the first region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Areas {
    pub(crate) desc: u64,
    pub(crate) avail: u64,
    pub(crate) used: u64,
}

pub(crate) const RINGS: [Areas; 2] = [
    Areas { desc: 0x1000, avail: 0x1200, used: 0x1280 },
    Areas { desc: 0x1400, avail: 0x1600, used: 0x1680 },
];
pub(crate) const TABLE: u64 = 0x1800;
pub(crate) const TABLE_ENTRIES: usize = 8;
pub(crate) const REST: u64 = 0x1900;
/// Largest queue for which the areas have room.
pub(crate) const MOST_ENTRIES: u16 = 32;

/// Memory and other state of a target, set up once per thread.
pub(crate) struct World {
    pub(crate) guest: Arc<GuestMemory>,
    /// The whole file as one region at address 0.
    file: Arc<GuestMemory>,
    image: Vec<u8>,
    /// Bytes in the memory of this process.
    pub(crate) bytes: Vec<u8>,
    pub(crate) null: File,
    /// The device's log for its successor.
    pub(crate) log: Arc<SharedWords>,
}

impl World {
    /// Sets up the memory, and `bytes` bytes in this process.
    pub(crate) fn new(bytes: usize) -> Self {
        let [file, log] = [(); 2].map(|()| {
            let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
            ftruncate(&file, FILE_LEN as u64).expect("its length");
            file
        });
        let specs = REGIONS.map(|(guest_addr, offset, size)| RegionSpec {
            guest_addr,
            user_addr: USER + guest_addr,
            size: size as u64,
            file_offset: offset as u64,
        });
        let whole = RegionSpec { guest_addr: 0, user_addr: 0, size: FILE_LEN as u64, file_offset: 0 };
        let map = |specs: &[RegionSpec]| {
            let files = vec![file.as_fd(); specs.len()];
            Arc::new(GuestMemory::map(specs, &files).expect("memory"))
        };
        Self {
            guest: map(&specs),
            file: map(&[whole]),
            image: vec![0; FILE_LEN],
            bytes: vec![0x5a; bytes],
            log: Arc::new(SharedWords::map(log.as_fd(), FILE_LEN / 8).expect("words")),
            null: File::options().write(true).open("/dev/null").expect("/dev/null"),
        }
    }

    /// Starts an image of the memory with zeros.
    pub(crate) fn begin(&mut self) {
        self.image.fill(0);
        for gap in GAPS {
            self.image[gap].fill(GAP_BYTE);
        }
    }

    /// Writes bytes into the image at an address of the first region.
    pub(crate) fn put(&mut self, addr: u64, bytes: &[u8]) {
        let at = Self::at(addr);
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Copies the image into the memory.
    pub(crate) fn end(&mut self) {
        self.file.write(0, &self.image).expect("the whole file");
    }

    /// File offset of an address in the first region.
    pub(crate) fn at(addr: u64) -> usize {
        let (start, offset, _) = REGIONS[0];
        offset + (addr - start) as usize
    }

    /// Writes a word of the file.
    pub(crate) fn write_word(&self, at: usize, value: u16) {
        self.file.write(at as u64, &value.to_le_bytes()).expect("inside the file");
    }

    pub(crate) fn read_word(&self, at: usize) -> u16 {
        let mut word = [0; 2];
        self.file.read(at as u64, &mut word).expect("inside the file");
        u16::from_le_bytes(word)
    }

    /// Checks that nothing outside the regions has changed.
    pub(crate) fn check_gaps(&mut self) {
        let Self { file, image, .. } = self;
        for gap in GAPS {
            let bytes = &mut image[gap.clone()];
            file.read(gap.start as u64, bytes).expect("inside the file");
            assert!(bytes.iter().all(|&byte| byte == GAP_BYTE), "bytes in {gap:x?} were written");
        }
    }
}
