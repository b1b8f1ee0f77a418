//! SE16: mixed load for an hour with a kill every minute: what daemon, fabric and console process
//! use, and their logs.
//!
//! A process is judged from the time when it has filled its caches until it ends. Its growth is the
//! median of the slopes of all pairs of samples (Theil and Sen), so that a moment of more work is
//! no growth. A process that takes the place of another one is judged by itself. The schedule of an
//! hour lets daemons live for 20 minutes, and fabrics for 10.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::stage::{Kill, Stage};
use crate::figure::{Bound, shown, slope};
use crate::lab::{Lab, Usage};
use crate::reason::{Measured, NotMeasured, require};
use crate::row::{Goal, Results, Row};

/// Pause of clients between two changes of a setting. Events of the changed VMs would be left out,
/// with warnings, if there were more than ten a second.
const BETWEEN_CHANGES: Duration = Duration::from_millis(100);
/// Time between two kills.
const PAUSE: Duration = Duration::from_secs(60);

/// Which part of a process's life is judged.
#[derive(Debug, Clone, Copy)]
struct Judged {
    /// Minutes in which a new process may fill its caches.
    warm: f64,
    /// Minutes that it has to live after that.
    least: f64,
}

const IN_AN_HOUR: Judged = Judged { warm: 3.0, least: 5.0 };
const IN_A_SHORT_RUN: Judged = Judged { warm: 0.25, least: 0.5 };

/// Parts of lines about confinement that this host lacks, which each start of a daemon logs.
const LACKS: [&str; 2] = ["lacks walls on this host", "a process keeps the OOM score of its parent"];

/// Parts of lines that are logged about the injected kills; see [`is_injected`].
const INJECTED: [&[&str]; 8] = [
    &["the fabric, process ", "(signal: 9 (SIGKILL))"],
    &["the console process ", " is gone: "],
    &["ended with signal: 9 (SIGKILL)"],
    // The fabric after the daemon was killed.
    &["tautd's connection failed: "],
    &["tautd does not take messages: "],
    // The next daemon, about the record that the last one was writing.
    &["an incomplete record is removed"],
    // The start whose launcher was killed.
    &["for VM `started` failed"],
    &["for VM `cycle` failed"],
];

pub(super) const ROW: Row = Row {
    id: "SE16",
    what: "mixed load for 60 minutes with a kill every minute (short: 3 minutes)",
    on: "the stage of SE10; each process of daemon, fabric and console by itself",
    goals: &[
        Goal::new(
            "SE16-flat",
            &[
                Bound::AtMost(32.0, "KiB more a minute"),
                Bound::AtMost(0.1, "descriptors more a minute"),
                Bound::AtMost(0.1, "threads more a minute"),
                Bound::AtMost(0.1, "timers more a minute"),
            ],
        ),
        Goal::new(
            "SE16-logs",
            &[
                Bound::Exactly(0.0, "errors that were not injected"),
                Bound::Exactly(0.0, "processes that ended without being killed"),
            ],
        ),
    ],
    run,
};

