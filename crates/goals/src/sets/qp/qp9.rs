//! QP9: the fabric is upgraded under five streams through queue pairs, and killed under them.

use super::guests::start_pair;
use crate::figure::{Bound, shown};
use crate::lab::{Lab, NEWEST};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "QP9",
    what: "upgrades and kills of the fabric under five streams of 64 KiB writes, both ends attached to queue pairs",
    on: "two QEMU guests with Debian's newest kernel",
    goals: &[
        Goal::new("QP9-upgrade", &[Bound::Exactly(0.0, "streams that are not byte-exact")]),
        Goal::new(
            "QP9-kill",
            &[
                Bound::Exactly(0.0, "streams hung"),
                Bound::AtMost(200.0, "ms at most until the listener is reached"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(100, 3);
    start_pair(lab, NEWEST)?;
    let upgraded = lab.under_attached_streams("upgrade", times)?;
    let errors = upgraded.list("errors")?.len();
    let gib = shown(upgraded.number("bytes")? / 1_073_741_824.0);
    let [upgrades, late, streams] =
        ["upgrades", "late", "streams"].map(|name| upgraded.number(name).map(shown));
    let detail = format!(
        "{} upgrades that ended before the streams, and {} later ones; {} streams of {gib} GiB, every byte compared",
        upgrades?, late?, streams?
    );
    results.record("QP9-upgrade", [errors as f64], detail);

    let killed = lab.under_attached_streams("kill", times)?;
    let [kills, reset, longest] =
        ["kills", "reset_ms.0", "reset_ms.1"].map(|name| killed.number(name).map(shown));
    let detail = format!("{} kills; streams reset after {}/{} ms (p50/p99)", kills?, reset?, longest?);
    results.record("QP9-kill", [killed.number("hung")?, killed.number("reached_ms.2")?], detail);
    Ok(())
}
