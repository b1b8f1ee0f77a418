//! SE16: mixed load for an hour with a kill every minute: what daemon, fabric and console process
//! use, and their logs.
//!
//! A process is judged from the time when it has run for [`WARM`] until it ends. Its growth is the
//! median of the slopes of all pairs of samples (Theil and Sen), so that a moment of more work is
//! no growth. A process that takes the place of another one is judged by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::stage::{Kill, Random, Stage};
use crate::figure::{Bound, shown, slope};
use crate::lab::{Lab, Usage};
use crate::reason::{Measured, NotMeasured, require};
use crate::row::{Goal, Results, Row};

/// Time between two kills.
const PAUSE: Duration = Duration::from_secs(60);
/// Time in which a new process may fill its caches.
const WARM: Duration = Duration::from_secs(15);
/// Samples that a process needs to be judged.
const LEAST: usize = 15;

/// Parts of lines that are logged about the injected kills; see [`is_injected`].
const INJECTED: [&[&str]; 8] = [
    &["the fabric, process ", ", ended"],
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
                Bound::AtMost(256.0, "KiB more a minute"),
                Bound::AtMost(0.5, "descriptors more a minute"),
                Bound::AtMost(0.5, "threads more a minute"),
                Bound::AtMost(0.5, "timers more a minute"),
            ],
        ),
        Goal::new("SE16-logs", &[Bound::Exactly(0.0, "errors that were not injected")]),
    ],
    run,
};

/// Samples of the processes that have lived: by name and process number, the time in minutes and
/// the usage.
type Lives = BTreeMap<(&'static str, u32), Vec<(f64, Usage)>>;

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // A stand-in says the same in each minute.
    let minutes = if lab.machine().is_stand_in() { 1 } else { lab.pick(60, 3) };
    let mut kills = [Kill::Console, Kill::Fabric, Kill::Launcher, Kill::Daemon, Kill::Qemu, Kill::Both];
    let mut stage = Stage::start(lab)?;
    let mut lives = Lives::new();
    let mut random = Random::new(16);
    for minute in 0..minutes {
        if minute % kills.len() == 0 && !lab.quick() {
            random.shuffle(&mut kills);
        }
        let end = lab.now() + PAUSE;
        while lab.now() < end {
            look(lab, &mut lives)?;
            lab.sleep(1.0)?;
        }
        stage.kill(lab, kills[minute % kills.len()])?;
    }
    stage.cycle_goes_on(lab)?;
    let errors = lab.log_errors()?;
    let foreign: Vec<&String> = errors.iter().filter(|line| !is_injected(line)).collect();
    let ended = stage.end(lab)?;
    lab.keep("errors.txt", &(errors.join("\n") + "\n"))?;

    let (most, judged) = growth(&lives)?;
    let detail = format!("{judged} processes judged of {}; most of {}", lives.len(), most.names);
    results.record("SE16-flat", most.figures, detail);
    let first = foreign.first().map_or_else(String::new, |line| format!("; the first one: {line}"));
    let detail = format!(
        "{minutes} kills, {} lines about them, {} TCP messages missing{first}",
        errors.len(),
        shown(ended.testimony.missing)
    );
    results.record("SE16-logs", [foreign.len() as f64], detail);
    Ok(())
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
fn growth(lives: &Lives) -> Measured<(Growth, usize)> {
    let mut figures = [f64::NEG_INFINITY; 4];
    let mut names = [""; 4];
    let mut judged = 0;
    for ((name, _), samples) in lives {
        let warm = samples.first().map_or(0.0, |(at, _)| at + WARM.as_secs_f64() / 60.0);
        let samples: Vec<&(f64, Usage)> = samples.iter().filter(|(at, _)| *at >= warm).collect();
        if samples.len() < LEAST {
            continue;
        }
        judged += 1;
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
        let is_there = lives.iter().any(|((of, _), samples)| *of == name && samples.len() >= LEAST);
        require(is_there, format!("no {name} lived long enough to be judged"))?;
    }
    let names = names.iter().zip(Usage::NAMES).map(|(name, what)| format!("{what}: {name}"));
    Ok((Growth { figures, names: names.collect::<Vec<_>>().join(", ") }, judged))
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
        let (most, judged) = growth(&lives).unwrap();
        assert_eq!(judged, 4);
        assert!((most.figures[1] - 6.0).abs() < 0.1, "{:?}", most.figures);
        assert!(most.names.contains("descriptors: fabric"), "{}", most.names);
        assert!(most.figures[0].abs() < 0.1);
    }

    #[test]
    fn nothing_is_said_without_every_kind_of_process() {
        let lives = Lives::from([life("daemon", 1, |_| 20.0), life("fabric", 2, |_| 20.0)]);
        assert!(growth(&lives).is_err());
    }
}