/// Samples of the processes that have lived: by name and process number, the time in minutes and
/// the usage.
type Lives = BTreeMap<(&'static str, u32), Vec<(f64, Usage)>>;

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // A stand-in says the same in each minute.
    let minutes = if lab.machine().is_stand_in() { 1 } else { lab.pick(60, 3) };
    let is_short = minutes < 60;
    let mut stage = Stage::start(lab, BETWEEN_CHANGES)?;
    let mut lives = Lives::new();
    let mut errors = BTreeSet::new();
    for minute in 0..minutes {
        let end = lab.now() + PAUSE;
        while lab.now() < end {
            look(lab, &mut lives)?;
            lab.sleep(1.0)?;
        }
        // Old logs are removed in the course of the hour.
        errors.extend(lab.log_errors()?);
        stage.kill(lab, scheduled(minute, is_short))?;
    }
    stage.cycle_goes_on(lab)?;
    errors.extend(lab.log_errors()?);
    let (lacks, errors): (Vec<String>, Vec<String>) = errors.into_iter().partition(|line| is_lack(line));
    let foreign: Vec<&String> = errors.iter().filter(|line| !is_injected(line)).collect();
    let ended = stage.end(lab)?;
    lab.keep("errors.txt", &(errors.join("\n") + "\n"))?;
    lab.keep("usage.txt", &list(&lives))?;

    let (most, judged) = growth(&lives, if is_short { IN_A_SHORT_RUN } else { IN_AN_HOUR })?;
    let detail = format!("{judged} processes judged of {}; most of {}", lives.len(), most.names);
    results.record("SE16-flat", most.figures, detail);
    let first = foreign.first().map_or_else(String::new, |line| format!("; the first one: {line}"));
    let detail = format!(
        "{minutes} kills, {} lines about them, {} about walls that this host lacks, {} TCP messages \
         missing{first}",
        errors.len() - foreign.len(),
        lacks.len(),
        shown(ended.testimony.missing)
    );
    let killed = (0..minutes).map(|minute| scheduled(minute, is_short));
    results.record("SE16-logs", [foreign.len() as f64, unplanned(&lives, killed) as f64], detail);
    Ok(())
}

/// Returns what is killed at the end of a minute.
fn scheduled(minute: usize, is_short: bool) -> Kill {
    if is_short {
        return [Kill::Console, Kill::Fabric, Kill::Daemon][minute % 3];
    }
    match minute {
        19 => Kill::Daemon,
        39 => Kill::Both,
        9 | 29 | 49 => Kill::Fabric,
        14 | 44 => Kill::Console,
        _ if minute.is_multiple_of(2) => Kill::Launcher,
        _ => Kill::Qemu,
    }
}

/// Counts the processes that were replaced although they were not killed.
fn unplanned(lives: &Lives, killed: impl Iterator<Item = Kill>) -> usize {
    let mut spare = BTreeMap::from([("daemon", 1), ("fabric", 1), ("console process", 1)]);
    for kill in killed {
        let names: &[&str] = match kill {
            Kill::Daemon => &["daemon"],
            Kill::Fabric => &["fabric"],
            Kill::Console => &["console process"],
            Kill::Both => &["daemon", "fabric"],
            _ => &[],
        };
        for name in names {
            *spare.entry(name).or_default() += 1;
        }
    }
    let lived = |name: &str| lives.keys().filter(|(of, _)| *of == name).count();
    spare.into_iter().map(|(name, most)| lived(name).saturating_sub(most)).sum()
}

/// Writes all samples, one a line.
fn list(lives: &Lives) -> String {
    let mut text = format!("process minute {}\n", Usage::NAMES.join(", "));
    for ((name, pid), samples) in lives {
        for (at, usage) in samples {
            text.push_str(&format!("{name} {pid} {at:.3} {:?}\n", usage.figures()));
        }
    }
    text
}

/// Takes a sample of each process.
fn look(lab: &mut Lab, lives: &mut Lives) -> Measured<()> {
    let now = lab.now().as_secs_f64() / 60.0;
    let console = lab.processes_named("taut-console")?.first().copied();
    let console = console.ok_or_else(|| NotMeasured::because("there is no console process"))?;
    // The fabric of a stand-in has another number each time.
    let fabric = if lab.machine().is_stand_in() { 1 } else { lab.fabric_pid()? };
    let pids = [("daemon", lab.daemon()?.job.pid), ("fabric", fabric), ("console process", console)];
    for (name, pid) in pids {
        let usage = lab.usage(pid)?;
        lives.entry((name, pid)).or_default().push((now, usage));
    }
    Ok(())
}

/// The greatest growth of each figure, and the processes that have it.
struct Growth {
    figures: [f64; 4],
    names: String,
}

