//! SE10: kills at random moments under load.

use std::collections::BTreeMap;
use std::time::Duration;

use super::stage::{Kill, Outcome, Random, Stage};
use crate::figure::{Bound, Value, percentile, shown};
use crate::lab::Lab;
use crate::reason::{Measured, NotMeasured, require};
use crate::row::{Goal, Results, Row};

/// Pause of clients between two changes of a setting: short, so that most kills hit a change.
const BETWEEN_CHANGES: Duration = Duration::from_millis(50);

pub(super) const ROW: Row = Row {
    id: "SE10",
    what: "kills at random moments of daemon, fabric, launcher, console process, QEMU, daemon and fabric; \
           SIGSTOP for 1 to 30 s",
    on: "TCP, datagrams and pings of namespaces and a microguest, clients that change settings, VMs that \
         start and stop, a QEMU process",
    goals: &[
        Goal::new(
            "SE10-kept",
            &[
                Bound::Exactly(0.0, "settings lost"),
                Bound::Exactly(0.0, "TCP messages lost"),
                Bound::Exactly(0.0, "TCP connections broken"),
            ],
        ),
        Goal::new("SE10-left", &[Bound::Exactly(0.0, "left behind")]),
        Goal::new("SE10-fabric", &[Bound::AtMost(150.0, "ms gap of TCP, p99"), Bound::Stated("ms at most")]),
        Goal::new("SE10-both", &[Bound::AtMost(1500.0, "ms gap of TCP at most")]),
        Goal::new("SE10-qemu", &[Bound::Exactly(0.0, "packets of others lost")]),
        Goal::new("SE10-stopped", &[Bound::AtMost(1000.0, "ms at most until back")]),
    ],
    run,
};

/// Number of kills of each kind: in a full run 1,000 together.
fn counts(is_short: bool) -> [(Kill, usize); 8] {
    let of = |kill| match (kill, is_short) {
        (Kill::Daemon, false) => 200,
        (Kill::Fabric, false) => 300,
        (Kill::Launcher | Kill::Console, false) => 150,
        (Kill::Both | Kill::Qemu, false) => 80,
        (Kill::StopFabric | Kill::StopDaemon, false) => 20,
        (Kill::Fabric, true) => 12,
        (Kill::Daemon | Kill::Launcher | Kill::Console | Kill::Both, true) => 4,
        (Kill::Qemu | Kill::StopFabric | Kill::StopDaemon, true) => 2,
    };
    Kill::ALL.map(|kill| (kill, of(kill)))
}

type Outcomes = BTreeMap<Kill, Vec<Outcome>>;

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // A stand-in says the same after each kill.
    let is_short = lab.quick() || lab.machine().is_stand_in();
    let mut kills: Vec<Kill> =
        counts(is_short).into_iter().flat_map(|(kill, count)| vec![kill; count]).collect();
    Random::new(15).shuffle(&mut kills);
    let mut stage = Stage::start(lab, BETWEEN_CHANGES)?;
    let mut outcomes = Outcomes::new();
    for (at, kill) in kills.iter().enumerate() {
        outcomes.entry(*kill).or_default().push(stage.kill(lab, *kill)?);
        if (at + 1) % 20 == 0 {
            stage.cycle_goes_on(lab)?;
            lab.note(format!("{} of {} kills", at + 1, kills.len()));
        }
    }
    stage.cycle_goes_on(lab)?;
    let end = stage.end(lab)?;

    let all: Vec<&Outcome> = outcomes.values().flatten().collect();
    require(all.len() == kills.len(), "a kill has no outcome")?;
    let lost = end.lost + all.iter().map(|outcome| outcome.lost).sum::<f64>();
    let detail = format!(
        "{} kills, {} changes acknowledged, {} starts and stops of a VM, {} TCP messages; gaps of TCP (p99, \
         longest, lost datagrams): {}",
        all.len(),
        shown(end.changes),
        shown(end.cycles),
        shown(end.testimony.messages),
        gaps(&outcomes)?
    );
    results.record("SE10-kept", [lost, end.testimony.missing, end.testimony.broken], detail);
    results.record("SE10-left", [end.left as f64], end.names);
    let fabric = of(&outcomes, Kill::Fabric, |outcome| outcome.round.stream_ms)?;
    let longest = Value::greatest(&fabric)?;
    results.record("SE10-fabric", [percentile(&fabric, 99.0)?.into(), longest], "");
    let both = of(&outcomes, Kill::Both, |outcome| outcome.round.stream_ms)?;
    results.record("SE10-both", [Value::greatest(&both)?], "");
    let others = of(&outcomes, Kill::Qemu, |outcome| outcome.round.lost)?;
    results.record("SE10-qemu", [others.iter().sum::<f64>()], format!("{} kills", others.len()));
    let mut back = Vec::new();
    for kill in [Kill::StopFabric, Kill::StopDaemon] {
        for outcome in outcomes.get(&kill).into_iter().flatten() {
            let time = outcome.back.ok_or_else(|| NotMeasured::because("a stop has no end"))?;
            back.push(time.as_secs_f64() * 1e3);
        }
    }
    results.record("SE10-stopped", [Value::greatest(&back)?], "fabric and daemon");
    Ok(())
}

/// A figure of each kill of a kind.
fn of(outcomes: &Outcomes, kill: Kill, figure: fn(&Outcome) -> f64) -> Measured<Vec<f64>> {
    let list = outcomes.get(&kill);
    let list = list.ok_or_else(|| NotMeasured::because(format!("no kill of {}", kill.name())))?;
    Ok(list.iter().map(figure).collect())
}

/// Writes the gaps of each kind of kill.
fn gaps(outcomes: &Outcomes) -> Measured<String> {
    let mut parts = Vec::new();
    for kill in Kill::ALL {
        let silent = of(outcomes, kill, |outcome| outcome.round.stream_ms)?;
        let lost = of(outcomes, kill, |outcome| outcome.round.lost)?.iter().sum();
        let (p99, longest) = (percentile(&silent, 99.0)?, percentile(&silent, 100.0)?);
        parts.push(format!("{} {}, {} ms, {}", kill.name(), shown(p99), shown(longest), shown(lost)));
    }
    Ok(parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_has_a_thousand_kills_and_a_short_one_has_every_kind() {
        assert_eq!(counts(false).iter().map(|(_, count)| count).sum::<usize>(), 1000);
        assert!(counts(true).iter().all(|(_, count)| *count > 0));
    }
}
