//! PG5: ready time of a VM that another program has started.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG5",
    what: "ready time of a foreign VM with two busy vCPUs on one pCPU; what the daemon and `taut top` open, signal and \
           set of its process, by strace",
    on: "a QEMU that was started by hand; nothing else should be busy on CPU 0",
    goals: &[
        Goal::new(
            "PG5-ready",
            &[Bound::Within(47.5, 52.5, "% of vCPU 0"), Bound::Within(47.5, 52.5, "% of vCPU 1")],
        ),
        Goal::new(
            "PG5-touched",
            &[
                Bound::Exactly(0.0, "writes, signals and settings"),
                Bound::AtLeast(1.0, "files read by the daemon"),
                Bound::AtLeast(1.0, "files read by `taut top`"),
                Bound::AtLeast(4.0, "of a program that does touch it"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(60_u64, 10);
    let program = lab.example("taut-tests", "statistics")?;
    let command = lab.in_checkout(program).args(format!("ready {seconds}")).record("ready");
    let found = lab.run(&command)?.stdout.json()?;
    require(found.count("seconds")? == seconds || lab.machine().is_stand_in(), "the program lost count")?;
    let of = |name: &str, vcpu: usize| found.number(&format!("{name}.{vcpu}"));
    let detail = format!("ran {:.1} and {:.1} % over {seconds} s", of("run", 0)?, of("run", 1)?);
    results.record("PG5-ready", [of("ready", 0)?, of("ready", 1)?], detail);
    let count = |name: &str| found.list(name).map(|all| all.len() as f64);
    let changed = count("changed")? + count("top_changed")?;
    let values = [changed, found.number("opened")?, found.number("top_opened")?, count("control_changed")?];
    results.record("PG5-touched", values, "");
    Ok(())
}
