//! A guest that breaks the rules of its ring, for tests of whoever must not be hurt by it.

use std::str::FromStr;

use anyhow::Result;
use taut_virtq::driver::Ram;

use crate::front_end::{Link, QueueEnds};

/// What is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hostility {
    /// The available index jumps beyond the ring.
    AvailIndex,
    /// Two descriptors point at each other.
    Loop,
    /// A buffer outside guest memory.
    Outside,
    /// Buffers that add up to more than any frame.
    Length,
    /// An indirect table within an indirect table.
    Indirect,
}

const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

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
    /// Writes garbage into the transmit queue of a link and kicks.
    pub(super) fn spoil(self, link: Link) -> Result<()> {
        let Link { mut ram, tx, .. } = link;
        let buffer = ram.allocate(65_536, 4096).unwrap_or(Ram::START);
        let end = Ram::START + ram.spec().size;
        let put = |index: u64, addr: u64, len: u32, flags: u16, next: u16| {
            descriptor(&ram, tx.layout.desc + 16 * index, addr, len, flags, next)
        };
        let mut available = 1;
        match self {
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
                descriptor(&ram, buffer, buffer, 32, INDIRECT, 0)?;
            }
        }
        make_available(&ram, &tx, available)?;
        Ok(())
    }
}

fn descriptor(ram: &Ram, at: u64, addr: u64, len: u32, flags: u16, next: u16) -> Result<()> {
    let mut bytes = addr.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    Ok(ram.memory().write(at, &bytes)?)
}

/// Makes `count` chains available that all start at descriptor 0: the ring's entries are zero.
fn make_available(ram: &Ram, queue: &QueueEnds, count: u16) -> Result<()> {
    ram.memory().write(queue.layout.avail + 2, &count.to_le_bytes())?;
    queue.kick.raise();
    Ok(())
}
