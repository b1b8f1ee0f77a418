//! Loads on guests: VMCI sockets, TCP, and a latency-sensitive VM.
//!
//! The throughput of two guests changes by several percent from one start of a build to the next:
//! a sample of a stream is the mean of several starts. A response time changes with the machine,
//! every few seconds: a sample of responses is one short start, and more pairs are taken.
//!
//! One build runs at a time, with its own microguests and its own `taut bench`. The distance of the
//! CPUs is measured between the starts, while no build runs.
//!
//! Threads of guests and fabric are bound to pCPUs, the same for both builds: a scheduler that has
//! to place three busy threads on two pCPUs changes its mind every few tenths of a second, and a
//! response takes 5 µs or 90 µs then. VMs whose pCPUs taut plans (PL2) are not bound here.

use std::path::Path;

use serde_json::json;

use super::{record, watched};
use crate::figure::median;
use crate::lab::{DaemonOptions, Lab};
use crate::machine::{Command, Doc};
use crate::reason::Measured;
use crate::rounds::{Plan, Rounds, Sample, State};
use crate::row::Results;

/// How a build is started and measured for a load.
struct Setting {
    options: DaemonOptions,
    /// Makes the guests of the current daemon.
    guests: fn(&mut Lab) -> Measured<()>,
    /// pCPUs for the fabric and for guests a and b, unless taut plans them.
    cpus: Option<[u32; 3]>,
    /// Starts for a sample.
    starts: u32,
    /// Number of pairs.
    plan: Plan,
}

/// Guests that wait for each other share a pCPU.
const IN_TURNS: Option<[u32; 3]> = Some([0, 1, 1]);
/// On one pCPU, a stream's throughput tells the CPU time of a byte. On two, it depends on which
/// thread happens to wait for which: 10 and 60 Gbit/s of VMCI have been seen one after the other.
const ON_ONE: Option<[u32; 3]> = Some([0, 0, 0]);

/// Compares all loads on guests with those of the build in the folder `old`.
pub(super) fn run(lab: &mut Lab, results: &mut Results, plan: Plan, old: &Path) -> Measured<()> {
    let options = DaemonOptions::default().preferred();
    streams(lab, results, plan, old, "HS3-VC-G1");
    let mut compare = |lab: &mut Lab, goal, figure, setting: &Setting, measure: Measure| {
        compare(lab, results, old, (goal, figure), setting, measure);
    };

    let polling = options.clone().args("--fabric-poll-us 1000");
    let many = Plan { most: 4 * plan.most, ..plan };
    let setting = Setting { options: polling, guests: pair, cpus: IN_TURNS, starts: 1, plan: many };
    compare(lab, "HS3-VC-G3", "p50_us", &setting, |lab| {
        responses(lab, "vsock a b --mode rr --message 256 --socket-size 64KiB", "cells.0.repeats")
    });

    let setting = Setting { options, ..setting };
    compare(lab, "HS3-SK4-rr", "p50_us", &setting, |lab| responses(lab, "rr a b", "a.repeats"));
    let setting = Setting { cpus: ON_ONE, starts: 5, plan, ..setting };
    compare(lab, "HS3-SK4-stream", "mbit_s", &setting, |lab| {
        throughput(lab, "stream a b --pattern bulk", "a.repeats")
    });

    lab.enter_scope()?;
    let setting = Setting { guests: neighbours, cpus: None, starts: 1, ..setting };
    compare(lab, "HS3-PL2", "per_s", &setting, requests);
    Ok(())
}

/// Compares streams of VMCI sockets with those of the build in the folder `old`.
pub(in crate::sets) fn streams(lab: &mut Lab, results: &mut Results, plan: Plan, old: &Path, goal: &str) {
    let options = DaemonOptions::default().preferred();
    let options = options.env("TAUT_MICRO_VMCI", "buffer=65580,rx=16,tx=16,copy=on");
    let setting = Setting { options, guests: pair, cpus: ON_ONE, starts: 5, plan };
    compare(lab, results, old, (goal, "mbit_s"), &setting, |lab| {
        throughput(lab, "vsock a b --message 64KiB --socket-size 256KiB", "cells.0.repeats")
    });
}

fn compare(
    lab: &mut Lab,
    results: &mut Results,
    old: &Path,
    (goal, figure): (&str, &str),
    setting: &Setting,
    measure: Measure,
) {
    let outcome = Rounds::take(setting.plan, &["before", "after"], Some(watched(figure)), |build| {
        let programs = if build == "before" { old.to_owned() } else { lab.setup().programs.clone() };
        sample(lab, setting, &programs, figure, measure)
    });
    let outcome = outcome.and_then(|rounds| record(results, goal, &rounds, figure));
    results.settle(&[goal], outcome);
}

