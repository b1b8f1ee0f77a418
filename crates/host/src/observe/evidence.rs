//! Evidence of latency sensitivity (LS-10): the kernel's counters of a VM's vCPUs, and of
//! other threads and interrupts on their pCPUs.
//!
//! A result is the difference of two readings. ESX's `%USED` and `%RDY` are the kernel's run time
//! and run delay.

mod memory;
mod threads;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use self::memory::{NodeMemory, memory};
pub use super::interrupts::Interrupt;

use self::threads::Thread;
use super::interrupts::{self, Interrupts};
use crate::kernel::affinity;

/// Time between two readings of [`watch`].
const INTERVAL: Duration = Duration::from_millis(200);

/// Counters at one time.
#[derive(Debug, Clone)]
pub struct Reading {
    at: Instant,
    /// Thread of each vCPU.
    vcpus: BTreeMap<u32, u32>,
    /// All threads of the host, by number.
    threads: BTreeMap<u32, Thread>,
    interrupts: Interrupts,
}

/// Reads the counters of the host below `root`; the VM's process is `pid`.
pub fn read(root: &Path, pid: u32) -> Reading {
    let at = Instant::now();
    let vcpus = affinity::vcpus(root, pid);
    let threads = threads::read(root, |tid| vcpus.values().any(|vcpu| *vcpu == tid));
    Reading { at, vcpus, threads, interrupts: interrupts::read(root) }
}

/// The difference between two readings of a vCPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vcpu {
    /// Index of the vCPU.
    pub vcpu: u32,
    /// Its thread on the host.
    pub tid: u32,
    /// The pCPU that it owns, or otherwise the one that it last ran on.
    pub cpu: u32,
    /// True if it owns the pCPU.
    pub exclusive: bool,
    /// Time that it ran, in percent.
    pub used_percent: f64,
    /// Time that it was ready to run and waited, in percent (`%RDY`).
    pub ready_percent: f64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// Voluntary context switches: it had nothing to do.
    pub voluntary: u64,
    /// Moves to another pCPU, if the kernel counts them per thread.
    pub migrations: Option<u64>,
    /// Other threads that ran on its own pCPU, the longest first; empty for a shared pCPU.
    pub intruders: Vec<Intruder>,
    /// Interrupts on its own pCPU, the most frequent first.
    pub interrupts: Vec<Interrupt>,
}

/// A thread that ran on a pCPU that a vCPU owns. Threads that began or ended between the readings
/// are missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Intruder {
    /// Thread number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Number of times that it ran.
    pub times: u64,
    /// Total time that it ran, in milliseconds.
    pub ms: f64,
    /// Why it may run there nevertheless.
    pub why: &'static str,
}

/// Returns the time between two readings, and what each vCPU did. `cpus` are the pCPUs that the
/// vCPUs own, in their order; further vCPUs own none.
pub fn between(before: &Reading, after: &Reading, cpus: &[u32]) -> (Duration, Vec<Vcpu>) {
    let time = after.at.saturating_duration_since(before.at);
    let of_time = |ns: u64| 100.0 * ns as f64 / (time.as_nanos() as f64).max(1.0);
    let vcpus = after.vcpus.iter().filter_map(|(&vcpu, tid)| {
        let (then, now) = (before.threads.get(tid)?, after.threads.get(tid)?);
        let (left, leaves) = (then.switches.as_ref()?, now.switches.as_ref()?);
        let own = cpus.get(vcpu as usize).copied();
        let migrations = leaves.migrations.zip(left.migrations);
        Some(Vcpu {
            vcpu,
            tid: *tid,
            cpu: own.unwrap_or(now.cpu),
            exclusive: own.is_some(),
            used_percent: of_time(now.ran_ns.saturating_sub(then.ran_ns)),
            ready_percent: of_time(now.waited_ns.saturating_sub(then.waited_ns)),
            involuntary: leaves.involuntary.saturating_sub(left.involuntary),
            voluntary: leaves.voluntary.saturating_sub(left.voluntary),
            migrations: migrations.map(|(now, then)| now.saturating_sub(then)),
            intruders: own.map(|cpu| intruders(before, after, cpu, *tid)).unwrap_or_default(),
            interrupts: own
                .map(|cpu| interrupts::between(&before.interrupts, &after.interrupts, cpu))
                .unwrap_or_default(),
        })
    });
    (time, vcpus.collect())
}

/// Watches a VM for `time`, with a reading every [`INTERVAL`].
///
/// A thread that was on the same pCPU in two successive readings, and ran in between, counts as
/// having run there. `cpus` are the pCPUs that the vCPUs own, in their order.
pub fn watch(root: &Path, pid: u32, cpus: &[u32], time: Duration) -> (Duration, Vec<Vcpu>) {
    let first = read(root, pid);
    let mut last = first.clone();
    let mut seen: BTreeMap<(u32, u32), Intruder> = BTreeMap::new();
    while last.at.saturating_duration_since(first.at) < time {
        thread::sleep(INTERVAL.min(time.saturating_sub(last.at.saturating_duration_since(first.at))));
        let next = read(root, pid);
        for vcpu in between(&last, &next, cpus).1 {
            for intruder in vcpu.intruders {
                let sum = seen.entry((vcpu.vcpu, intruder.tid));
                sum.and_modify(|sum| {
                    sum.times += intruder.times;
                    sum.ms += intruder.ms;
                })
                .or_insert(intruder);
            }
        }
        last = next;
    }
    let (time, mut vcpus) = between(&first, &last, cpus);
    for vcpu in &mut vcpus {
        let own = seen.range((vcpu.vcpu, 0)..=(vcpu.vcpu, u32::MAX));
        vcpu.intruders = own.map(|(_, intruder)| intruder.clone()).collect();
        vcpu.intruders.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    }
    (time, vcpus)
}

