//! UP5: an uplink gets busy under load-based teaming, and flows under ip-hash.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP5",
    what: "two ports make an uplink busy until one of them moves; 1,000 flows under ip-hash",
    on: "two TAP devices as cards of 10 Mbit/s; ports with numbered frames at 5 and 4 Mbit/s",
    goals: &[
        Goal::new("UP5-first", &[Bound::AtLeast(30.0, "s after the load began")]),
        Goal::new(
            "UP5-move",
            &[
                Bound::AtMost(60.0, "s after the load began"),
                Bound::Exactly(0.0, "frames lost"),
                Bound::Exactly(0.0, "out of order"),
            ],
        ),
        Goal::new(
            "UP5-flows",
            &[
                Bound::AtMost(10.0, "% from an equal part"),
                Bound::Exactly(0.0, "flows by two uplinks"),
                Bound::Exactly(0.0, "packets lost"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (runs, flows) = lab.pick((5_u64, 1000_u64), (1, 1000));
    let program = lab.example("taut-tests", "uplinks")?;
    let command = lab.in_checkout(program.clone()).args(format!("load {runs}")).record("load");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("runs")? == runs || lab.machine().is_stand_in(), "the program lost count")?;
    let number = |name: &str| found.number(name);
    let detail = format!("{runs} moves, {} frames", shown(number("frames")?));
    results.record("UP5-first", [number("first_s")?], detail.clone());
    results.record("UP5-move", [number("last_s")?, number("lost")?, number("disordered")?], detail);
    let command = lab.in_checkout(program).args(format!("flows {flows}")).record("flows");
    let found = lab.run(&command)?.stdout.json()?;
    let number = |name: &str| found.number(name);
    let values = [number("spread_percent")?, number("strays")?, number("lost")?];
    results.record("UP5-flows", values, format!("{flows} flows, two packets each"));
    Ok(())
}
