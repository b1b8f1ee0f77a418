//! Switches side by side: the results of `make bench-switch` as a page with tables, and as a
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
    /// Frames that were written before the measurement, each in a buffer of its own.
    #[serde(default)]
    pub prepared: u32,
    /// Round in which all switches were measured once.
    #[serde(default)]
    pub round: Option<u32>,
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
    prepared: u32,
    size: u32,
}

impl Kind {
    fn of(sample: &SwitchSample) -> Self {
        let &SwitchSample { generator, mode, size, packed, flows, touch, prepared, .. } = sample;
        Self { generator, mode, packed, touch, flows, prepared, size }
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
        let cold = if self.prepared > 0 { ", cold" } else { "" };
        format!("{} B, {mode}, {rings}{flows}{cold}", self.size)
    }
}

impl SwitchResults {
    /// Returns the kinds that were measured, in order.
    fn kinds(&self) -> BTreeSet<Kind> {
        self.samples.iter().map(Kind::of).collect()
    }

    /// Returns the samples of a kind with the cores in one state, of a switch that may have several
    /// names.
    fn samples<'a>(
        &'a self,
        kind: &'a Kind,
        names: &'a [&'a str],
        cores: Cores,
    ) -> impl Iterator<Item = &'a SwitchSample> {
        let is_wanted = move |sample: &&SwitchSample| {
            names.contains(&sample.switch.as_str()) && sample.state == cores && Kind::of(sample) == *kind
        };
        self.samples.iter().filter(is_wanted)
    }

    /// Returns a figure over the samples of a switch.
    fn figure(&self, kind: &Kind, names: &[&str], cores: Cores, of: &Of<'_>) -> Option<Figure> {
        Figure::of(self.samples(kind, names, cores).filter_map(of).collect())
    }

    /// Returns the ratio of two switches: of the medians of each round in which both were measured,
    /// or of all samples if these have no rounds.
    fn ratio(&self, kind: &Kind, [own, rival]: [&[&str]; 2], cores: Cores, of: &Of<'_>) -> Option<Figure> {
        let in_round = |names: &[&str], round: Option<u32>| {
            let samples = self.samples(kind, names, cores).filter(|sample| sample.round == round);
            median(samples.filter_map(of).collect())
        };
        let rounds: BTreeSet<Option<u32>> =
            self.samples(kind, own, cores).map(|sample| sample.round).collect();
        let ratios = rounds.into_iter().filter_map(|round| {
            let ratio = in_round(own, round)? / in_round(rival, round)?;
            ratio.is_finite().then_some(ratio)
        });
        Figure::of(ratios.collect())
    }

    /// Returns true if the generator was the limit of a switch's throughput: the ring was full in
    /// less than 90 % of its looks.
    fn is_limited_by_generator(&self, kind: &Kind, names: &[&str], cores: Cores) -> bool {
        let full = self.figure(kind, names, cores, &|sample| sample.figures.ring_full_percent);
        full.is_some_and(|full| full.median < 90.0)
    }

    /// Returns the page, with a link to its picture. The first of the earlier results that saw it
    /// shows a state of the cores that these did not see.
    pub fn markdown(&self, picture: &str, earlier: &[Self]) -> String {
        page::render(self, earlier, picture)
    }

    /// Returns the picture: throughput of each switch by frame size, with the cores in the most
    /// frequent state.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }
}

/// Finds a figure in a sample.
type Of<'a> = dyn Fn(&SwitchSample) -> Option<f64> + 'a;

/// A median with its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figure {
    median: f64,
    least: f64,
    greatest: f64,
    count: usize,
}

impl Figure {
    /// Returns the median and the spread of values; none without values.
    fn of(values: Vec<f64>) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        let greatest = values.iter().copied().reduce(f64::max)?;
        let count = values.len();
        Some(Self { median: median(values)?, least, greatest, count })
    }
}

#[cfg(test)]
mod tests;
