//! QP5: microguests, at the speed of the device: one session beside memcpy and vhost-device-vsock,
//! and what the device alone moves when its programs leave the bytes alone.

use serde_json::json;

use crate::figure::{Bound, Value, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds, Sample};
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::{BUFFER, bench, start_daemon_of_micros, two_micros};
use crate::sets::vc_g::rival::{BESIDE, start_micros};

const ALONE: [(&str, u32); 3] = [("QP5-alone-64", 64), ("QP5-alone-4096", 4096), ("QP5-alone-65536", 65536)];

pub(super) const ROW: Row = Row {
    id: "QP5",
    what: "one session of 64 KiB messages that programs write and read, and the device alone",
    on: "two microguests",
    goals: &[
        Goal::new("QP5-memcpy", &[Bound::AtLeast(0.25, "x memcpy of 1 MiB")]),
        Goal::beside("QP5-rival", &[Bound::AtLeast(3.5, "x vhost-device-vsock")], BESIDE),
        Goal::new(ALONE[0].0, &[Bound::AtLeast(1.0, "Gbit/s")]),
        Goal::new(ALONE[1].0, &[Bound::AtLeast(40.0, "Gbit/s")]),
        Goal::new(ALONE[2].0, &[Bound::AtLeast(100.0, "Gbit/s")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = written_and_read(lab, results);
    results.settle(&["QP5-memcpy", "QP5-rival"], outcome);
    lab.end_jobs();
    lab.stop_daemon()?;
    alone(lab, results)
}

/// Measures programs that write and read every byte. All guests run all the time.
fn written_and_read(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let device = format!("{BUFFER},rx=16,tx=16,copy=on");
    start_daemon_of_micros(lab, &device)?;
    two_micros(lab)?;
    let rival = if lab.rival(BESIDE[0]).is_ok() { Some(start_micros(lab, &device)?) } else { None };
    let cells: &[&str] = if rival.is_some() { &["taut", "rival", "memcpy"] } else { &["taut", "memcpy"] };
    let rounds = Rounds::take(Plan::exactly(lab.pick(7, 2)), cells, None, |cell| {
        let seconds = lab.pick(2, 1);
        let ends = match (cell, &rival) {
            ("taut", _) => "a b",
            ("rival", Some(ends)) => ends,
            _ => return Ok(Sample::new(Doc::from(json!({ "gbit_s": memcpy_gbit_s(lab)? })))),
        };
        let words = format!("{ends} --message 64KiB --socket-size 256KiB --duration {seconds}");
        let rate = Cell::of("vsock", 65536).gbit_s(&bench(lab, &words)?)?;
        Ok(Sample::new(Doc::from(json!({ "gbit_s": rate }))))
    })?;
    let own = shown(rounds.median("taut", "gbit_s")?.value);
    for (goal, beside, name) in
        [("QP5-memcpy", "memcpy", "memcpy"), ("QP5-rival", "rival", "vhost-device-vsock")]
    {
        if cells.contains(&beside) {
            let detail = format!("{own} Gbit/s, {name} {}", shown(rounds.median(beside, "gbit_s")?.value));
            results.record(goal, [rounds.ratio("taut", beside, "gbit_s")?], detail);
        }
    }
    Ok(())
}

/// Measures memcpy of 1 MiB on this machine, on which microguests run without emulation.
fn memcpy_gbit_s(lab: &mut Lab) -> Measured<f64> {
    let report = lab.bench("raw --duration 1")?;
    Ok(report.find("memcpy", &[("size", "1048576")])?.number("gbyte_s")? * 8.0)
}

/// Measures programs that leave the bytes alone, as generators of frames do.
fn alone(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    start_daemon_of_micros(lab, &format!("{BUFFER},rx=16,tx=16,copy=off"))?;
    two_micros(lab)?;
    let (seconds, repeats) = lab.pick((2, 7), (1, 1));
    let words = "a b --message 64,4KiB,64KiB --socket-size 256KiB";
    let report = bench(lab, &format!("{words} --duration {seconds} --repeat {repeats}"))?;
    let memcpy = shown(memcpy_gbit_s(lab)?);
    for (goal, message) in ALONE {
        let rates = Cell::of("vsock", message).figures(&report, "mbit_s")?;
        let rates: Vec<f64> = rates.into_iter().map(|rate| rate / 1000.0).collect();
        results.record(goal, [Value::median(&rates)?], format!("memcpy of 1 MiB {memcpy} Gbit/s"));
    }
    Ok(())
}
