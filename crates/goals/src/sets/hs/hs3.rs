//! HS3: speed of this build beside the build of an old commit. Both run at once, each with a daemon
//! and guests of its own. Short samples alternate in the order ABBA. Pairs are added until the 95 %
//! interval of the median ratio is at most 2 % wide. One load generator, this build's, loads the
//! switches of both builds.
//!
//! A sample of a switch is the median of five repeats of 0.1 s. A sample of two guests is the
//! median of fifteen response times, or the mean of thirty throughputs, of 0.1 s each. Threads of
//! guests and fabric are bound to pCPUs, the same for both builds: a scheduler that has to place
//! three busy threads on two pCPUs changes its mind every few tenths of a second, and a response
//! takes 5 µs or 90 µs then. VMs whose pCPUs taut plans (PL2) are not bound here.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::figure::{Bound, Value, median};
use crate::lab::rig::{Cell, Generator, Pace, Rig, Switch};
use crate::lab::{Daemon, DaemonOptions, Lab};
use crate::machine::{Command, Doc};
use crate::reason::Measured;
use crate::rounds::{Plan, Ratio, Rounds, Sample};
use crate::row::{Goal, Results, Row};

use super::before;

/// After ÷ before: 2 % slower at most.
const BOUND: &[Bound] = &[Bound::LowLimitAtLeast(0.98, "x")];

pub(super) const ROW: Row = Row {
    id: "HS3",
    what: "speed beside the build before the change of structure",
    on: "both builds at once: switch, VMCI sockets, TCP of microguests, a VM that is high",
    goals: &[
        Goal::new("HS3-DP1-64", BOUND),
        Goal::new("HS3-DP2-256", BOUND),
        Goal::new("HS3-DP2-1518", BOUND),
        Goal::new("HS3-DP3-packed", BOUND),
        Goal::new("HS3-DP3-both", BOUND),
        Goal::new("HS3-DP5-traversal", BOUND),
        Goal::new("HS3-VC-G1", BOUND),
        Goal::new("HS3-VC-G3", BOUND),
        Goal::new("HS3-SK4-rr", BOUND),
        Goal::new("HS3-SK4-stream", BOUND),
        Goal::new("HS3-PL2", BOUND),
    ],
    run,
};

/// Loads of the switch: goal, load, figure.
const LOADS: [(&str, &str, &str); 6] = [
    ("HS3-DP1-64", "one-way 64", "mpps"),
    ("HS3-DP2-256", "one-way 256", "mpps"),
    ("HS3-DP2-1518", "one-way 1518", "mpps"),
    ("HS3-DP3-packed", "one-way 64 --packed", "mpps"),
    ("HS3-DP3-both", "both-ways 64 --packed", "mpps"),
    ("HS3-DP5-traversal", "traversal 64", "traversal.p50_ns"),
];

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let old = before::programs(lab)?;
    let plan = Plan { least: 8, most: lab.pick(60, 10), width: 0.02 };
    let pace = Pace { repeats: 5, seconds: 0.1, plan };
    lab.with_rig_at(pace, |lab, rig| {
        for (goal, load, figure) in LOADS {
            let outcome = switches(lab, rig, results, &old, (goal, load, figure));
            results.settle(&[goal], outcome);
        }
        Ok(())
    })?;
    guests(lab, results, plan, &old)
}

fn switches(
    lab: &mut Lab,
    rig: &mut Rig,
    results: &mut Results,
    old: &Path,
    (goal, load, figure): (&str, &'static str, &str),
) -> Measured<()> {
    let before = Switch::of_build("before", old.to_owned());
    let cells = [
        Cell::new("before", before, Generator::Taut, load),
        Cell::new("after", Switch::taut(), Generator::Taut, load),
    ];
    let rounds = rig.compare(lab, &cells, Some(watched(figure)))?;
    record(results, goal, &rounds, figure)
}

/// Higher is better: of times, the ratio is before ÷ after.
fn watched(figure: &str) -> Ratio<'_> {
    let is_time = figure.ends_with("_ns") || figure.ends_with("_us");
    let (over, under) = if is_time { ("before", "after") } else { ("after", "before") };
    Ratio { over, under, figure }
}

