//! VC-G11: the fabric is upgraded under five streams, and killed under five streams. Linux guests
//! beside them must not notice.

use super::cells::Cell;
use super::guests::{bench, start_daemon, two_micros, vm};
use crate::figure::{Bound, shown};
use crate::lab::{Lab, NEWEST, OLDEST};
use crate::machine::Doc;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "VC-G11",
    what: "upgrades and kills of the fabric under five streams",
    on: "two microguests, and two QEMU guests with Debian's oldest and newest kernel",
    goals: &[
        Goal::new("VC-G11-upgrade", &[Bound::Exactly(0.0, "streams that are not byte-exact")]),
        Goal::new(
            "VC-G11-kill",
            &[
                Bound::Exactly(0.0, "streams hung"),
                Bound::Below(200.0, "ms at most until the listener is reached"),
            ],
        ),
        Goal::new(
            "VC-G11-qemu",
            &[
                Bound::Exactly(0.0, "processes changed"),
                Bound::Exactly(0.0, "devices plugged in again"),
                Bound::Stated("µs p50 afterwards"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    start_daemon(lab, "")?;
    two_micros(lab)?;
    vm(lab, "c", OLDEST, "10.82.0.3")?;
    vm(lab, "d", NEWEST, "10.82.0.4")?;
    let before = [lab.vm_pid("c")?, lab.vm_pid("d")?];

    let times = lab.pick(100, 10);
    let upgraded = lab.under_streams("upgrade", times)?;
    let errors = upgraded.list("errors")?.len();
    let gib = shown(upgraded.number("bytes")? / 1_073_741_824.0);
    let [upgrades, streams] = ["upgrades", "streams"].map(|name| upgraded.number(name).map(shown));
    let detail = format!("{} upgrades, {} streams of {gib} GiB, every byte compared", upgrades?, streams?);
    results.record("VC-G11-upgrade", [errors as f64], detail);

    let killed = lab.under_streams("kill", times)?;
    let [kills, reset, longest] =
        ["kills", "reset_ms.0", "reset_ms.1"].map(|name| killed.number(name).map(shown));
    let detail = format!("{} kills; streams reset after {}/{} ms (p50/p99)", kills?, reset?, longest?);
    results.record("VC-G11-kill", [killed.number("hung")?, killed.number("reached_ms.2")?], detail);

    // The QEMU guests are the same processes afterwards, their devices were never plugged in again,
    // and they work.
    let after = [lab.vm_pid("c")?, lab.vm_pid("d")?];
    let is_granted = lab.machine().takes_for_granted();
    let changed = before.iter().zip(after).filter(|(before, after)| *before != after && !is_granted).count();
    let plugged = plugs(&lab.taut_json("events")?)?;
    let report = bench(lab, "c d --mode rr --message 256 --socket-size 64KiB --duration 1")?;
    let p50 = Cell::of("vsock", 256).median(&report, "p50_us")?;
    results.record("VC-G11-qemu", [changed as f64, plugged, p50], "");
    Ok(())
}

/// Number of events about VMCI devices that were plugged in.
fn plugs(events: &Doc) -> Measured<f64> {
    let mut count = 0;
    for event in events.list("")? {
        let kind = event.text("kind")?;
        count += usize::from(kind.starts_with("vmci.") && kind.contains("plug"));
    }
    Ok(count as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_vmci_devices_that_were_plugged_in_count() {
        let kinds = ["vmci.unplugged", "vmci.plugged", "vmci.reset", "nic.plugged"];
        let events: Vec<_> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
        assert_eq!(plugs(&Doc::from(json!(events))), Ok(2.0));
    }
}
