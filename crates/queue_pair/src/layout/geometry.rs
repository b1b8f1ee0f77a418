//! Where the channels of a region are, and the header that says so.

use thiserror::Error;

use super::word::Direction;

/// First bytes of a region.
pub const MAGIC: [u8; 8] = *b"TAUTQPR1";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Length of a page, in bytes. The first page of a region has the header, the first page of a
/// channel has its words.
pub const PAGE: u64 = 4096;
/// Length of the header in bytes. The rest of its page is zero.
pub const HEADER_LEN: usize = 36;
/// Least length of a region, in bytes.
pub const LEAST_REGION: u64 = 4 << 20;
/// Greatest length of a region, in bytes.
pub const MOST_REGION: u64 = 1 << 30;
/// Least length of a ring, in bytes.
pub const LEAST_RING: u32 = 64 << 10;
/// Greatest length of a ring that a reader accepts, in bytes.
pub const MOST_RING: u32 = 1 << 20;
/// Greatest length of a region whose rings may be longer than [`SHORT_RING`], in bytes. Greater
/// regions are for many connections.
const MOST_WITH_LONG_RINGS: u64 = 256 << 20;
/// Length of the rings of greater regions, in bytes. Former versions of taut chose at most this
/// length for all.
const SHORT_RING: u32 = 256 << 10;
/// Offsets of the header's fields behind the magic, in bytes.
const VERSION_AT: usize = 0x08;
const CHANNELS_AT: usize = 0x0c;
const FIRST_AT: usize = 0x10;
const CHANNEL_LEN_AT: usize = 0x18;
const RING_LEN_AT: usize = 0x20;

/// Reason why a region of some length has no geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a region of {0} bytes for queue pairs is not possible; \
     its length is a power of two from 4 MiB to 1 GiB"
)]
pub struct RegionLenError(pub u64);

/// Reason why the first page of a region is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The page does not begin with [`MAGIC`].
    #[error("the memory does not begin with a header of queue pairs, but with {0:02x?}")]
    Magic([u8; 8]),
    /// The layout has another version.
    #[error("the layout of queue pairs has version {0}; this program knows version {VERSION}")]
    Version(u32),
    /// The length of the rings is not possible.
    #[error("rings of {0} bytes: their length is a power of two from {LEAST_RING} to {MOST_RING} bytes")]
    Ring(u32),
    /// The channels are shorter than their words and rings, or not a multiple of a page.
    #[error("channels of {len} bytes cannot have two rings of {ring} bytes each")]
    Channel {
        /// Length of a channel, in bytes.
        len: u64,
        /// Length of a ring, in bytes.
        ring: u32,
    },
    /// The first channel overlaps the header, or does not begin at a page.
    #[error("the first channel is at {0:#x}, which is no page behind the header")]
    First(u64),
    /// The channels do not lie in the memory, or there are none.
    #[error("{channels} channels of {len} bytes from {first:#x} on are not in {mapped} bytes of memory")]
    Outside {
        /// Number of channels.
        channels: u32,
        /// Length of a channel, in bytes.
        len: u64,
        /// Offset of the first channel, in bytes.
        first: u64,
        /// Length of the memory, in bytes.
        mapped: u64,
    },
}

/// Where the channels of a region are, and how long their rings are.
///
/// Invariant: all channels lie in the length that the geometry was made for; channels begin at
/// pages; the length of a ring is a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    channels: u32,
    first: u64,
    channel_len: u64,
    ring_len: u32,
}

impl Geometry {
    /// Chooses the geometry of a region of `len` bytes.
    pub const fn of(len: u64) -> Result<Self, RegionLenError> {
        if !len.is_power_of_two() || len < LEAST_REGION || len > MOST_REGION {
            return Err(RegionLenError(len));
        }
        Ok(Self::with_rings(len, if len <= MOST_WITH_LONG_RINGS { MOST_RING } else { SHORT_RING }))
    }

    /// The geometry of a region of `len` bytes that was made with rings of `ring_len` bytes;
    /// without a length, by a version of taut that chose at most 256 KiB. Returns `None` if a
    /// length is not possible.
    pub fn made_with(len: u64, ring_len: Option<u32>) -> Option<Self> {
        Self::of(len).ok()?;
        let Some(ring_len) = ring_len else { return Some(Self::with_rings(len, SHORT_RING)) };
        let is_possible = ring_len.is_power_of_two() && (LEAST_RING..=MOST_RING).contains(&ring_len);
        let geometry = is_possible.then(|| Self::with_rings(len, ring_len))?;
        (geometry.ring_len == ring_len).then_some(geometry)
    }

