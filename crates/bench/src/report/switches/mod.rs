//! Switches side by side: the results of `tools/bench-switch.sh` as a page with tables, and as a
//! picture.

mod page;
mod picture;

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

use super::PictureError;
use super::figures::median;
use crate::load::{Figures, Mode};

/// A file of results.
#[derive(Debug, Clone, Deserialize)]
pub struct SwitchResults {
    /// The machine.
    pub machine: Machine,
    /// All samples in order of time.
    pub samples: Vec<SwitchSample>,
}

/// A machine.
#[derive(Debug, Clone, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// The machine is a virtual machine itself.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// Distribution.
    pub os: String,
    /// Kernel.
    pub kernel: String,
    /// Version of taut.
    pub taut: String,
    /// Version of Open vSwitch.
    pub ovs: String,
    /// Version of DPDK.
    pub dpdk: String,
    /// Date as YYYY-MM-DD.
    pub date: String,
    /// Remark about the run.
    #[serde(default)]
    pub note: String,
}

/// One sample of one switch.
#[derive(Debug, Clone, Deserialize)]
pub struct SwitchSample {
    /// Name of the switch.
    pub switch: String,
    /// Which program generated the load.
    pub generator: Generator,
    /// The figure that was measured.
    pub mode: Mode,
    /// Bytes of a frame.
    pub size: u32,
    /// Packed rings.
    #[serde(default)]
    pub packed: bool,
    /// Flows.
    #[serde(default = "one")]
    pub flows: u32,
    /// The generator wrote the first cache line of each frame.
    #[serde(default)]
    pub touch: bool,
    /// How far apart the two cores were.
    pub state: Cores,
    /// Copying speed of memory in the same run.
    #[serde(default)]
    pub memcpy_gbyte_s: Option<f64>,
    /// Counts of the generator.
    #[serde(flatten)]
    pub figures: Figures,
}

const fn one() -> u32 {
    1
}

/// A program that generates load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// `taut bench switch`.
    Taut,
    /// A light generator that was not written with taut.
    Lgen,
    /// DPDK's virtio-user.
    Vgen,
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taut => "taut",
            Self::Lgen => "lgen",
            Self::Vgen => "vgen",
        })
    }
}

/// How far apart the generator's and the switch's core were, as the placement probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cores {
    /// They share a cache.
    Near,
    /// They are on different sockets.
    Far,
    /// The hypervisor moved one of them during the sample.
    Moved,
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Moved => "moved",
        })
    }
}

/// A kind of sample. Samples of one kind differ by the switch only and can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    generator: Generator,
    mode: Mode,
    packed: bool,
    touch: bool,
    flows: u32,
    size: u32,
}

impl Kind {
    fn of(sample: &SwitchSample) -> Self {
        let &SwitchSample { generator, mode, size, packed, flows, touch, .. } = sample;
        Self { generator, mode, packed, touch, flows, size }
    }

    fn name(&self) -> String {
        let rings = if self.packed { "packed" } else { "split" };
        let mode = match self.mode {
            Mode::OneWay => "one way",
            Mode::BothWays => "both ways, sum",
            Mode::Traversal => "one traversal",
        };
        let flows = match (self.flows, self.touch) {
            (1, false) => String::new(),
            (1, true) => ", first line written".to_owned(),
            (flows, _) => format!(", {flows} flows, 100 MACs"),
        };
        format!("{} B, {mode}, {rings}{flows}", self.size)
    }
}

impl SwitchResults {
    /// Returns the kinds that were measured, in order.
    fn kinds(&self) -> BTreeSet<Kind> {
        self.samples.iter().map(Kind::of).collect()
    }

    /// Returns the median of a figure over one switch's samples of a kind, with the cores in one
    /// state.
    fn median(
        &self,
        kind: &Kind,
        switch: &str,
        cores: Cores,
        of: impl Fn(&SwitchSample) -> Option<f64>,
    ) -> Option<f64> {
        let of_kind = |s: &&SwitchSample| s.switch == switch && s.state == cores && Kind::of(s) == *kind;
        median(self.samples.iter().filter(of_kind).filter_map(of).collect())
    }

    /// Returns the page, with a link to its picture.
    pub fn markdown(&self, picture: &str) -> String {
        page::render(self, picture)
    }

    /// Returns the picture: throughput of each switch by frame size, with the cores in the most
    /// frequent state.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }
}

#[cfg(test)]
mod tests;
