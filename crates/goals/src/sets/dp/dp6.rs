//! DP6: 64 KiB TCP frames that stay whole, beside memcpy over as much memory: the same blocks in
//! the same turn, on the generator's CPU while it pauses, between the samples. The generator
//! touches headers only.

use super::beside::{ON, rates, spread};
use crate::figure::{Bound, Value, ratio, shown};
use crate::lab::Lab;
use crate::lab::rig::{Cell, Generator, PortGroup, Switch};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Bytes of a frame, of which the load speaks too.
const SIZE: f64 = 65549.0;
const LOAD: &str = "one-way 65549 --entries 64 --memcpy";

pub(super) const ROW: Row = Row {
    id: "DP6",
    what: "64 KiB TCP frames that stay whole, beside memcpy",
    on: ON,
    goals: &[Goal::new("DP6", &[Bound::AtLeast(70.0, "% of memcpy")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.with_rig(|lab, rig| {
        let cells = [Cell::new("taut", Switch::on(PortGroup::Offload), Generator::Taut, LOAD)];
        let rounds = rig.compare(lab, &cells, None)?;
        let rates_of = rounds.figures("taut", "mpps")?;
        let copied = rounds.figures("taut", "memcpy_gbyte_s")?;
        let mut shares = Vec::new();
        for (mpps, copied) in rates_of.iter().zip(&copied) {
            shares.push(100.0 * ratio(mpps * SIZE / 1000.0, *copied)?);
        }
        let gbyte: Vec<f64> = rates_of.iter().map(|mpps| mpps * SIZE / 1000.0).collect();
        let bytes = rounds.median("taut", "memcpy_bytes")?.value / f64::from(1 << 20);
        let detail = format!(
            "{}, memcpy {} of {} MiB that are read and as many written; {}",
            spread(&Value::median(&gbyte)?, "GB/s"),
            spread(&Value::median(&copied)?, "GB/s"),
            shown(bytes.round()),
            rates(&rounds, &["taut"])?
        );
        results.record("DP6", [Value::median(&shares)?], detail);
        Ok(())
    })
}
