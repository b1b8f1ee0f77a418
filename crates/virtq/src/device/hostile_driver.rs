//! A driver that breaks the rules: it writes its rings by hand. For the tests of all queues.

use proptest::prelude::*;

use crate::driver::{QueueLayout, Ram};
use crate::ring::packed::DESC_AVAIL;
use crate::ring::{DESC_NEXT, DESC_WRITE, Descriptor, desc_at, packed, split};

pub(super) const SIZE: u16 = 8;
pub(super) const RAM: u64 = 1 << 20;
pub(super) const BUFFER: u64 = Ram::START + 0x8000;

pub(super) const SPLIT: u64 = 0;

/// A queue whose areas are written by hand.
pub(super) struct Hostile {
    pub(super) ram: Ram,
    pub(super) layout: QueueLayout,
    /// [`SPLIT`] or `RING_PACKED`.
    pub(super) format: u64,
}

/// The content of a descriptor, in the order of the fields of a split ring.
pub(super) fn descriptor(addr: u64, len: u32, flags: u16, id_or_next: u16) -> Descriptor {
    Descriptor { addr, len, id_or_next, flags }
}

impl Hostile {
    pub(super) fn new(format: u64) -> Self {
        let mut ram = Ram::new(RAM).unwrap();
        let layout = QueueLayout::allocate(&mut ram, SIZE).unwrap();
        Self { ram, layout, format }
    }

    pub(super) fn poke(&self, addr: u64, bytes: &[u8]) {
        self.ram.memory().write(addr, bytes).unwrap();
    }

    /// Writes a descriptor of the queue or of an indirect table. In a packed queue it is available
    /// at once and its ID is its index.
    pub(super) fn descriptor(&self, table: u64, index: u16, content: Descriptor) {
        let words = if self.format == SPLIT {
            split::encode(content)
        } else {
            let flags = content.flags | DESC_AVAIL;
            packed::encode(Descriptor { flags, id_or_next: index, ..content })
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.poke(table + desc_at(index) as u64, &bytes);
    }

    /// Makes `heads` available. Descriptors of packed queues already are.
    pub(super) fn available(&self, heads: &[u16]) {
        if self.format != SPLIT {
            return;
        }
        for (position, head) in heads.iter().enumerate() {
            self.poke(self.layout.avail + split::avail_at(position as u16, SIZE) as u64, &head.to_le_bytes());
        }
        self.available_index(heads.len() as u16);
    }

    pub(super) fn available_index(&self, index: u16) {
        self.poke(self.layout.avail + split::INDEX as u64, &index.to_le_bytes());
    }
}

/// Random content of a ring.
#[derive(Debug)]
pub(super) struct Garbage {
    table: Vec<Descriptor>,
    heads: Vec<u16>,
    /// Content of indirect tables.
    indirect: Vec<Descriptor>,
    /// How far the available index is off.
    index_off: u16,
}

impl Garbage {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        let size = usize::from(SIZE);
        let index_off = prop_oneof![9 => Just(0u16), 1 => any::<u16>()];
        let parts = (
            proptest::collection::vec(nearly_right(), size),
            proptest::collection::vec(0..SIZE + 1, 0..=size),
            proptest::collection::vec(nearly_right(), 16),
            index_off,
        );
        parts.prop_map(|(table, heads, indirect, index_off)| Self { table, heads, indirect, index_off })
    }

    /// Writes it all.
    pub(super) fn write(&self, hostile: &Hostile) {
        for (index, content) in self.table.iter().enumerate() {
            hostile.descriptor(hostile.layout.desc, index as u16, *content);
        }
        // Tables wherever an indirect descriptor may point.
        for (index, content) in self.indirect.iter().enumerate() {
            let addr = self.table[index % self.table.len()].addr;
            if (Ram::START + 0x2000..Ram::START + RAM - 4096).contains(&addr) {
                hostile.descriptor(addr & !7, index as u16, *content);
            }
        }
        hostile.available(&self.heads);
        hostile.available_index((self.heads.len() as u16).wrapping_add(self.index_off));
    }
}

/// A descriptor that is nearly right, so that the checks let it pass far.
fn nearly_right() -> impl Strategy<Value = Descriptor> {
    let addr = prop_oneof![8 => Ram::START..Ram::START + RAM, 1 => any::<u64>()];
    let len = prop_oneof![8 => 0..3000u32, 1 => any::<u32>()];
    let flags = prop_oneof![3 => Just(0u16), 3 => Just(DESC_NEXT), 3 => Just(DESC_WRITE), 2 => 0..8u16];
    (addr, len, flags, 0..SIZE + 1)
        .prop_map(|(addr, len, flags, id_or_next)| descriptor(addr, len, flags, id_or_next))
}
