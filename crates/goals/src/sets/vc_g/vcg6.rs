//! VC-G6: random programs find on VMCI sockets what they find on Unix sockets (a test of the
//! fabric). Every byte of long streams between microguests is correct.

use super::guests::{BUFFER, bench, start_daemon_of_micros, two_micros};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

const GIB: f64 = 1_073_741_824.0;

pub(super) const ROW: Row = Row {
    id: "VC-G6",
    what: "the same as Unix sockets, and every byte correct",
    on: "the fabric's own test, and two microguests",
    goals: &[
        Goal::new(
            "VC-G6-model",
            &[Bound::AtLeast(1.0, "of the operations asked for"), Bound::AtLeast(1.0, "test passed")],
        ),
        Goal::new("VC-G6-sequence", &[Bound::AtLeast(1.0, "of the bytes asked for")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = model(lab, results);
    results.settle(&["VC-G6-model"], outcome);
    sequence(lab, results)
}

fn model(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let operations = lab.pick(1_000_000, 50_000);
    let test = "programs_find_what_they_find_with_unix_sockets";
    let command = lab
        .in_checkout("cargo")
        .args(format!("test -q --release -p taut-fabric --lib {test} -- --nocapture"))
        .env("TAUT_VMCI_OPERATIONS", operations.to_string())
        .record("model");
    let tests = lab.tests(&command)?;
    let done = tests.text.number_between("VMCI-MODEL operations=", " ")?;
    let figures = [done / f64::from(operations), tests.passed];
    results.record("VC-G6-model", figures, format!("{} operations without a difference", shown(done)));
    Ok(())
}

/// Moves bytes in runs of a few seconds. The receiver compares every byte, and the bench fails at
/// the first that is wrong.
fn sequence(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let wanted = lab.pick(100.0, 4.0);
    start_daemon_of_micros(lab, BUFFER)?;
    two_micros(lab)?;
    let (mut moved, mut seconds) = (0.0, 1.0_f64);
    while moved < wanted {
        let words = "a b --message 64,3000,64KiB,1MiB --socket-size 256KiB --sessions 5 --check";
        let report = bench(lab, &format!("{words} --duration {seconds:.2}"))?;
        let rates = report.numbers("cells", "median.mbit_s")?;
        let gib_s = rates.iter().sum::<f64>() * 125_000.0 / GIB;
        require(gib_s > 0.0, "the streams moved no byte")?;
        moved += gib_s * seconds;
        seconds = ((wanted - moved) / gib_s).clamp(1.0, 10.0);
    }
    let detail =
        format!("{} GiB in five sessions, messages of 64 B to 1 MiB, every byte compared", shown(moved));
    results.record("VC-G6-sequence", [moved / wanted], detail);
    Ok(())
}
