//! Setup of the two rings that the targets `ring` and `socket` work on, and what their driver
//! writes between operations.

use taut_virtq::{PositionLog, QueueConfig, Start, features};

use crate::input::Input;
use crate::world::{FILE_LEN, MOST_ENTRIES, REGIONS, REST, RINGS, TABLE, TABLE_ENTRIES, USER, World};

/// How the queues are set up.
pub(crate) struct Setup {
    pub(crate) features: u64,
    pub(crate) size: u16,
    pub(crate) start: u16,
    /// True if the queues start with [`Start::Recover`].
    pub(crate) recover: bool,
    /// True if descriptors are 16 raw bytes instead of 6 short ones.
    pub(crate) raw: bool,
    /// True if the receive queue lies on top of the transmit queue.
    pub(crate) same: bool,
    /// Index of an area, and the address that replaces its own.
    pub(crate) moved: Option<(u8, u64)>,
    /// Flags that a short descriptor can have.
    pub(crate) flags: u16,
}

/// The first bytes of an input, which say how the queues are set up.
pub(crate) struct Header {
    pub(crate) bits: u8,
    pub(crate) more: u8,
    size: u8,
    pub(crate) start: u16,
    moved: u8,
}

impl Header {
    pub(crate) fn read(input: &mut Input<'_>) -> Self {
        let [bits, more, size] = input.array();
        Self { bits, more, size, start: input.u16(), moved: input.u8() }
    }

    /// `feature` if `bit` is set in `bits`, otherwise no feature.
    pub(crate) fn feature(&self, bit: u8, feature: u64) -> u64 {
        if self.bits & bit != 0 { feature } else { 0 }
    }

    /// Number of entries: a power of two in most inputs. `rare`: further sizes, for the other
    /// borders.
    pub(crate) fn size(&self, rare: &[u16]) -> u16 {
        match self.size % 16 {
            shift @ 0..=5 => 1 << shift,
            6 => 0,
            7 => 3,
            other => rare.get(usize::from(other) - 8).copied().unwrap_or(8),
        }
    }

    pub(crate) fn setup(&self, features: u64, size: u16, start: u16, flags: u16) -> Setup {
        Setup {
            features,
            size,
            start,
            recover: self.bits & 64 != 0,
            raw: self.bits & 128 != 0,
            same: self.more & 1 != 0,
            // Around the ends of regions, and outside of them.
            moved: (self.more & 2 != 0)
                .then(|| (self.more >> 6, USER + 0x0f00 + (u64::from(self.moved) << 4))),
            flags,
        }
    }
}

impl Setup {
    pub(crate) fn packed(&self) -> bool {
        self.features & features::RING_PACKED != 0
    }

    pub(crate) fn first_start(&self) -> Start {
        if self.recover { Start::Recover } else { Start::At(self.start) }
    }

    pub(crate) fn config(&self, ring: usize, start: Start, log: Option<PositionLog>) -> QueueConfig {
        let ring = RINGS[ring];
        let mut areas = [ring.desc, ring.avail, ring.used].map(|addr| USER + addr);
        if let Some((which, addr)) = self.moved
            && let Some(area) = areas.get_mut(usize::from(which))
        {
            *area = addr;
        }
        let [desc, avail, used] = areas;
        QueueConfig { size: self.size, desc, avail, used, features: self.features, start, log }
    }

    /// Fills the memory with what the input says.
    pub(crate) fn fill(&self, world: &mut World, input: &mut Input<'_>) {
        world.begin();
        let entries = usize::from(self.size.min(MOST_ENTRIES));
        for ring in RINGS {
            self.descriptors(world, input, ring.desc, entries);
            world.put(ring.avail, input.slice(if self.packed() { 4 } else { 2 }));
            if !self.packed() {
                let index = self.start.wrapping_add(u16::from(input.u8()));
                world.put(ring.avail + 2, &index.to_le_bytes());
                for entry in 0..entries as u64 {
                    world.put(ring.avail + 4 + 2 * entry, &u16::from(input.u8()).to_le_bytes());
                }
            }
            // For a ring that goes on: what the device has returned so far.
            world.put(ring.used + 2, &self.start.to_le_bytes());
        }
        self.descriptors(world, input, TABLE, TABLE_ENTRIES);
        world.put(REST, input.slice((FILE_LEN - World::at(REST)).min(0x1700)));
        world.end();
    }

    fn descriptors(&self, world: &mut World, input: &mut Input<'_>, table: u64, count: usize) {
        for entry in 0..count as u64 {
            let bytes = if self.raw { input.array() } else { self.descriptor(input.array()) };
            world.put(table + 16 * entry, &bytes);
        }
    }

    /// The 16 bytes of a short descriptor: address, length, flags, and next or ID.
    fn descriptor(&self, [a, b, c, d, flags, link]: [u8; 6]) -> [u8; 16] {
        let (addr, len) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let (flags, link) = (u16::from(flags), u16::from(link));
        // In packed rings, AVAIL is bit 7 and USED is bit 15, which a short descriptor has as bit
        // 6.
        let flags = (flags & 0xbf | (flags & 0x40) << 9) & self.flags;
        let (third, fourth) = if self.packed() { (link, flags) } else { (flags, link) };
        let word = u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&u64::from(addr).to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        bytes
    }
}

/// A write of the driver between two operations of the device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DriverWrite {
    /// Writes anywhere in the first region.
    Anywhere,
    /// Writes into a descriptor.
    Descriptor,
    /// Makes more buffers available.
    Available,
}

impl DriverWrite {
    pub(crate) fn write(self, world: &World, packed: bool, at: u16, value: u16) {
        match self {
            Self::Anywhere => {
                let (start, _, len) = REGIONS[0];
                world.write_word(World::at(start) + usize::from(at) % (len - 1), value);
            }
            Self::Descriptor => {
                let descriptor = usize::from(at % MOST_ENTRIES) * 16 + usize::from(at >> 13) * 2;
                let ring = RINGS[usize::from(at >> 8) % 2];
                world.write_word(World::at(ring.desc) + descriptor, value);
            }
            Self::Available if packed => {
                let flags = World::at(RINGS[usize::from(at) % 2].desc) + usize::from(at >> 1) % 32 * 16 + 14;
                world.write_word(flags, value & 0x8087);
            }
            Self::Available => {
                let index = World::at(RINGS[usize::from(at) % 2].avail) + 2;
                world.write_word(index, world.read_word(index).wrapping_add(value % 8));
            }
        }
    }
}
