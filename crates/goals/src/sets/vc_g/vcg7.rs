//! VC-G7: kernels from 6.12.92 accept a limited number of packets of one connection before they
//! drop or reset. A microguest floods a slow reader on such a kernel with small messages; nothing
//! may be lost or reset.

use super::guests::{DOMAIN, bench, micro, start_daemon, vm};
use crate::figure::{Bound, shown};
use crate::lab::{Lab, NEWEST};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "VC-G7",
    what: "small messages to a slow reader",
    on: "a microguest, and a QEMU guest with Debian's newest kernel",
    goals: &[Goal::new(
        "VC-G7",
        &[
            Bound::Exactly(0.0, "connections reset"),
            Bound::Above(0.0, "Mbit/s at least, every byte compared"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(20, 4);
    start_daemon(lab, "")?;
    micro(lab, "a", "10.82.0.1", DOMAIN)?;
    vm(lab, "b", NEWEST, "10.82.0.2")?;
    let kernel = lab.kernel_of(NEWEST)?;
    let before = resets(lab)?;
    // Every byte is compared. The reader is emulated and asks for 16 bytes at a time, the writer is
    // not.
    let words = "a b --message 1,16,64,300 --receive 16 --check --socket-size 256KiB --sessions 1";
    let report = bench(lab, &format!("{words} --duration {seconds}"))?;
    let rates = report.numbers("cells", "median.mbit_s")?;
    let measured = rates.len() == 4 || lab.machine().takes_for_granted();
    require(measured, format!("{} of 4 message sizes were measured", rates.len()))?;
    let reset = resets(lab)? - before;
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let all: Vec<String> = rates.iter().map(|rate| shown(*rate)).collect();
    let detail = format!("Linux {kernel}; 1, 16, 64 and 300 B: {} Mbit/s", all.join(", "));
    results.record("VC-G7", [reset, slowest], detail);
    Ok(())
}

/// Connections of the reader that were reset so far.
fn resets(lab: &mut Lab) -> Measured<f64> {
    lab.vm_show("b")?.number("status.vmci.counters.resets")
}
