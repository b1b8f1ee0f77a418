//! SE1: acts of a hostile front end beside traffic.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SE1",
    what: "a hostile front end beside two ports that exchange frames and measure their delays",
    on: "external ports; passes of hostile sessions alternate with passes of honest ones",
    goals: &[
        Goal::new(
            "SE1-acts",
            &[
                Bound::AtLeast(40.0, "acts"),
                Bound::Exactly(0.0, "sessions without their effect"),
                Bound::Exactly(0.0, "deaths of the fabric"),
            ],
        ),
        Goal::new(
            "SE1-others",
            &[
                Bound::Exactly(0.0, "frames of others lost"),
                Bound::AtMost(15.0, "ms delay at most"),
                Bound::AtMost(1.0, "stalls of 5 ms and more per start of the port"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let sessions = lab.pick(10_000_u64, 600);
    let program = lab.example("taut-tests", "hostile")?;
    let command = lab.in_checkout(program).args(sessions.to_string()).preferred().record("hostile");
    let found = lab.run(&command)?.stdout.json()?;
    let number = |path: &str| found.number(path);
    let [hostile, honest] = ["hostile", "honest"];
    let performed = found.count("hostile.sessions")?;
    require(
        performed == sessions || lab.machine().is_stand_in(),
        format!("{performed} sessions instead of {sessions}"),
    )?;
    for kind in [hostile, honest] {
        require(
            number(&format!("{kind}.frames"))? > 0.0,
            format!("no frame arrived beside {kind} sessions"),
        )?;
    }
    let missing = number("acts")? - number("performed")?;
    let without = number("failed")?.max(missing);
    let detail = format!("{} sessions, {} starts of the port", performed, shown(number("starts")?));
    results.record("SE1-acts", [number("performed")?, without, number("deaths")?], detail);
    let longest = |kind: &str| number(&format!("{kind}.longest_ms")).map(shown);
    let p999 = |kind: &str| number(&format!("{kind}.p999_us")).map(shown);
    let detail = format!(
        "longest {} and {} ms, p99.9 {} and {} µs, stalls {} and {} beside hostile and honest sessions; {} and {} \
         frames",
        longest(hostile)?,
        longest(honest)?,
        p999(hostile)?,
        p999(honest)?,
        shown(number("hostile.stalls")?),
        shown(number("honest.stalls")?),
        shown(number("hostile.frames")?),
        shown(number("honest.frames")?),
    );
    let per_start = number("hostile.stalls")? / number("starts")?;
    let lost = number("hostile.lost")? + number("honest.lost")?;
    results.record("SE1-others", [lost, number("hostile.longest_ms")?, per_start], detail);
    Ok(())
}