fn intruders(before: &Reading, after: &Reading, cpu: u32, owner: u32) -> Vec<Intruder> {
    let others = after.threads.iter().filter(|(tid, thread)| **tid != owner && thread.cpu == cpu);
    let ran = others.filter_map(|(tid, now)| {
        let then = before.threads.get(tid).filter(|then| then.cpu == cpu)?;
        let ns = now.ran_ns.saturating_sub(then.ran_ns);
        (ns > 0).then(|| Intruder {
            tid: *tid,
            name: now.name.clone(),
            times: now.times.saturating_sub(then.times),
            ms: ns as f64 / 1e6,
            why: threads::why(&now.name, now.kernel),
        })
    });
    let mut ran: Vec<_> = ran.collect();
    ran.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    ran
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A thread: process, thread number, name, pCPU, nanoseconds run and waited with the number of
    /// runs, and voluntary and involuntary switches.
    struct Row(u32, u32, &'static str, u32, [u64; 3], [u64; 2]);

    fn host(root: &Path, rows: &[Row], interrupts: &str) {
        for Row(pid, tid, name, cpu, [ran, waited, times], [voluntary, involuntary]) in rows {
            let task = root.join(format!("proc/{pid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            // The name may hold any character, including parentheses.
            let rest = vec!["0"; 35].join(" ");
            fs::write(task.join("stat"), format!("{tid} ({name}) S {rest} {cpu} 0 0\n")).unwrap();
            fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            fs::write(task.join("schedstat"), format!("{ran} {waited} {times}\n")).unwrap();
            let status = format!(
                "Name:\t{name}\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n"
            );
            fs::write(task.join("status"), status).unwrap();
        }
        fs::write(root.join("proc/interrupts"), interrupts).unwrap();
    }

    #[test]
    fn a_vcpus_times_switches_intruders_and_interrupts_are_told() {
        let root = tempfile::tempdir().unwrap();
        let before = [
            Row(7, 8, "CPU 0/KVM", 3, [1_000, 50, 4], [10, 1]),
            Row(7, 9, "CPU 1/KVM", 0, [0, 0, 0], [0, 0]),
            Row(2, 2, "kworker/3:1 (x)", 3, [500, 0, 1], [0, 0]),
            Row(5, 5, "cron", 0, [500, 0, 1], [0, 0]),
        ];
        host(
            root.path(),
            &before,
            "      CPU0 CPU3\n  9:  1  5  IO-APIC  acpi\nLOC: 10 20 Local timer interrupts\nERR: 0\n",
        );
        let first = read(root.path(), 7);
        let after = [
            Row(7, 8, "CPU 0/KVM", 3, [2_001_000, 1_050, 5], [10, 3]),
            Row(7, 9, "CPU 1/KVM", 0, [0, 0, 0], [0, 0]),
            Row(2, 2, "kworker/3:1 (x)", 3, [3_000_500, 0, 5], [0, 0]),
            Row(5, 5, "cron", 0, [900, 0, 2], [0, 0]),
        ];
        host(
            root.path(),
            &after,
            "      CPU0 CPU3\n  9:  9  5  IO-APIC  acpi\nLOC: 10 27 Local timer interrupts\nERR: 0\n",
        );
        let second = Reading { at: first.at + Duration::from_millis(10), ..read(root.path(), 7) };
        let (time, vcpus) = between(&first, &second, &[3]);
        assert_eq!((time.as_millis(), vcpus.len()), (10, 2));
        let own = &vcpus[0];
        assert_eq!((own.vcpu, own.tid, own.cpu, own.exclusive), (0, 8, 3, true));
        assert_eq!((own.used_percent, own.ready_percent), (20.0, 0.01));
        assert_eq!((own.involuntary, own.voluntary, own.migrations), (2, 0, None));
        assert_eq!(own.intruders.len(), 1);
        assert_eq!((own.intruders[0].name.as_str(), own.intruders[0].times), ("kworker/3:1 (x)", 4));
        let timer = Interrupt { name: "LOC".into(), what: "Local timer interrupts".into(), times: 7 };
        assert_eq!(own.interrupts, [timer]);
        // The other vCPU owns no pCPU.
        assert_eq!((vcpus[1].exclusive, vcpus[1].cpu, vcpus[1].intruders.len()), (false, 0, 0));
    }

    #[test]
    fn a_host_without_any_of_it_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let reading = read(root.path(), 7);
        assert_eq!(between(&reading, &reading, &[0]).1, []);
    }
}