fn record(results: &mut Results, goal: &str, rounds: &Rounds, figure: &str) -> Measured<()> {
    let Ratio { over, under, figure } = watched(figure);
    let ratio: Value = rounds.ratio(over, under, figure)?;
    results.record(goal, [ratio], format!("{} pairs dropped", rounds.dropped()));
    Ok(())
}

/// The daemons that run, by the names of their builds: `before` and `after`.
type Daemons = BTreeMap<&'static str, Daemon>;

/// Builds that run side by side with guests of their own.
struct Beside<'a> {
    plan: Plan,
    /// Programs of the old build.
    old: &'a Path,
    options: DaemonOptions,
    /// Makes the guests of a daemon.
    fill: fn(&mut Lab, &str) -> Measured<()>,
    /// pCPUs for the fabric and for guests a and b, unless taut plans them.
    cpus: Option<[u32; 3]>,
}

/// Guests that wait for each other share a pCPU.
const IN_TURNS: Option<[u32; 3]> = Some([0, 1, 1]);
/// The sender shares the fabric's pCPU, so that the receiver is never the one that waits for one.
const ONE_WAY: Option<[u32; 3]> = Some([0, 0, 1]);

impl Beside<'_> {
    /// Compares samples of both builds. The daemons and guests are made anew after every 15 pairs,
    /// because the scheduler leaves threads where it has put them. The builds start in turns: the
    /// first to start may get other memory than the second.
    fn compare(
        &self,
        lab: &mut Lab,
        results: &mut Results,
        goal: &str,
        figure: &str,
        sample: impl Fn(&mut Lab, &str) -> Measured<Doc>,
    ) -> Measured<()> {
        let mut daemons = Daemons::new();
        let mut samples = 0;
        let mut new_first = false;
        let rounds = Rounds::take(self.plan, &["before", "after"], Some(watched(figure)), |build| {
            if samples % 30 == 0 {
                Self::stop(lab, &mut daemons)?;
                self.start(lab, &mut daemons, new_first)?;
                new_first = !new_first;
            }
            samples += 1;
            lab.use_daemon(&daemons[build]);
            Ok(Sample::new(sample(lab, build)?))
        });
        let stopped = Self::stop(lab, &mut daemons);
        record(results, goal, &rounds?, figure)?;
        stopped
    }

    /// Starts both daemons, each with its guests: this build's first if `new_first`. After an
    /// error, `daemons` has those that run.
    fn start(&self, lab: &mut Lab, daemons: &mut Daemons, new_first: bool) -> Measured<()> {
        let this = lab.setup().programs.clone();
        let mut builds = [("before", self.old), ("after", &*this)];
        if new_first {
            builds.reverse();
        }
        for (name, programs) in builds {
            let options = self.options.clone().named(name).programs(programs).preferred();
            daemons.insert(name, lab.start_lan(options)?);
            (self.fill)(lab, name)?;
            if let Some(cpus) = self.cpus {
                let pids = [lab.fabric_pid()?, lab.vm_pid("a")?, lab.vm_pid("b")?];
                for (pid, cpu) in pids.into_iter().zip(cpus) {
                    let words = format!("--all-tasks --pid --cpu-list {cpu} {pid}");
                    lab.run(&Command::new("taskset").args(words))?;
                }
            }
        }
        Ok(())
    }

    fn stop(lab: &mut Lab, daemons: &mut Daemons) -> Measured<()> {
        while let Some((_, daemon)) = daemons.pop_first() {
            lab.use_daemon(&daemon);
            lab.stop_daemon()?;
        }
        Ok(())
    }
}

/// Two microguests, a and b, with VMCI devices.
fn pair(lab: &mut Lab, _: &str) -> Measured<()> {
    for (name, ip) in [("a", "10.82.0.1"), ("b", "10.82.0.2")] {
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n");
        let file = format!("kind = \"micro\"\nmemory = \"64MiB\"\n{nic}[vmci]\ndomains = [\"goals\"]\n");
        lab.start_vm(name, &file)?;
        let pid = lab.vm_pid(name)?;
        lab.prefer(pid);
    }
    Ok(())
}

