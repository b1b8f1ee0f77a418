//! A row on this machine whose bench is a shell script that misbehaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use taut_goals::figure::{Bound, Value, Verdict};
use taut_goals::lab::{Lab, Setup};
use taut_goals::machine::ThisMachine;
use taut_goals::reason::Measured;
use taut_goals::row::{Goal, Outcome, Results, Row};
use taut_goals::run::run_row;

/// A row that would be met if what is missing counted as 0.
const ROW: Row = Row {
    id: "T",
    what: "losses and a ratio",
    on: "a shell script",
    goals: &[
        Goal::new("T-lost", &[Bound::Exactly(0.0, "lost")]),
        Goal::new("T-time", &[Bound::AtMost(1.0, "x")]),
        Goal::new("T-file", &[Bound::AtMost(9.0, "ms")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let report = lab.bench("ping a b")?;
    let outcome = report.sum("repeats", "lost").map(|lost| results.record("T-lost", [lost], ""));
    results.settle(&["T-lost"], outcome);
    let ratios = report.number("a").and_then(|a| Value::median(&[a / report.number("b")?]));
    let outcome = ratios.map(|ratio| results.record("T-time", [ratio], ""));
    results.settle(&["T-time"], outcome);
    let file = lab.fresh("shaping.txt")?;
    let command = lab.taut_command("shaping").arg(&file);
    lab.run(&command)?;
    lab.written(&file)?;
    let took = lab.read(&file)?.number_between("took ", " ms")?;
    results.record("T-file", [took], "");
    Ok(())
}

/// Runs the row with this script in the place of `taut`.
fn drive(script: &str, results: &Path) -> Vec<Outcome> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("taut");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = |path: &Path| path.to_owned();
    let setup = Setup {
        programs: folder(dir.path()),
        images: folder(dir.path()),
        checkout: folder(dir.path()),
        quick: true,
    };
    run_row(&mut ThisMachine::new(dir.path()), &setup, &ROW, results)
}

const GOOD: &str = r#"if [ "$1" = shaping ]; then echo "took 3 ms" >"$2"
else echo '{"repeats": [{"lost": 0}, {"lost": 0}], "a": 1, "b": 2}'; fi"#;

#[test]
fn a_bench_that_measures_is_believed() {
    let results = tempfile::tempdir().unwrap();
    let lines: Vec<String> = drive(GOOD, results.path()).iter().map(Outcome::to_string).collect();
    let expected = [
        "GOAL T-lost 0 lost (= 0 lost) met [quick]",
        "GOAL T-time 0.500 x [0.500–0.500, 1] (<= 1 x) met [quick]",
        "GOAL T-file 3 ms (<= 9 ms) met [quick]",
    ];
    assert_eq!(lines, expected);
    let kept = fs::read_to_string(results.path().join("001-ping.out")).unwrap();
    assert!(kept.contains("repeats"));
}

#[test]
fn a_bench_that_does_not_measure_is_not_met() {
    for script in [
        // The bench fails, with a result and without one.
        &format!("{GOOD}\nexit 1"),
        "exit 1",
        "kill -9 $$",
        // The bench writes nothing, or half of it.
        "true",
        "echo '{\"repeats\": [{\"lost\": 0}'",
        // Fields are null, NaN, absent, empty, texts, or infinite.
        "echo null",
        "echo '{\"repeats\": [{\"lost\": null}], \"a\": null, \"b\": null}'",
        "echo '{\"repeats\": [{\"lost\": NaN}], \"a\": NaN, \"b\": 1}'",
        "echo '{}'",
        "echo '{\"repeats\": [], \"a\": 1, \"b\": 0}'",
        "echo '{\"repeats\": \"0\", \"a\": \"1\", \"b\": \"2\"}'",
        "echo '{\"repeats\": [{\"lost\": 1e999}], \"a\": 0, \"b\": 0}'",
    ] {
        let results = tempfile::tempdir().unwrap();
        for outcome in drive(script, results.path()) {
            assert!(matches!(outcome.verdict, Verdict::NotMeasured(_)), "{script}:\n{outcome}");
        }
    }
}

#[test]
fn files_of_an_earlier_run_do_not_stand_in() {
    let results = tempfile::tempdir().unwrap();
    fs::write(results.path().join("001-ping.out"), "{\"repeats\": [{\"lost\": 0}], \"a\": 1, \"b\": 2}")
        .unwrap();
    fs::write(results.path().join("shaping.txt"), "took 3 ms\n").unwrap();
    for outcome in drive(GOOD, results.path()) {
        assert!(matches!(outcome.verdict, Verdict::NotMeasured(_)), "{outcome}");
    }
    // A bench that says it has written its file and has not.
    let results = tempfile::tempdir().unwrap();
    let outcomes = drive("echo '{\"repeats\": [{\"lost\": 0}], \"a\": 1, \"b\": 2}'", results.path());
    assert!(matches!(outcomes[2].verdict, Verdict::NotMeasured(_)), "{}", outcomes[2]);
}
