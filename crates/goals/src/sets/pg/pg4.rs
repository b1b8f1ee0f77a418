//! PG4: averages beside loads that are known.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG4",
    what: "averages of ports over five minutes and over each second beside what was sent within the time that they \
           cover; counters that begin anew with a killed fabric; clocks that are set forward and back (tests)",
    on: "twelve ports that send 1 to 5000 frames a second, a third of them in bursts",
    goals: &[
        Goal::new(
            "PG4-rates",
            &[
                Bound::AtMost(1.0, "% off over five minutes"),
                Bound::AtMost(5.0, "% off over a second"),
                Bound::Exactly(0.0, "negative rates"),
                Bound::AtMost(5.0, "s between two samples"),
            ],
        ),
        Goal::new(
            "PG4-killed",
            &[Bound::Exactly(0.0, "ports with a wrong count"), Bound::Exactly(0.0, "negative rates")],
        ),
        Goal::new(
            "PG4-clocks",
            &[
                Bound::AtLeast(2.0, "tests of timelines"),
                Bound::AtLeast(5.0, "tests of the daemon's samples"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = rates(lab, results);
    results.settle(&["PG4-rates", "PG4-killed"], outcome);
    let timelines = lab.cargo_test("-p taut-history --lib -- timeline::")?;
    let samples = lab.cargo_test("-p tautd -- statistics::")?;
    results.record("PG4-clocks", [timelines.passed, samples.passed], "none failed or skipped");
    Ok(())
}

fn rates(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(303_u64, 10);
    let program = lab.example("taut-tests", "statistics")?;
    let command = lab.in_checkout(program).args(format!("rates {seconds}")).record("rates");
    let found = lab.run(&command)?.stdout.json()?;
    let is_whole = found.count("seconds")? == seconds && found.count("ports")? == 12;
    require(is_whole || lab.machine().is_stand_in(), "the program lost count")?;
    let number = |name: &str| found.number(name);
    let values = [
        number("off_percent")?,
        number("second_off_percent")?,
        number("negative")?,
        number("longest_gap_ms")? / 1000.0,
    ];
    let [looks, p99] = [number("looks")?, number("second_off_p99_percent")?].map(shown);
    results.record("PG4-rates", values, format!("{looks} averages over a second, p99 {p99} % off"));
    let values = [number("killed.wrong")?, number("killed.negative")?];
    results.record("PG4-killed", values, format!("{} ports", shown(number("killed.ports")?)));
    Ok(())
}
