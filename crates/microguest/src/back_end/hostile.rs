//! A guest that breaks the rules of its ring, for tests of the back end.

use std::str::FromStr;

use anyhow::Result;
use taut_bench::front_end::{Link, QueueEnds};
use taut_virtq::driver::Ram;
use taut_virtq::features;

/// A rule to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hostility {
    /// The available index jumps beyond the ring.
    AvailIndex,
    /// Two descriptors point at each other.
    Loop,
    /// A buffer outside guest memory.
    Outside,
    /// Buffers that add up to more than the longest frame.
    Length,
    /// An indirect table within an indirect table.
    Indirect,
}

const NEXT: u16 = 1;
const INDIRECT: u16 = 4;
/// Flag of an available descriptor in the first round of a packed ring.
const AVAILABLE: u16 = 1 << 7;

impl FromStr for Hostility {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "avail-index" => Self::AvailIndex,
            "loop" => Self::Loop,
            "outside" => Self::Outside,
            "length" => Self::Length,
            "indirect" => Self::Indirect,
            _ => return Err(format!("`{text}` is none of avail-index, loop, outside, length, indirect")),
        })
    }
}

impl Hostility {
    /// Writes invalid descriptors into the transmit queue of a link, and kicks.
    pub(crate) fn spoil(self, link: Link) -> Result<()> {
        let Link { mut ram, tx, features, .. } = link;
        let packed = features & features::RING_PACKED != 0;
        let buffer = ram.allocate(65_536, 4096).unwrap_or(Ram::START);
        let end = Ram::START + ram.spec().size;
        let put = |index: u16, addr: u64, len: u32, flags: u16, next: u16| {
            let at = tx.layout.desc + 16 * u64::from(index);
            let words = if packed { [index, flags | AVAILABLE] } else { [flags, next] };
            descriptor(&ram, at, addr, len, words)
        };
        let mut available = 1;
        match self {
            // A packed ring has no index: one chain of more descriptors than the ring has.
            Self::AvailIndex | Self::Loop if packed => {
                (0..tx.layout.size).try_for_each(|index| put(index, buffer, 100, NEXT, 0))?;
            }
            Self::AvailIndex => available = tx.layout.size + 1,
            Self::Loop => {
                put(0, buffer, 100, NEXT, 1)?;
                put(1, buffer, 100, NEXT, 0)?;
            }
            Self::Outside => put(0, end - 50, 100, 0, 0)?,
            Self::Length => {
                put(0, buffer, 65_536, NEXT, 1)?;
                put(1, buffer, 65_536, 0, 0)?;
            }
            Self::Indirect => {
                put(0, buffer, 32, INDIRECT, 0)?;
                let words = if packed { [0, INDIRECT] } else { [INDIRECT, 0] };
                descriptor(&ram, buffer, buffer, 32, words)?;
            }
        }
        if !packed {
            make_available(&ram, &tx, available)?;
        }
        tx.kick.raise();
        Ok(())
    }
}

/// Writes a descriptor. `words` are flags and next (split ring), or id and flags (packed ring).
fn descriptor(ram: &Ram, at: u64, addr: u64, len: u32, words: [u16; 2]) -> Result<()> {
    let mut bytes = addr.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    Ok(ram.memory().write(at, &bytes)?)
}

/// Makes `count` chains of a split ring available. All start at descriptor 0, because the ring's
/// entries are zero.
fn make_available(ram: &Ram, queue: &QueueEnds, count: u16) -> Result<()> {
    Ok(ram.memory().write(queue.layout.avail + 2, &count.to_le_bytes())?)
}
