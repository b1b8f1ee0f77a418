//! Settings of a measurement.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use taut_virtq::driver::burst::MAX_BURST;

use super::frames::{self, HEADERS, MAX_FLOWS, MAX_MACS};

/// The figure that is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// As many frames as the ring takes, from the first port to the second
    #[default]
    OneWay,
    /// As many frames as the rings take, in both directions
    BothWays,
    /// One frame at a time from the first port to the second: how long it takes
    Traversal,
}

/// The frames that are sent and the rings that they go through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The figure that is measured.
    pub mode: Mode,
    /// Bytes of a frame, without its checksum: [`HEADERS`] to 65,549. A frame above 1518 bytes is a
    /// TCP frame to be segmented.
    pub size: u32,
    /// Entries of each ring, a power of two.
    pub entries: u16,
    /// Frames of a burst, 1 to [`MAX_BURST`].
    pub burst: usize,
    /// Packed rings: asked for in options, agreed on in results.
    pub packed: bool,
    /// `IN_ORDER`: asked for in options, agreed on in results.
    pub in_order: bool,
    /// Flows (UDP source ports), 1 to [`MAX_FLOWS`].
    pub flows: u32,
    /// Destination MACs behind each port, 1 to [`MAX_MACS`].
    pub macs: u32,
    /// Write the first cache line of every frame sent, and read that of every frame received, even
    /// if all frames are alike.
    pub touch: bool,
    /// Frames that are written before the measurement, each in a buffer of its own, and sent in
    /// turn: flows then cost the generator nothing. 0 if frames are written while measuring.
    #[serde(default)]
    pub prepared: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mode: Mode::OneWay,
            size: 64,
            entries: 256,
            burst: 32,
            packed: false,
            in_order: true,
            flows: 1,
            macs: 1,
            touch: false,
            prepared: 0,
        }
    }
}

impl Setup {
    /// Returns an error for the first value that is out of its range.
    pub(super) fn check(&self) -> Result<()> {
        let in_range = |what, value: u32, least, most| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                bail!("{what} {value} is not in {least} to {most}")
            }
        };
        in_range("frame size", self.size, HEADERS, frames::LONGEST)?;
        in_range("burst", self.burst as u32, 1, MAX_BURST as u32)?;
        in_range("number of flows", self.flows, 1, MAX_FLOWS)?;
        in_range("number of MACs", self.macs, 1, MAX_MACS)?;
        in_range("ring size", self.entries.into(), 64, 4096)?;
        if !self.entries.is_power_of_two() {
            bail!("ring size {} is not a power of two", self.entries);
        }
        if self.prepared > 0 {
            in_range("number of prepared frames", self.prepared, 2 * u32::from(self.entries), MAX_FLOWS)?;
        }
        Ok(())
    }
}

/// The sockets of the switch, the frames that go through it, and the length of the measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The vhost-user sockets of the two ports.
    pub sockets: [PathBuf; 2],
    /// Listen on the sockets and have the switch connect; otherwise the switch listens.
    pub listen: bool,
    /// Frames and rings.
    pub setup: Setup,
    /// Time between two frames of [`Mode::Traversal`]. If it is not zero, the switch may fall
    /// asleep in it, and is kicked for each frame if it asks for that.
    pub pause: Duration,
    /// Length of each repeat.
    pub duration: Duration,
    /// Number of repeats.
    pub repeats: u32,
    /// Time before the first repeat in which the switch settles on the paths that it has learnt.
    pub settle: Duration,
    /// CPU of the generator.
    pub cpu: Option<usize>,
    /// CPU of the switch. The placement probe runs between both CPUs before and after each repeat.
    pub probe: Option<usize>,
    /// Use huge pages, which must have been reserved.
    pub huge_pages: bool,
    /// Measure before each repeat how fast this CPU copies as much memory in the same order.
    pub memcpy: bool,
}
