//! Switches side by side: what `tools/bench-switch.sh` found out, as a page with tables and as a picture.

mod page;
mod picture;

use std::collections::BTreeSet;

use serde::Deserialize;

use super::PictureError;
use crate::load::{Figures, Mode};

/// A file of results.
#[derive(Debug, Clone, Deserialize)]
pub struct SwitchResults {
    /// Where it was measured.
    pub machine: Machine,
    /// All samples, in the order of time.
    pub samples: Vec<SwitchSample>,
}

/// A machine.
#[derive(Debug, Clone, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// CPUs on line.
    pub cpus: u32,
    /// It is a virtual machine itself.
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
    /// Day, as YYYY-MM-DD.
    pub date: String,
    /// What else there is to know about the run.
    #[serde(default)]
    pub note: String,
}

/// One sample of one switch.
#[derive(Debug, Clone, Deserialize)]
pub struct SwitchSample {
    /// Which switch.
    pub switch: String,
    /// Which generator: `taut`, `lgen`, `vgen`.
    pub generator: String,
    /// What was measured.
    pub mode: Mode,
    /// Bytes of a frame.
    pub size: u32,
    /// Packed rings.
    #[serde(default)]
    pub packed: bool,
    /// Flows.
    #[serde(default = "one")]
    pub flows: u32,
    /// The generator wrote each frame's first line.
    #[serde(default)]
    pub touch: bool,
    /// How far apart the two cores were: `near`, `far`, or `moved` during the sample.
    pub state: String,
    /// Speed of memory beside it.
    #[serde(default)]
    pub memcpy_gbyte_s: Option<f64>,
    /// What was counted.
    #[serde(flatten)]
    pub figures: Figures,
}

const fn one() -> u32 {
    1
}

/// What is compared: samples that agree in all of it, but for the switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    generator: String,
    mode: u8,
    packed: bool,
    touch: bool,
    flows: u32,
    size: u32,
}

impl Kind {
    fn of(sample: &SwitchSample) -> Self {
        let SwitchSample { generator, mode, size, packed, flows, touch, .. } = sample;
        let (generator, packed, touch, flows, size) = (generator.clone(), *packed, *touch, *flows, *size);
        Self { generator, mode: *mode as u8, packed, touch, flows, size }
    }

    fn is_traversal(&self) -> bool {
        self.mode == Mode::Traversal as u8
    }

    fn name(&self) -> String {
        let rings = if self.packed { "packed" } else { "split" };
        let mode = match self.mode {
            mode if mode == Mode::OneWay as u8 => "one way",
            mode if mode == Mode::BothWays as u8 => "both ways, sum",
            _ => "one traversal",
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
    /// Kinds that were measured, in order.
    fn kinds(&self) -> BTreeSet<Kind> {
        self.samples.iter().map(Kind::of).collect()
    }

    /// Median of a figure over one switch's samples of a kind in one state.
    fn median(
        &self,
        kind: &Kind,
        switch: &str,
        state: &str,
        of: impl Fn(&SwitchSample) -> Option<f64>,
    ) -> Option<f64> {
        let of_kind = |s: &&SwitchSample| s.switch == switch && s.state == state && Kind::of(s) == *kind;
        let mut values: Vec<_> = self.samples.iter().filter(of_kind).filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(values[middle]),
            _ => Some(f64::midpoint(values[middle - 1], values[middle])),
        }
    }

    /// The page, with a link to its picture.
    pub fn markdown(&self, picture: &str) -> String {
        page::render(self, picture)
    }

    /// The picture: throughput of each switch by size, in the state that has most samples.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }
}

#[cfg(test)]
mod tests;
