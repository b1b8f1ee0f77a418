//! Layout of a region: its first page, its channels, and the words and rings of a channel.

mod geometry;
#[cfg(test)]
mod tests;
mod word;

pub use geometry::{
    Geometry, HEADER_LEN, HeaderError, LEAST_REGION, LEAST_RING, MAGIC, MOST_REGION, MOST_RING, PAGE,
    RegionLenError, VERSION,
};
pub use word::{Direction, Role, Word};