/// Returns the greatest growth a minute of each figure, with the number of processes that lived
/// long enough.
fn growth(lives: &Lives, part: Judged) -> Measured<(Growth, usize)> {
    let mut figures = [f64::NEG_INFINITY; 4];
    let mut names = [""; 4];
    let mut judged = Vec::new();
    for ((name, _), samples) in lives {
        let warm = samples.first().map_or(0.0, |(at, _)| at + part.warm);
        let samples: Vec<&(f64, Usage)> = samples.iter().filter(|(at, _)| *at >= warm).collect();
        if samples.last().is_none_or(|(at, _)| at - warm < part.least) {
            continue;
        }
        judged.push(*name);
        for figure in 0..4 {
            let points: Vec<(f64, f64)> =
                samples.iter().map(|(at, usage)| (*at, usage.figures()[figure])).collect();
            let slope = slope(&points)?;
            if slope > figures[figure] {
                (figures[figure], names[figure]) = (slope, name);
            }
        }
    }
    for name in ["daemon", "fabric", "console process"] {
        require(judged.contains(&name), format!("no {name} lived long enough to be judged"))?;
    }
    let names = names.iter().zip(Usage::NAMES).map(|(name, what)| format!("{what}: {name}"));
    Ok((Growth { figures, names: names.collect::<Vec<_>>().join(", ") }, judged.len()))
}

/// Returns true if a line tells of a wall that this host lacks.
fn is_lack(line: &str) -> bool {
    LACKS.iter().any(|part| line.contains(part))
}

/// Returns true if an injected kill explains a line of a log: the line has all parts of an entry.
fn is_injected(line: &str) -> bool {
    INJECTED.iter().any(|parts| parts.iter().all(|part| line.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(
        name: &'static str,
        pid: u32,
        descriptors: impl Fn(f64) -> f64,
    ) -> ((&'static str, u32), Vec<(f64, Usage)>) {
        let sample = |second: u32| {
            let at = f64::from(second) / 60.0;
            (at, Usage { memory: 900.0, descriptors: descriptors(at), threads: 3.0, timers: 1.0 })
        };
        ((name, pid), (0..60).map(sample).collect())
    }

    #[test]
    fn a_process_that_grows_is_found_among_those_that_do_not() {
        let lives = Lives::from([
            life("daemon", 1, |_| 20.0),
            life("fabric", 2, |at| 20.0 + 6.0 * at),
            life("fabric", 3, |_| 90.0),
            life("console process", 4, |at| if at < 0.2 { 5.0 } else { 9.0 }),
        ]);
        let (most, judged) = growth(&lives, IN_A_SHORT_RUN).unwrap();
        assert_eq!(judged, 4);
        assert!((most.figures[1] - 6.0).abs() < 0.1, "{:?}", most.figures);
        assert!(most.names.contains("descriptors: fabric"), "{}", most.names);
        assert!(most.figures[0].abs() < 0.1);
    }

    #[test]
    fn every_kind_of_process_is_killed_in_an_hour() {
        let kills: Vec<Kill> = (0..60).map(|minute| scheduled(minute, false)).collect();
        let wanted = [Kill::Daemon, Kill::Fabric, Kill::Console, Kill::Both, Kill::Qemu, Kill::Launcher];
        assert!(wanted.iter().all(|kill| kills.contains(kill)));
    }

    #[test]
    fn a_process_that_ends_by_itself_is_counted() {
        let lives = Lives::from([life("fabric", 2, |_| 20.0), life("fabric", 3, |_| 20.0)]);
        assert_eq!(unplanned(&lives, [Kill::Console].into_iter()), 1);
        assert_eq!(unplanned(&lives, [Kill::Both].into_iter()), 0);
    }

    #[test]
    fn nothing_is_said_without_every_kind_of_process() {
        let lives = Lives::from([life("daemon", 1, |_| 20.0), life("fabric", 2, |_| 20.0)]);
        assert!(growth(&lives, IN_A_SHORT_RUN).is_err());
    }
}
