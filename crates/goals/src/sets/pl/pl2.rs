//! PL2: PL1 with microguests, which run at native speed, and beside them two namespaces with a
//! cable between them, without VM or load. The agents of the namespaces, and the client of the VM,
//! are all in the real-time class.

use super::conditions::{middle, ratio};
use super::stage::{self, Kind, NEIGHBOURS, PARTIES};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL2",
    what: "high under load beside a native connection without load",
    on: "five microguests, and two namespaces with a cable",
    goals: &[Goal::new("PL2", &[Bound::AtMost(1.5, "x native p99.9")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (repeats, seconds) = lab.pick((7, 8), (3, 3));
    stage::set(lab, Kind::Micro)?;
    lab.native_pair()?;
    let drawing = lab.fresh("pl2.svg")?;
    let native = "--native netns/taut-goal-a netns/taut-goal-b";
    let words = format!("neighbours {PARTIES} --beside {NEIGHBOURS} {native} --duration {seconds}");
    let report = lab.bench(format!("{words} --repeat {repeats} --svg {}", drawing.display()))?;
    let of = |condition| middle(&report, condition, "p99_9_us").map(|figure| shown(figure.round()));
    let detail = format!(
        "{} µs high under load, {} µs native without load, {} µs normal under load",
        of("high")?,
        of("native")?,
        of("normal")?
    );
    results.record("PL2", [ratio(&report, "p99_9_us", "high", "native")?], detail);
    Ok(())
}
