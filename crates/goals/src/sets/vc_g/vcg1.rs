//! VC-G1: one session of 64 KiB messages between microguests whose programs write and read every
//! byte: beside vhost-device-vsock with the same microguests, TCP through the vSwitch, and memcpy.
//!
//! Each guest has 16 receive buffers of 64 KiB: as many as stay in a cache, and vhost-device-vsock
//! stalls with smaller ones. A note adds what the device alone achieves with programs that leave
//! the data alone, as generators of frames do.

use serde_json::json;

use super::cells::Cell;
use super::guests::{BUFFER, bench, start_daemon_of_micros, two_micros};
use super::rival::{BESIDE, start_micros};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds, Sample, paired};
use crate::row::{Goal, Results, Row};

const MESSAGE: u32 = 65536;
const WORDS: &str = "--message 64KiB --socket-size 256KiB";

pub(super) const ROW: Row = Row {
    id: "VC-G1",
    what: "one session of 64 KiB messages, written and read by the guests",
    on: "two microguests",
    goals: &[
        Goal::beside("VC-G1-rival", &[Bound::AtLeast(5.0, "x vhost-device-vsock")], BESIDE),
        Goal::new("VC-G1-tcp", &[Bound::AtLeast(3.0, "x TCP")]),
        Goal::new("VC-G1-memcpy", &[Bound::AtLeast(0.5, "x memcpy of 1 MiB")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let rounds = measure(lab, "on")?;
    let vmci = rounds.median("taut", "gbit_s")?.value;
    let of = |cell: &str, figure: &str| rounds.figures(cell, figure);
    let tcp = of("taut", "tcp_gbit_s")?;
    let detail = format!("{} Gbit/s, TCP {}", shown(vmci), shown(crate::figure::median(&tcp)?));
    results.record("VC-G1-tcp", [paired(&of("taut", "gbit_s")?, &tcp)?], detail);
    let memcpy = rounds.ratio("taut", "memcpy", "gbit_s")?;
    let copied = rounds.median("memcpy", "gbit_s")?.value;
    results.record("VC-G1-memcpy", [memcpy], format!("{} Gbit/s, memcpy {}", shown(vmci), shown(copied)));
    if lab.rival(BESIDE[0]).is_ok() {
        let rival = rounds.median("rival", "gbit_s")?.value;
        let detail = format!("{} Gbit/s, vhost-device-vsock {}", shown(vmci), shown(rival));
        results.record("VC-G1-rival", [rounds.ratio("taut", "rival", "gbit_s")?], detail);
    }
    // How far the cores are from each other comes and goes on virtual machines.
    let apart = rounds.figures("memcpy", "ping_pong_ns")?;
    lab.note(format!("a cache line's round trip between the cores in each round: {apart:.0?} ns"));
    lab.end_jobs();
    lab.stop_daemon()?;
    if let Err(reason) = note_device(lab) {
        lab.note(format!("the device alone was not measured: {reason}"));
    }
    Ok(())
}

/// Notes what the device alone achieves.
fn note_device(lab: &mut Lab) -> Measured<()> {
    let rounds = measure(lab, "off")?;
    let of = |cell: &str| rounds.median(cell, "gbit_s").map(|value| shown(value.value));
    let beside = of("rival").map_or_else(|reason| reason.to_string(), |rate| format!("{rate} Gbit/s"));
    let text = format!("the device alone {} Gbit/s, vhost-device-vsock {beside}", of("taut")?);
    lab.note(text);
    Ok(())
}

/// Measures rounds with microguests whose programs write and read data (`copy` is `on`) or not.
/// All guests run all the time: taut's, and the rival's if it is installed.
fn measure(lab: &mut Lab, copy: &str) -> Measured<Rounds> {
    let device = format!("{BUFFER},rx=16,tx=16,copy={copy}");
    start_daemon_of_micros(lab, &device)?;
    two_micros(lab)?;
    let rival = if lab.rival(BESIDE[0]).is_ok() { Some(start_micros(lab, &device)?) } else { None };
    let cells: &[&str] = if rival.is_some() { &["taut", "rival", "memcpy"] } else { &["taut", "memcpy"] };
    let rounds = lab.pick(7, 2);
    Rounds::take(Plan::exactly(rounds), cells, None, |cell| sample(lab, cell, rival.as_deref()))
}

fn sample(lab: &mut Lab, cell: &str, rival: Option<&str>) -> Measured<Sample> {
    let seconds = lab.pick(2, 1);
    let doc = match (cell, rival) {
        ("taut", _) => {
            let report = bench(lab, &format!("a b --against tcp {WORDS} --duration {seconds}"))?;
            json!({"gbit_s": Cell::of("vsock", MESSAGE).gbit_s(&report)?,
                   "tcp_gbit_s": Cell::of("tcp", MESSAGE).gbit_s(&report)?})
        }
        ("rival", Some(ends)) => {
            let report = bench(lab, &format!("{ends} {WORDS} --duration {seconds}"))?;
            json!({"gbit_s": Cell::of("vsock", MESSAGE).gbit_s(&report)?})
        }
        _ => {
            let report = lab.bench("raw --duration 1")?;
            let memcpy = report.find("memcpy", &[("size", "1048576")])?;
            json!({"gbit_s": memcpy.number("gbyte_s")? * 8.0,
                   "ping_pong_ns": report.number("ping_pong_ns.median")?})
        }
    };
    Ok(Sample::new(Doc::from(doc)))
}
