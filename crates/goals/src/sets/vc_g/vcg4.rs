//! VC-G4: QEMU guests with Debian's kernels, two of each: streams, and request and response, beside
//! the same guests on vhost-device-vsock and beside TCP through the vSwitch.
//!
//! vhost-device-vsock works up to 3500 B from VM to VM, so it is compared at 256 B and 3500 B. All
//! four guests, taut's and the rival's, run while either pair is measured.

use super::cells::Cell;
use super::guests::{bench, start_daemon, vm};
use super::rival::{BESIDE, start_vms};
use crate::figure::{Bound, shown};
use crate::lab::{Lab, NEWEST, OLDEST};
use crate::machine::Doc;
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds, Sample, paired};
use crate::row::{Goal, Results, Row};

const RIVAL: &[Bound] = &[Bound::AtLeast(1.0, "x vhost-device-vsock")];
const RIVAL_P50: &[Bound] = &[Bound::AtMost(1.0, "x vhost-device-vsock's p50")];
const TCP: &[Bound] = &[Bound::Above(1.0, "x TCP")];
const STATED: &[Bound] = &[Bound::Stated("x TCP")];

pub(super) const ROW: Row = Row {
    id: "VC-G4",
    what: "streams, and request and response, beside vhost-device-vsock and TCP",
    on: "two QEMU guests with Debian's oldest kernel, then two with the newest",
    goals: &[
        Goal::beside("VC-G4-oldest-256", RIVAL, BESIDE),
        Goal::beside("VC-G4-oldest-3500", RIVAL, BESIDE),
        Goal::beside("VC-G4-oldest-rr", RIVAL_P50, BESIDE),
        Goal::new("VC-G4-oldest-tcp-256", STATED),
        Goal::new("VC-G4-oldest-tcp-4096", STATED),
        Goal::new("VC-G4-oldest-tcp-65536", STATED),
        Goal::beside("VC-G4-newest-256", RIVAL, BESIDE),
        Goal::beside("VC-G4-newest-3500", RIVAL, BESIDE),
        Goal::beside("VC-G4-newest-rr", RIVAL_P50, BESIDE),
        Goal::new("VC-G4-newest-tcp-256", TCP),
        Goal::new("VC-G4-newest-tcp-4096", TCP),
        Goal::new("VC-G4-newest-tcp-65536", TCP),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    for (kernel, image) in [("oldest", OLDEST), ("newest", NEWEST)] {
        let outcome = measure(lab, results, kernel, image);
        results.settle(&ROW.goals_with(kernel), outcome);
        lab.end_jobs();
        lab.stop_daemon()?;
    }
    Ok(())
}

fn measure(lab: &mut Lab, results: &mut Results, kernel: &str, image: &str) -> Measured<()> {
    let version = lab.kernel_of(image)?;
    lab.note(format!("{kernel}: Linux {version}"));
    start_daemon(lab, "")?;
    vm(lab, "a", image, "10.82.0.1")?;
    vm(lab, "b", image, "10.82.0.2")?;
    if lab.rival(BESIDE[0]).is_ok() {
        let outcome = start_vms(lab).and_then(|ends| beside_rival(lab, results, kernel, &ends));
        let goals = ["256", "3500", "rr"].map(|what| format!("VC-G4-{kernel}-{what}"));
        let goals: Vec<&str> = goals.iter().map(String::as_str).collect();
        results.settle(&goals, outcome);
    }
    beside_tcp(lab, results, kernel)
}

/// Measures the pairs of guests in alternation.
fn beside_rival(lab: &mut Lab, results: &mut Results, kernel: &str, ends: &str) -> Measured<()> {
    let rounds = lab.pick(7, 2);
    for (what, words) in [
        ("256", "--message 256 --socket-size 256KiB"),
        ("3500", "--message 3500 --socket-size 256KiB"),
        ("rr", "--mode rr --message 256 --socket-size 256KiB"),
    ] {
        let figure = if what == "rr" { "p50_us" } else { "mbit_s" };
        let taken = Rounds::take(Plan::exactly(rounds), &["taut", "rival"], None, |cell| {
            let pair = if cell == "taut" { "a b" } else { ends };
            let seconds = lab.pick(3, 1);
            let report = bench(lab, &format!("{pair} {words} --duration {seconds}"))?;
            let message = if what == "3500" { 3500 } else { 256 };
            let value = Cell::of("vsock", message).median(&report, figure)?;
            Ok(Sample::new(Doc::from(serde_json::json!({ figure: value }))))
        })?;
        let [own, rival] = ["taut", "rival"].map(|cell| taken.median(cell, figure));
        let unit = if what == "rr" { "µs p50" } else { "Mbit/s" };
        let detail = format!("{} {unit}, vhost-device-vsock {}", shown(own?.value), shown(rival?.value));
        let ratio = taken.ratio("taut", "rival", figure)?;
        results.record(&format!("VC-G4-{kernel}-{what}"), [ratio], detail);
    }
    note_stall(lab, ends);
    Ok(())
}

/// Notes what vhost-device-vsock does with larger messages.
fn note_stall(lab: &mut Lab, ends: &str) {
    let words = format!("{ends} --message 4KiB --socket-size 256KiB --duration 1");
    let command = lab.bench_command(format!("vsock {words}")).preferred().limit(60);
    let rate = lab.bench_by(&command).and_then(|report| Cell::of("vsock", 4096).median(&report, "mbit_s"));
    let what = rate.map_or_else(|reason| format!("stalls: {reason}"), |rate| format!("{rate} Mbit/s"));
    lab.note(format!("vhost-device-vsock with messages of 4 KiB: {what}"));
}

fn beside_tcp(lab: &mut Lab, results: &mut Results, kernel: &str) -> Measured<()> {
    let (seconds, repeats) = lab.pick((3, 7), (1, 1));
    let words = "a b --message 256,4KiB,64KiB --socket-size 256KiB --against tcp";
    let report = bench(lab, &format!("{words} --duration {seconds} --repeat {repeats}"))?;
    for message in [256, 4096, 65536] {
        let [own, tcp] = ["vsock", "tcp"].map(|transport| Cell::of(transport, message));
        let ratio = paired(&own.figures(&report, "mbit_s")?, &tcp.figures(&report, "mbit_s")?)?;
        let [own, tcp] = [own, tcp].map(|cell| cell.median(&report, "mbit_s"));
        let detail = format!("{} Mbit/s, TCP {}", shown(own?), shown(tcp?));
        results.record(&format!("VC-G4-{kernel}-tcp-{message}"), [ratio], detail);
    }
    Ok(())
}
