//! What the walls cost, with few and many mounts on the host. Printed, not bounded tightly: this
//! host may be busy.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::fixture::{Launching, PATIENCE, Start, copy_mounts, cpu_time, skeleton, system};

/// Rounds, unless the variable says otherwise.
const STARTS: usize = 30;
/// Variable with the number of rounds.
const STARTS_VARIABLE: &str = "TAUT_LAUNCH_STARTS";

/// Name of the samples of the program without the launcher.
const ALONE: &str = "0: without the launcher";

/// Additional mounts of the hosts.
const MOUNTS: [usize; 2] = [10, 500];

/// Medians.
#[derive(Debug)]
struct Cost {
    /// CPU time of all processes, from fork to the end of the program.
    cpu: Duration,
    /// Time until the program runs.
    elapsed: Duration,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} CPU time, {:?} until it runs", self.cpu, self.elapsed)
    }
}

impl Cost {
    fn of(samples: &[(Duration, Duration)]) -> Self {
        let median = |pick: fn(&(Duration, Duration)) -> Duration| {
            let mut values: Vec<Duration> = samples.iter().map(pick).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        Self { cpu: median(|sample| sample.0), elapsed: median(|sample| sample.1) }
    }
}

/// A thread that sees a number of mounts more than the others.
struct Host<'scope> {
    /// Asks for one launch, with or without a skeleton.
    ask: Sender<bool>,
    /// CPU time and time of each launch.
    costs: Receiver<(Duration, Duration)>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Host<'scope> {
    fn new<'env>(scope: &'scope Scope<'scope, 'env>, mounts: usize, folder: &'env Path) -> Self {
        let (ask, asked) = channel::<bool>();
        let (cost, costs) = channel();
        let run = move || {
            mount_many(mounts, folder);
            let namespace = skeleton(system()).unwrap();
            for with_skeleton in asked {
                cost.send(launch(with_skeleton.then_some(&namespace))).unwrap();
            }
        };
        Self { ask, costs, thread: scope.spawn(run) }
    }

    fn launch(&self, with_skeleton: bool) -> (Duration, Duration) {
        self.ask.send(with_skeleton).unwrap();
        self.costs.recv().unwrap()
    }
}

/// Starts `true` with all walls of a VM.
fn launch(namespace: Option<&OwnedFd>) -> (Duration, Duration) {
    let mut start = Start::new(&fs::canonicalize("/usr/bin/true").unwrap(), &["true"]);
    start.document.root.skeleton = namespace.map(|namespace| start.inherit(namespace.try_clone().unwrap()));
    let document = start.document.to_bytes().unwrap();
    let begin = Instant::now();
    let Launching { launcher, report, confirm, input: _input, output: _output } = start.spawn(&document, &[]);
    let waiting = taut_launch::read_waiting(&report, PATIENCE).unwrap();
    let launched = waiting.finish(confirm.into(), &report, PATIENCE).unwrap();
    let elapsed = begin.elapsed();
    (cpu_time(launcher.id()) + cpu_time(launched.pid), elapsed)
}

/// Starts `true` as it is.
fn direct() -> (Duration, Duration) {
    let begin = Instant::now();
    let mut process = Command::new("/usr/bin/true").spawn().unwrap();
    let elapsed = begin.elapsed();
    let cpu = cpu_time(process.id());
    // It is gone: `cpu_time` has waited for it.
    assert!(process.wait().is_err());
    (cpu, elapsed)
}

/// Mounts this number of file systems that only this thread sees.
fn mount_many(count: usize, folder: &Path) {
    copy_mounts();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    for number in 0..count {
        let place = folder.join(number.to_string());
        std::fs::create_dir_all(&place).unwrap();
        mount("tmpfs", &place, "tmpfs", MountFlags::empty(), c"size=4k").unwrap();
    }
}

/// Prints what a launch in a skeleton added to the CPU time of the program alone, round by round.
fn print_added(samples: &BTreeMap<String, Vec<(Duration, Duration)>>) {
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6;
    let alone = &samples[ALONE];
    for (cpu, _) in alone {
        println!("the program alone: {:.0} µs", micros(*cpu));
    }
    for mounts in MOUNTS {
        for ((launched, _), (alone, _)) in samples[&skeleton_name(mounts)].iter().zip(alone) {
            println!("added with {mounts} mounts: {:.0} µs", micros(*launched) - micros(*alone));
        }
    }
}

fn skeleton_name(mounts: usize) -> String {
    format!("{mounts} mounts, a skeleton")
}

/// Launches alternate between the hosts, so that what else runs here meets all of them.
#[test]
fn the_cost_of_a_launch_depends_on_mounts_only_without_a_skeleton() {
    let folder = tempfile::tempdir().unwrap();
    let starts = std::env::var(STARTS_VARIABLE).map_or(STARTS, |starts| starts.parse().unwrap());
    let cpu = thread::scope(|scope| {
        let hosts = MOUNTS.map(|mounts| Host::new(scope, mounts, folder.path()));
        let mut samples: BTreeMap<String, Vec<(Duration, Duration)>> = BTreeMap::new();
        for _ in 0..starts {
            samples.entry(ALONE.to_owned()).or_default().push(direct());
            for (host, mounts) in hosts.iter().zip(MOUNTS) {
                let without = format!("{mounts} mounts, no skeleton");
                for (with_skeleton, name) in [(true, skeleton_name(mounts)), (false, without)] {
                    samples.entry(name).or_default().push(host.launch(with_skeleton));
                }
            }
        }
        for host in hosts {
            drop(host.ask);
            host.thread.join().unwrap();
        }
        print_added(&samples);
        let mut cpu = BTreeMap::new();
        for (name, samples) in samples {
            let cost = Cost::of(&samples);
            println!("{name}: {cost}");
            cpu.insert(name, cost.cpu);
        }
        cpu
    });
    // The bound is 1.2 and 10 ms. The rest is room for a host that does something else meanwhile.
    let [few, many] = MOUNTS.map(|mounts| cpu[&skeleton_name(mounts)]);
    assert!(many < few * 2 + Duration::from_millis(10), "{few:?}, {many:?}");
}