    /// The geometry of a region of `len` bytes, a possible length, whose rings have a 64th of it
    /// each, but at most `most` bytes.
    const fn with_rings(len: u64, most: u32) -> Self {
        // A power of two, as the length is one.
        let wanted = len / 64;
        let ring_len = if wanted < LEAST_RING as u64 {
            LEAST_RING
        } else if wanted > most as u64 {
            most
        } else {
            wanted as u32
        };
        let channel_len = PAGE + 2 * ring_len as u64;
        let channels = ((len - PAGE) / channel_len) as u32;
        Self { channels, first: PAGE, channel_len, ring_len }
    }

    /// Reads the header of a region of which `mapped` bytes are mapped. Everything that it says is
    /// checked.
    pub fn read(header: &[u8; HEADER_LEN], mapped: u64) -> Result<Self, HeaderError> {
        let magic = bytes_at(header, 0);
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        let version = u32_at(header, VERSION_AT);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let ring = u32_at(header, RING_LEN_AT);
        if !ring.is_power_of_two() || !(LEAST_RING..=MOST_RING).contains(&ring) {
            return Err(HeaderError::Ring(ring));
        }
        let len = u64_at(header, CHANNEL_LEN_AT);
        if len < PAGE + 2 * u64::from(ring) || !len.is_multiple_of(PAGE) {
            return Err(HeaderError::Channel { len, ring });
        }
        let first = u64_at(header, FIRST_AT);
        if first < PAGE || !first.is_multiple_of(PAGE) {
            return Err(HeaderError::First(first));
        }
        let channels = u32_at(header, CHANNELS_AT);
        let end = u64::from(channels).checked_mul(len).and_then(|all| all.checked_add(first));
        if channels == 0 || end.is_none_or(|end| end > mapped) {
            return Err(HeaderError::Outside { channels, len, first, mapped });
        }
        Ok(Self { channels, first, channel_len: len, ring_len: ring })
    }

    /// The header that describes this geometry.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..VERSION_AT].copy_from_slice(&MAGIC);
        header[VERSION_AT..CHANNELS_AT].copy_from_slice(&VERSION.to_le_bytes());
        header[CHANNELS_AT..FIRST_AT].copy_from_slice(&self.channels.to_le_bytes());
        header[FIRST_AT..CHANNEL_LEN_AT].copy_from_slice(&self.first.to_le_bytes());
        header[CHANNEL_LEN_AT..RING_LEN_AT].copy_from_slice(&self.channel_len.to_le_bytes());
        header[RING_LEN_AT..].copy_from_slice(&self.ring_len.to_le_bytes());
        header
    }

    /// A geometry with rings of any power of two of bytes, for tests.
    #[cfg(test)]
    pub(crate) fn small(channels: u32, ring_len: u32) -> Self {
        assert!(ring_len.is_power_of_two());
        let channel_len = (PAGE + 2 * u64::from(ring_len)).next_multiple_of(PAGE);
        Self { channels, first: PAGE, channel_len, ring_len }
    }

    /// Number of channels.
    pub const fn channels(&self) -> u32 {
        self.channels
    }

    /// Length of each ring, in bytes: a power of two.
    pub const fn ring_len(&self) -> u32 {
        self.ring_len
    }

    /// Length of each channel, in bytes.
    pub const fn channel_len(&self) -> u64 {
        self.channel_len
    }

    /// Offset of the end of the last channel in the region, in bytes. At most the region's length.
    pub const fn end(&self) -> u64 {
        self.first + self.channels as u64 * self.channel_len
    }

    /// Offset of a channel in the region, in bytes; `None` if there is no such channel.
    pub const fn channel(&self, index: u32) -> Option<u64> {
        if index < self.channels { Some(self.first + index as u64 * self.channel_len) } else { None }
    }

    /// Offset of a ring in its channel, in bytes.
    pub const fn ring(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Out => PAGE,
            Direction::In => PAGE + self.ring_len as u64,
        }
    }
}

fn bytes_at<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u32_at(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8; HEADER_LEN], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}