/// A microguest that can be latency-sensitive, four that compute, and a client.
fn neighbours(lab: &mut Lab, name: &str) -> Measured<()> {
    let client = format!("taut-goal-{name}");
    // An earlier stage has left it, unless this is the first.
    let _ = lab.machine().run(&Command::new("ip").args(["netns", "del", &client]));
    let reserved = "memory_reservation = \"full\"\n[cpu]\nreservation = \"full\"";
    lab.micro("rt1", "10.85.0.1", reserved)?;
    for index in 1..=4 {
        lab.micro(&format!("n{index}"), &format!("10.85.0.{}", index + 10), "")?;
    }
    lab.netns(&client, "lan", "10.85.0.100")
}

/// Takes one sample of response times with a command of `taut bench`, whose document has its
/// repeats at a path.
fn responses(lab: &mut Lab, words: &str, repeats: &str) -> Measured<Doc> {
    let times = bench(lab, words, 15)?.numbers(repeats, "p50_us")?;
    Ok(Doc::from(json!({ "p50_us": median(&times)? })))
}

/// Takes one sample of a throughput: of all bytes in all of the time.
fn throughput(lab: &mut Lab, words: &str, repeats: &str) -> Measured<Doc> {
    let each = bench(lab, words, 30)?.numbers(repeats, "mbit_s")?;
    Ok(Doc::from(json!({ "mbit_s": each.iter().sum::<f64>() / each.len() as f64 })))
}

fn bench(lab: &mut Lab, words: &str, repeats: u32) -> Measured<Doc> {
    let command = lab.bench_command(format!("{words} --duration 0.1 --repeat {repeats}"));
    lab.bench_by(&command.preferred().limit(60))
}

fn guests(lab: &mut Lab, results: &mut Results, plan: Plan, old: &Path) -> Measured<()> {
    let options = DaemonOptions::default();
    let vmci = options.clone().env("TAUT_MICRO_VMCI", "buffer=65580,rx=16,tx=16,copy=on");
    let beside = Beside { plan, old, options: vmci, fill: pair, cpus: ONE_WAY };
    let outcome = beside.compare(lab, results, "HS3-VC-G1", "mbit_s", |lab, _| {
        throughput(lab, "vsock a b --message 64KiB --socket-size 256KiB", "cells.0.repeats")
    });
    results.settle(&["HS3-VC-G1"], outcome);

    let polling = options.clone().args("--fabric-poll-us 1000");
    let beside = Beside { options: polling, cpus: IN_TURNS, ..beside };
    let outcome = beside.compare(lab, results, "HS3-VC-G3", "p50_us", |lab, _| {
        responses(lab, "vsock a b --mode rr --message 256 --socket-size 64KiB", "cells.0.repeats")
    });
    results.settle(&["HS3-VC-G3"], outcome);

    let beside = Beside { options, ..beside };
    let outcome =
        beside.compare(lab, results, "HS3-SK4-rr", "p50_us", |lab, _| responses(lab, "rr a b", "a.repeats"));
    results.settle(&["HS3-SK4-rr"], outcome);
    let beside = Beside { cpus: ONE_WAY, ..beside };
    let outcome = beside.compare(lab, results, "HS3-SK4-stream", "mbit_s", |lab, _| {
        throughput(lab, "stream a b --pattern bulk", "a.repeats")
    });
    results.settle(&["HS3-SK4-stream"], outcome);

    lab.enter_scope()?;
    let beside = Beside { fill: neighbours, cpus: None, ..beside };
    // Requests a second of a VM that is high beside four that compute.
    beside.compare(lab, results, "HS3-PL2", "per_s", |lab, build| {
        let words = "rt1 --address 10.85.0.1 --beside n1 n2 n3 n4 --duration 0.4 --repeat 2";
        let result = lab.bench(format!("neighbours netns/taut-goal-{build} {words}"))?;
        result.find("conditions", &[("name", "high")])?.at("configuration.median")
    })
}
