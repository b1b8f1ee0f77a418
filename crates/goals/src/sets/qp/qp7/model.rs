//! The scenarios of the TCP program, and the model test.

use super::stage::{ADDRESS, COMMANDS, MODEL, MODEL_TCP};
use crate::figure::{ratio, shown};
use crate::lab::Lab;
use crate::machine::Text;
use crate::reason::Measured;
use crate::row::Results;
use crate::sets::qp::shells::{PRELOADED, shell_within};

/// What the model test says in its last line.
struct Summary {
    operations: f64,
    connections: f64,
    differences: f64,
    soft_resets: f64,
    not_writable: f64,
    short_reads: f64,
}

impl Summary {
    fn of(text: &Text) -> Measured<Self> {
        Ok(Self {
            operations: text.number_between("model: ", " operations")?,
            connections: text.number_between(" scenarios, ", " connections")?,
            differences: text.number_between(" connections, ", " differences")?,
            soft_resets: text.number_between(" differences, ", " resets as ends")?,
            not_writable: text.number_between(" resets as ends, ", " times not writable")?,
            short_reads: text.number_between(" times not writable, ", " short reads")?,
        })
    }

    fn detail(&self) -> String {
        format!(
            "{} connections; as documented: {} resets arrived as ends, {} times not writable, {} short results of readv",
            shown(self.connections),
            shown(self.soft_resets),
            shown(self.not_writable),
            shown(self.short_reads)
        )
    }
}

/// Runs the tests of the library, in which a fabric for tests moves the bytes.
pub(super) fn on_this_host(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let operations: u32 = lab.pick(1_000_000, 10_000);
    let test = |lab: &mut Lab, words: &str| {
        let words = format!("test -p taut-preload -- --nocapture --test-threads=1 {words}");
        let command = lab.in_checkout("cargo").args(words);
        command.env("TAUT_MODEL_OPERATIONS", operations.to_string())
    };
    // Only tests of scenarios are in no module.
    let command = test(lab, "--skip ::");
    let program = lab.tests_that_may_fail(&command.record("program"))?;
    results.record(
        "QP7-program",
        [program.failed, program.passed],
        "by packets, with gathering, and by rings",
    );

    let command = test(lab, "operations_are_the_same_by_rings_and_by_tcp");
    let text = lab.tests(&command.record("model"))?.text;
    let summary = Summary::of(&text)?;
    let attached = text.number_between("rings: ", " ends attached, ")?;
    let left = text.number_between(" ends attached, ", " have left")?;
    let part = summary.operations / f64::from(operations);
    // The test counts both ends.
    let share = ratio(attached, 2.0 * summary.connections)?;
    let values = [summary.differences, part, left, share, summary.connections];
    results.record("QP7-model", values, summary.detail());
    Ok(())
}

/// Runs the model test between two guests.
pub(super) fn in_guests(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let operations: u32 = lab.pick(100_000, 5000);
    let lines = format!(
        "{PRELOADED} tcp_program model drive {ADDRESS}:{MODEL_TCP} {ADDRESS}:{MODEL} {ADDRESS}:{COMMANDS} \
         {operations} 5 >model 2>said\ncat model\n\
         echo \"attached: $(grep -c 'in channel' said), left: $(grep -c 'by packets again' said).\""
    );
    let text = shell_within(lab, "client", 7200, &lines)?;
    let summary = Summary::of(&text)?;
    let attached = text.number_between("attached: ", ",")?;
    let share = ratio(attached, summary.connections)?;
    let left = text.number_between("left: ", ".")?;
    let scenarios = text.all_between("scenario ", ": ").len() as f64;
    let same = text.all_between("scenario ", ": same.").len() as f64;
    let part = summary.operations / f64::from(operations);
    let detail = format!("{}; {} of the client's ends had queue pairs", summary.detail(), shown(attached));
    let values = [summary.differences, part, scenarios - same, scenarios, left, share];
    results.record("QP7-model-guests", values, detail);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read_or_missing() {
        let line = "model: 10007 operations, 17 scenarios, 140 connections, 2 differences, 3 resets as ends, \
                    4 times not writable, 5 short reads, seed 5, 9 ms.";
        let summary = Summary::of(&Text::from(line)).unwrap();
        let all = [summary.operations, summary.connections, summary.differences, summary.soft_resets];
        assert_eq!(all.map(|number| number as u32), [10007, 140, 2, 3]);
        assert_eq!([summary.not_writable, summary.short_reads].map(|number| number as u32), [4, 5]);
        assert!(Summary::of(&Text::from("model: serves.")).is_err());
    }
}
