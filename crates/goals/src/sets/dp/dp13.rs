//! DP13: hostile bytes at every border, found by coverage. `fuzz/RECORD.md` counts all executions
//! so far; this run adds its own.

use crate::figure::{Bound, Value, shown};
use crate::lab::Lab;
use crate::machine::Text;
use crate::reason::{Measured, NotMeasured};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "DP13",
    what: "hostile bytes at every border, found by coverage",
    on: "the programs of fuzz/",
    goals: &[Goal::new("DP13", &[Bound::AtLeast(1e8, "executions"), Bound::Exactly(0.0, "crashes now")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(600, 40);
    let command = lab.in_checkout("tools/fuzz.sh").args(format!("{seconds}")).record("fuzz");
    let ended = lab.machine().run(&command)?;
    let now = ended.stdout.number_between("FUZZ all ", " executions");
    // The last line is the sum of all targets.
    let crashes = ended.stdout.numbers_between(" inputs ", " crashes").map(|crashes| crashes.last().copied());
    let (Ok(now), Ok(Some(crashes))) = (now, crashes) else {
        ended.success()?;
        return Err(NotMeasured::because("tools/fuzz.sh printed no sum"));
    };
    // The script fails for a crash, which is counted; it may fail for something else.
    if crashes == 0.0 {
        ended.success()?;
    }
    let record = lab.setup().checkout.join("fuzz/RECORD.md");
    let recorded = recorded(&lab.read(record)?);
    let detail = format!("{} recorded, {} now", shown(recorded), shown(now));
    results.record("DP13", [Value::of(recorded + now), Value::of(crashes)], detail);
    Ok(())
}

/// Sum of the executions in the table of the record.
fn recorded(text: &Text) -> f64 {
    let executions = |line: &str| line.split('|').nth(3)?.trim().parse::<f64>().ok();
    text.lines().into_iter().filter_map(executions).fold(0.0, |sum, count| sum + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_added_up() {
        let text = "text | and | 7\n\n| target | sources | executions | edges |\n|---|---|---|---|\n\
                    | frame | 3d8ddb5b5f1f | 102095986 | 175 of 1076 |\n| ring | 3b52 | 14 | 1 of 2 |\n";
        assert!((recorded(&Text::from(text)) - 102_096_000.0).abs() < 0.5);
    }
}
