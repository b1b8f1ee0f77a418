//! UP8: cost of network I/O control.

use crate::figure::{Bound, ratio};
use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "UP8",
    what: "questions of a port that is alone, and decisions between 1,000 contending ports",
    on: "the rules alone, without ports or clock",
    goals: &[
        Goal::new("UP8-alone", &[Bound::AtMost(50.0, "instructions a frame")]),
        Goal::new("UP8-contended", &[Bound::AtMost(5.0, "ns a frame")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let frames = lab.pick(100_000_u32, 1000);
    let program = lab.example("taut-uplink", "cost_of_turns")?;
    let options = "--tool=callgrind --toggle-collect=cost_of_turns::ask --callgrind-out-file=/dev/null";
    let command = Command::new("valgrind").args(options).arg(&program).args(format!("alone {frames}"));
    let collected = lab.run(&command.record("callgrind"))?.stderr.number_between("Collected : ", "")?;
    results.record("UP8-alone", [ratio(collected, f64::from(frames))?], format!("{frames} frames"));
    let ended = lab.run(&Command::new(program).args("contended 1000").record("contended"))?;
    let ns = ended.stdout.number_between("], ", " ns a frame")?;
    results.record("UP8-contended", [ns], "turns of 32 frames of 64 B".to_owned());
    Ok(())
}
