//! SE13: fuzzing of every border that hostile bytes cross, by its record.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Text;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Targets that there must be.
const TARGETS: f64 = 14.0;
/// Executions of each target.
const EXECUTIONS: f64 = 5e6;

pub(super) const ROW: Row = Row {
    id: "SE13",
    what: "hostile bytes at every border cause no crash and exceed no budget of time and memory",
    on: "fuzz/RECORD.md: executions of the sources as they are",
    goals: &[Goal::new(
        "SE13",
        &[
            Bound::AtLeast(TARGETS, "targets"),
            Bound::AtLeast(EXECUTIONS, "executions of the least fuzzed target"),
            Bound::Exactly(0.0, "violations of a budget"),
            Bound::Exactly(0.0, "crashes"),
            Bound::Stated("of the instrumented edges covered"),
        ],
    )],
    run,
};

/// Sums of the record over all targets.
#[derive(Debug, PartialEq)]
struct Recorded {
    targets: f64,
    least: f64,
    over: f64,
    crashes: f64,
    covered: f64,
}

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let command = lab.in_checkout("tools/fuzz.sh").args("state").record("state");
    let state = lab.run(&command)?.stdout;
    let Recorded { targets, least, over, crashes, covered } = recorded(&state)?;
    let detail = format!("{} targets; edges by target are in fuzz/RECORD.md", shown(targets));
    results.record("SE13", [targets, least, over, crashes, covered], detail);
    Ok(())
}

/// Reads the lines of `tools/fuzz.sh state`. Targets without executions have a line, too.
fn recorded(state: &Text) -> Measured<Recorded> {
    let executions = state.numbers_between(" executions ", " edges")?;
    let covered: f64 = state.numbers_between(" edges ", " of ")?.iter().sum();
    let edges: f64 = state.numbers_between(" of ", " crashes")?.iter().sum();
    let crashes = state.numbers_between(" crashes ", " over budget")?.iter().sum();
    let over = state.numbers_between(" over budget ", "")?.iter().sum();
    require(!executions.is_empty() && edges > 0.0, "the record has nothing about the sources as they are")?;
    let least = executions.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Recorded { targets: executions.len() as f64, least, over, crashes, covered: covered / edges })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(target: &str, executions: u64, edges: [u32; 2], over: u32) -> String {
        let [covered, all] = edges;
        format!(
            "FUZZ-STATE {target} sources 0123456789ab executions {executions} edges {covered} of {all} \
             crashes 0 over budget {over}\n"
        )
    }

    #[test]
    fn the_least_fuzzed_target_counts_and_violations_add_up() {
        let state = [line("ring", 7_000_000, [100, 300], 1), line("vmx", 12, [50, 100], 2)].concat();
        let expected = Recorded { targets: 2.0, least: 12.0, over: 3.0, crashes: 0.0, covered: 0.375 };
        assert_eq!(recorded(&Text::from(state.as_str())).unwrap(), expected);
    }

    #[test]
    fn a_record_of_other_sources_is_no_measurement() {
        assert!(recorded(&Text::from(line("ring", 0, [0, 0], 0).as_str())).is_err());
        assert!(recorded(&Text::from("")).is_err());
    }
}