/// Measures a figure on the current daemon's guests.
type Measure = fn(&mut Lab) -> Measured<f64>;

/// Takes one sample of the build in the folder `programs`.
fn sample(
    lab: &mut Lab,
    setting: &Setting,
    programs: &Path,
    figure: &str,
    measure: Measure,
) -> Measured<Sample> {
    let mut sum = 0.0;
    let mut trips = Vec::new();
    for _ in 0..setting.starts {
        trips.extend(setting.cpu_round_trip(lab)?);
        let measured = setting.start(lab, programs).and_then(|()| measure(lab));
        let stopped = lab.stop_daemon();
        sum += measured?;
        stopped?;
    }
    trips.extend(setting.cpu_round_trip(lab)?);
    // A stand-in's answers say nothing about how near its CPUs are.
    let is_stand_in = lab.machine().is_stand_in();
    let state = if is_stand_in { State::Unknown } else { State::of_round_trips(&trips) };
    Ok(Sample { state, doc: Doc::from(json!({ figure: sum / f64::from(setting.starts) })) })
}

impl Setting {
    /// Starts a daemon of a build and its guests. After an error, the daemon may run.
    fn start(&self, lab: &mut Lab, programs: &Path) -> Measured<()> {
        lab.start_lan(self.options.clone().programs(programs))?;
        (self.guests)(lab)?;
        let Some(cpus) = self.cpus else { return Ok(()) };
        let pids = [lab.fabric_pid()?, lab.vm_pid("a")?, lab.vm_pid("b")?];
        for (pid, cpu) in pids.into_iter().zip(cpus) {
            let words = format!("--all-tasks --pid --cpu-list {cpu} {pid}");
            lab.run(&Command::new("taskset").args(words))?;
        }
        Ok(())
    }

    /// Measures the distance of the CPUs, unless all threads share one.
    fn cpu_round_trip(&self, lab: &mut Lab) -> Measured<Option<f64>> {
        if self.cpus == ON_ONE { Ok(None) } else { lab.cpu_round_trip().map(Some) }
    }
}

/// Two microguests, a and b, with VMCI devices.
fn pair(lab: &mut Lab) -> Measured<()> {
    for (name, ip) in [("a", "10.82.0.1"), ("b", "10.82.0.2")] {
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n");
        let file = format!("kind = \"micro\"\nmemory = \"64MiB\"\n{nic}[vmci]\ndomains = [\"goals\"]\n");
        lab.start_vm(name, &file)?;
        let pid = lab.vm_pid(name)?;
        lab.prefer(pid);
    }
    Ok(())
}

/// The network namespace of the client of [`neighbours`].
const CLIENT: &str = "taut-goal-client";

/// A microguest that can be latency-sensitive, four that compute, and a client in a namespace.
fn neighbours(lab: &mut Lab) -> Measured<()> {
    // An earlier start has left it, unless this is the first.
    let _ = lab.machine().run(&Command::new("ip").args(["netns", "del", CLIENT]));
    let reserved = "memory_reservation = \"full\"\n[cpu]\nreservation = \"full\"";
    lab.micro("rt1", "10.85.0.1", reserved)?;
    for index in 1..=4 {
        lab.micro(&format!("n{index}"), &format!("10.85.0.{}", index + 10), "")?;
    }
    lab.netns(CLIENT, "lan", "10.85.0.100")
}

/// Measures the median of five response times, in µs, with a command of `taut bench`, whose
/// document has its repeats at a path. The first is longer, until both guests are warm.
fn responses(lab: &mut Lab, words: &str, repeats: &str) -> Measured<f64> {
    median(&bench(lab, words)?.numbers(repeats, "p50_us")?)
}

/// Measures the throughput of five repeats together, in Mbit/s.
fn throughput(lab: &mut Lab, words: &str, repeats: &str) -> Measured<f64> {
    let each = bench(lab, words)?.numbers(repeats, "mbit_s")?;
    Ok(each.iter().sum::<f64>() / each.len() as f64)
}

fn bench(lab: &mut Lab, words: &str) -> Measured<Doc> {
    let command = lab.bench_command(format!("{words} --duration 0.1 --repeat 5"));
    lab.bench_by(&command.preferred().limit(60))
}

/// Measures the requests a second of a VM that is high, beside four that compute.
fn requests(lab: &mut Lab) -> Measured<f64> {
    let words = "rt1 --address 10.85.0.1 --beside n1 n2 n3 n4 --duration 0.4 --repeat 2";
    let result = lab.bench(format!("neighbours netns/{CLIENT} {words}"))?;
    result.find("conditions", &[("name", "high")])?.number("configuration.median.per_s")
}
