//! Rows: what is measured, on what, beside which rivals, with which bounds, and how.

mod results;

pub use results::{Outcome, Results};

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rival::Rival;

/// A row of a set.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Name, such as `SK3`.
    pub id: &'static str,
    /// The measured quantity.
    pub what: &'static str,
    /// Machines and settings on which it is measured.
    pub on: &'static str,
    /// Its goals. Each gets exactly one line in the results.
    pub goals: &'static [Goal],
    /// Measures it and records the figures of each goal. Goals that are not recorded when it ends,
    /// or fails, are not measured.
    pub run: fn(&mut Lab, &mut Results) -> Measured<()>,
}

impl Row {
    /// Returns the IDs of its goals that contain `part`.
    pub fn goals_with(&self, part: &str) -> Vec<&'static str> {
        self.goals.iter().map(|goal| goal.id).filter(|id| id.contains(part)).collect()
    }
}

/// A goal of a row.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// Name, such as `SK3-rr`.
    pub id: &'static str,
    /// Bounds of its figures, in the order in which the row records them.
    pub bounds: &'static [Bound],
    /// Rivals without which it is not measured.
    pub beside: &'static [Rival],
}

impl Goal {
    /// Makes a goal that is compared with no rival.
    pub const fn new(id: &'static str, bounds: &'static [Bound]) -> Self {
        Self { id, bounds, beside: &[] }
    }

    /// Makes a goal that takes these rivals.
    pub const fn beside(id: &'static str, bounds: &'static [Bound], beside: &'static [Rival]) -> Self {
        Self { id, bounds, beside }
    }
}
