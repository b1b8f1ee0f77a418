//! SE15: CPU time that confinement adds to a start, on hosts with few and with many mounts.

use crate::figure::{Bound, Value, ratio, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Samples of each kind, at least.
const LEAST: usize = 30;

pub(super) const ROW: Row = Row {
    id: "SE15",
    what: "CPU time that confinement adds to a start",
    on: "the launcher with all walls of a VM, beside the same program as it is; hosts with 10 and 500 mounts more",
    goals: &[Goal::new(
        "SE15",
        &[
            Bound::AtMost(10.0, "ms with 10 mounts"),
            Bound::AtMost(10.0, "ms with 500 mounts"),
            Bound::AtMost(1.2, "x with 500 as with 10"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let starts = lab.pick("200", "40");
    let words = "test --release -p taut-launch --test launch -- --nocapture cost::";
    let command = lab.in_checkout("cargo").args(words).env("TAUT_LAUNCH_STARTS", starts).record("cost");
    let text = lab.tests(&command)?.text;
    // One line a round: what the launcher added to the program's own CPU time.
    let [few, many] =
        ["10", "500"].map(|mounts| text.numbers_between(&format!("added with {mounts} mounts: "), " µs"));
    let (few, many) = (few?, many?);
    let is_granted = lab.machine().takes_for_granted();
    let is_enough = few.len() >= LEAST && few.len() == many.len();
    require(is_enough || is_granted, format!("{} and {} samples, not {LEAST}", few.len(), many.len()))?;
    let ratios: Measured<Vec<f64>> = few.iter().zip(&many).map(|(few, many)| ratio(*many, *few)).collect();
    let ms = |samples: &[f64]| -> Vec<f64> { samples.iter().map(|us| us / 1000.0).collect() };
    let own = text.numbers_between("the program alone: ", " µs")?;
    let detail = format!("the program alone takes {} ms", shown(Value::median(&ms(&own))?.value));
    let values = [Value::median(&ms(&few))?, Value::median(&ms(&many))?, Value::median(&ratios?)?];
    results.record("SE15", values, detail);
    Ok(())
}
