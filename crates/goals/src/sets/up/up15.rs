//! UP15: captures: a whole TCP stream, and the cost for a switch on which nothing is captured.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};
use crate::sets::hs::before::programs_with;
use crate::sets::hs::cost::{BOUND, measure};

pub(super) const ROW: Row = Row {
    id: "UP15",
    what: "capture of a TCP stream, put together again from its frames; cost of captures for those who have none, beside a build without captures",
    on: "two namespaces; builds in alternation: switch, and VMCI sockets of microguests (streams on one pCPU)",
    goals: &[
        Goal::new(
            "UP15-stream",
            &[
                Bound::Exactly(1.0, "streams complete"),
                Bound::Exactly(0.0, "frames lost"),
                Bound::Stated("% of frames lost at full speed"),
            ],
        ),
        Goal::new("UP15-DP1-64", BOUND),
        Goal::new("UP15-DP3-packed", BOUND),
        Goal::new("UP15-DP3-both", BOUND),
        Goal::new("UP15-VC-G1", BOUND),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = stream(lab, results);
    results.settle(&["UP15-stream"], outcome);
    // This tree, in which no port is ever captured or mirrored, as the compiler knows.
    let old = programs_with(lab, "taut-fabric", "without-captures")?;
    measure(lab, results, &old, &ROW)
}

fn stream(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let mib = lab.pick(128_u64, 8);
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program).args(format!("capture {mib}")).record("capture");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("mib")? == mib || lab.machine().is_stand_in(), "the program lost count")?;
    let number = |name: &str| found.number(name);
    let values = [number("paced.complete")?, number("paced.lost")?, number("fast.lost_percent")?];
    let rates = [number("paced.mb_per_s")?, number("fast.mb_per_s")?].map(shown);
    results.record("UP15-stream", values, format!("{mib} MiB at {} and at {} MB/s", rates[0], rates[1]));
    Ok(())
}
