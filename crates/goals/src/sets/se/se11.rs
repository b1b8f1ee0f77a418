//! SE11: VMCI after kills of the fabric under five streams.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::guests::{start_daemon, two_micros};

pub(super) const ROW: Row = Row {
    id: "SE11",
    what: "VMCI after kills of the fabric under five streams",
    on: "two microguests",
    goals: &[Goal::new(
        "SE11",
        &[
            Bound::AtMost(100.0, "ms p99 until the listener is reached"),
            Bound::AtMost(200.0, "ms at most"),
            Bound::Exactly(0.0, "hung"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(500, 25);
    start_daemon(lab, "")?;
    two_micros(lab)?;
    let found = lab.under_streams("kill", times)?;
    // Each kill counts, with a time or as hung.
    let (reached, hung) = (found.number("reached")?, found.number("hung")?);
    let is_granted = lab.machine().takes_for_granted();
    let all = format!("{reached} times of {times} kills, {hung} hung");
    require(reached + hung >= f64::from(times) || is_granted, all)?;
    let [middle, p99, longest] = ["reached_ms.0", "reached_ms.1", "reached_ms.2"].map(|at| found.number(at));
    let [reset, last] = ["reset_ms.0", "reset_ms.2"].map(|at| found.number(at).map(shown));
    let detail = format!(
        "{times} kills; listener reached after {} ms (p50); streams reset after {}/{} ms (p50/longest)",
        shown(middle?),
        reset?,
        last?
    );
    results.record("SE11", [p99?, longest?, hung], detail);
    Ok(())
}
