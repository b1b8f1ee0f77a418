//! The difference of two readings, per second or in percent of the time between them.
//!
//! A VM, thread, device or port that is not in both readings, and a counter that went back, have no
//! rate.

use std::collections::BTreeMap;
use std::time::Duration;

use taut_api::fabric::DropReason;
use taut_api::fabric::counters::PortCounters;
use taut_api::printable::{MOST_NAME, printable};
use taut_api::statistics::PortRates;
use taut_host::observe::disks::Disk;
use taut_host::observe::load::HostMemory;
use taut_host::observe::processes::{DiskUse, MemoryUse, TICKS_PER_S, Thread};

use crate::reading::{Machine, Port, Reading};

/// Rates of a host.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// Time of the later reading, in milliseconds since the Unix epoch.
    pub epoch_ms: u64,
    /// Busy time of each pCPU, in percent.
    pub pcpus: BTreeMap<u32, f64>,
    /// Memory of the host.
    pub memory: Option<HostMemory>,
    /// VMs of the later reading.
    pub vms: Vec<Vm>,
    /// Number of vCPUs of all VMs.
    pub vcpus: usize,
    /// Number of VMs and other processes that the later reading has left out.
    pub left_out: usize,
    /// Other processes that ran.
    pub processes: Vec<Process>,
    /// Block devices of the later reading.
    pub disks: Vec<DiskRates>,
    /// Interrupts that came.
    pub interrupts: Vec<InterruptRates>,
    /// Ports of the later reading; none if `tautd` did not answer then.
    pub ports: Option<Vec<PortLine>>,
}

/// A VM. Times are in percent of one pCPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Vm {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Number of its threads.
    pub threads: usize,
    /// Its vCPUs; empty if the threads' names do not tell them, or if the readings have no threads.
    pub vcpus: Vec<Vcpu>,
    /// Time that its other threads ran.
    pub others: Option<f64>,
    /// Time that a limit kept it from running.
    pub throttled: Option<f64>,
    /// Memory and disk traffic since its start.
    pub memory: Option<MemoryUse>,
    /// Bytes read from block devices per second.
    pub read_per_s: Option<f64>,
    /// Bytes written to block devices per second.
    pub written_per_s: Option<f64>,
    /// System calls per second that read.
    pub reads_per_s: Option<f64>,
    /// System calls per second that write.
    pub writes_per_s: Option<f64>,
}

/// A vCPU. Times are in percent.
#[derive(Debug, Clone, PartialEq)]
pub struct Vcpu {
    /// Its index.
    pub vcpu: u32,
    /// Its thread.
    pub tid: u32,
    /// The pCPU that it last ran on.
    pub cpu: u32,
    /// Time that it ran, and time that it was ready to run and waited for a pCPU.
    pub times: Option<Times>,
    /// Time that it waited for block devices, if the kernel counts that.
    pub paged: Option<f64>,
    /// Thread of somebody else that ran longest on the vCPU's pCPU.
    pub neighbour: Option<Neighbour>,
}

/// Times of a vCPU, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Time that it ran.
    pub run: f64,
    /// Time that it was ready to run and waited.
    pub ready: f64,
}

/// A thread that ran on a vCPU's pCPU: it was last seen there in both readings, and ran in between.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    /// Its name, with that of its VM.
    pub name: String,
    /// Time that it ran, in percent.
    pub percent: f64,
}

/// A process that is no VM. Times of all its threads are in percent of one pCPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Name of its first thread.
    pub name: String,
    /// Number of its threads.
    pub threads: usize,
    /// Time that they ran.
    pub run: f64,
    /// Time that they were ready to run and waited.
    pub ready: f64,
}

/// A block device.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskRates {
    /// Its name.
    pub name: String,
    /// Requests that it works on now.
    pub active: u64,
    /// Reads per second.
    pub reads_per_s: Option<f64>,
    /// Writes per second.
    pub writes_per_s: Option<f64>,
    /// Bytes read per second.
    pub read_per_s: Option<f64>,
    /// Bytes written per second.
    pub written_per_s: Option<f64>,
    /// Mean time of a request in milliseconds, if one has ended.
    pub request_ms: Option<f64>,
    /// Time that it had requests, in percent.
    pub busy: Option<f64>,
}

/// An interrupt.
#[derive(Debug, Clone, PartialEq)]
pub struct InterruptRates {
    /// Number or abbreviation.
    pub name: String,
    /// The kernel's description.
    pub what: String,
    /// Interrupts per second on all pCPUs.
    pub per_s: f64,
    /// Interrupts per second on each pCPU that had some, the most first.
    pub pcpus: Vec<(u32, f64)>,
}

/// A port.
#[derive(Debug, Clone, PartialEq)]
pub struct PortLine {
    /// Its number.
    pub number: u32,
    /// Its owner.
    pub owner: String,
    /// Its vSwitch.
    pub vswitch: String,
    /// What it did in the time.
    pub done: Option<Done>,
}

/// What a port did between two readings.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Rates.
    pub rates: PortRates,
    /// Counts.
    pub counted: PortCounters,
}

/// Returns the rates between two readings of a host.
pub fn between(before: &Reading, after: &Reading) -> Rates {
    let span = Span::between(before.at, after.at);
    let runs = runs(before, after);
    let neighbours = neighbours(before, after, &runs);
    Rates {
        epoch_ms: after.epoch_ms,
        pcpus: after.pcpus.percent_of_each_since(&before.pcpus),
        memory: after.memory,
        vms: vms(before, after, span, &neighbours),
        vcpus: after.machines.iter().map(|machine| machine.vcpus.len()).sum(),
        left_out: after.left_out,
        processes: processes(before, after, span),
        disks: disks(&before.disks, &after.disks, span),
        interrupts: interrupts(before, after, span),
        ports: after.ports.as_ref().map(|(at, now)| match &before.ports {
            Some((then_at, then)) => ports(then, now, Span::between(*then_at, *at)),
            None => ports(&[], now, span),
        }),
    }
}

/// The time between two readings.
#[derive(Debug, Clone, Copy)]
struct Span {
    ns: f64,
}

impl Span {
    fn between(before: Duration, after: Duration) -> Self {
        Self { ns: after.saturating_sub(before).as_nanos() as f64 }
    }

    /// Returns a count per second, unless the counter went back or no time has passed.
    fn per_s(self, before: u64, after: u64) -> Option<f64> {
        let count = after.checked_sub(before)?;
        (self.ns > 0.0).then(|| count as f64 * 1e9 / self.ns)
    }

    /// Returns a time in nanoseconds as percent.
    fn percent(self, before: u64, after: u64) -> Option<f64> {
        Some(self.per_s(before, after)? / 1e7)
    }

    /// Like [`Self::per_s`], of counters that may be absent.
    fn per_s_of(self, before: Option<u64>, after: Option<u64>) -> Option<f64> {
        self.per_s(before?, after?)
    }
}

fn by<K: Ord, T>(all: &[T], key: impl Fn(&T) -> K) -> BTreeMap<K, &T> {
    all.iter().map(|one| (key(one), one)).collect()
}

/// Returns the same thread in another reading. The kernel uses numbers again.
fn same<'a>(reading: &'a Reading, thread: &Thread) -> Option<&'a Thread> {
    reading.threads.get(&thread.tid).filter(|other| other.pid == thread.pid)
}

/// Returns the threads that ran and stayed on their pCPU, by pCPU, the longest first.
fn runs(before: &Reading, after: &Reading) -> BTreeMap<u32, Vec<(u64, u32)>> {
    let mut runs = BTreeMap::<u32, Vec<(u64, u32)>>::new();
    for thread in after.threads.values() {
        let Some(then) = same(before, thread).filter(|then| then.cpu == thread.cpu) else { continue };
        if let Some(ns @ 1..) = thread.times.ran_ns.checked_sub(then.times.ran_ns) {
            runs.entry(thread.cpu).or_default().push((ns, thread.tid));
        }
    }
    for runs in runs.values_mut() {
        runs.sort_unstable_by(|a, b| b.cmp(a));
    }
    runs
}

/// Returns the neighbour of each vCPU, by its thread.
fn neighbours(
    before: &Reading,
    after: &Reading,
    runs: &BTreeMap<u32, Vec<(u64, u32)>>,
) -> BTreeMap<u32, Neighbour> {
    let Span { ns } = Span::between(before.at, after.at);
    let machines = by(&after.machines, |machine| machine.pid);
    let name = |tid: u32| {
        let thread = &after.threads[&tid];
        match machines.get(&thread.pid) {
            Some(machine) => match thread.vcpu {
                Some(vcpu) => format!("{} vCPU {vcpu}", machine.name),
                None => format!("{} {}", machine.name, thread.name),
            },
            None => thread.name.clone(),
        }
    };
    let of = |tid: &u32| {
        let on = runs.get(&after.threads.get(tid)?.cpu)?;
        let (ran, other) = on.iter().find(|(_, other)| other != tid)?;
        let percent = *ran as f64 * 100.0 / ns.max(1.0);
        Some((*tid, Neighbour { name: name(*other), percent }))
    };
    after.machines.iter().flat_map(|machine| machine.vcpus.values()).filter_map(of).collect()
}

fn vms(before: &Reading, after: &Reading, span: Span, neighbours: &BTreeMap<u32, Neighbour>) -> Vec<Vm> {
    let identity = |machine: &Machine| (machine.pid, machine.started);
    let old = by(&before.machines, identity);
    let vm = |now: &Machine| {
        let then = old.get(&identity(now)).copied();
        let vcpu = |(vcpu, tid): (&u32, &u32)| {
            let thread = after.threads.get(tid)?;
            let last = then.and_then(|_| same(before, thread));
            let counted = before.delays_are_counted && after.delays_are_counted;
            Some(Vcpu {
                vcpu: *vcpu,
                tid: *tid,
                cpu: thread.cpu,
                times: last.and_then(|last| {
                    let run = span.percent(last.times.ran_ns, thread.times.ran_ns)?;
                    Some(Times { run, ready: span.percent(last.times.waited_ns, thread.times.waited_ns)? })
                }),
                paged: last.filter(|_| counted).and_then(|last| {
                    let ticks = span.per_s(last.block_ticks, thread.block_ticks)?;
                    Some(ticks * 100.0 / TICKS_PER_S as f64)
                }),
                neighbour: neighbours.get(tid).cloned(),
            })
        };
        let disk =
            |of: fn(&DiskUse) -> u64| span.per_s_of(then?.disk.as_ref().map(of), now.disk.as_ref().map(of));
        Vm {
            pid: now.pid,
            name: now.name.clone(),
            threads: now.threads,
            vcpus: now.vcpus.iter().filter_map(vcpu).collect(),
            others: then.and_then(|then| span.percent(then.others_ns, now.others_ns)),
            throttled: then.and_then(|then| span.percent(then.throttled_ns?, now.throttled_ns?)),
            memory: now.memory,
            read_per_s: disk(|disk| disk.read),
            written_per_s: disk(|disk| disk.written),
            reads_per_s: disk(|disk| disk.reads),
            writes_per_s: disk(|disk| disk.writes),
        }
    };
    after.machines.iter().map(vm).collect()
}

fn processes(before: &Reading, after: &Reading, span: Span) -> Vec<Process> {
    let machines = by(&after.machines, |machine| machine.pid);
    let mut all = BTreeMap::<u32, Process>::new();
    for thread in after.threads.values().filter(|thread| !machines.contains_key(&thread.pid)) {
        let process = all.entry(thread.pid).or_insert_with(|| Process {
            pid: thread.pid,
            name: String::new(),
            threads: 0,
            run: 0.0,
            ready: 0.0,
        });
        process.threads += 1;
        if thread.tid == thread.pid {
            process.name.clone_from(&thread.name);
        }
        let Some(then) = same(before, thread) else { continue };
        process.run += span.percent(then.times.ran_ns, thread.times.ran_ns).unwrap_or(0.0);
        process.ready += span.percent(then.times.waited_ns, thread.times.waited_ns).unwrap_or(0.0);
    }
    all.into_values().filter(|process| process.run > 0.0).collect()
}

fn disks(before: &[Disk], after: &[Disk], span: Span) -> Vec<DiskRates> {
    let old = by(before, |disk| disk.name.clone());
    let disk = |now: &Disk| {
        let then = old.get(&now.name).copied();
        let rate = |of: fn(&Disk) -> u64| span.per_s(of(then?), of(now));
        let ms = rate(|disk| disk.read_ms).zip(rate(|disk| disk.write_ms));
        let ended = rate(|disk| disk.reads).zip(rate(|disk| disk.writes));
        let (ms, ended) = (ms.map(|(a, b)| a + b), ended.map(|(a, b)| a + b));
        DiskRates {
            name: printable(&now.name, MOST_NAME),
            active: now.active,
            reads_per_s: rate(|disk| disk.reads),
            writes_per_s: rate(|disk| disk.writes),
            read_per_s: rate(|disk| disk.read_bytes),
            written_per_s: rate(|disk| disk.written_bytes),
            request_ms: ms.zip(ended).filter(|(_, ended)| *ended > 0.0).map(|(ms, ended)| ms / ended),
            busy: rate(|disk| disk.busy_ms).map(|ms| (ms / 10.0).min(100.0)),
        }
    };
    after.iter().map(disk).collect()
}

fn interrupts(before: &Reading, after: &Reading, span: Span) -> Vec<InterruptRates> {
    let rows = before.interrupts.rows.iter();
    let old: BTreeMap<_, _> = rows.map(|row| (row.name.as_str(), row)).collect();
    let rates = after.interrupts.rows.iter().filter_map(|row| {
        // The kernel uses numbers again, too.
        let then = old.get(row.name.as_str()).filter(|then| then.what == row.what)?;
        let on = |(cpu, now): (&u32, &u64)| Some((*cpu, span.per_s(*then.counts.get(cpu)?, *now)?));
        let mut pcpus: Vec<_> = row.counts.iter().filter_map(on).filter(|(_, per_s)| *per_s > 0.0).collect();
        pcpus.sort_by(|a, b| b.1.total_cmp(&a.1));
        let per_s = pcpus.iter().map(|(_, per_s)| per_s).sum();
        let (name, what) = (printable(&row.name, MOST_NAME), printable(&row.what, MOST_NAME));
        Some(InterruptRates { name, what, per_s, pcpus })
    });
    rates.filter(|interrupt| interrupt.per_s > 0.0).collect()
}

fn ports(before: &[Port], after: &[Port], span: Span) -> Vec<PortLine> {
    let identity = |port: &Port| (port.number, port.owner.clone());
    let old = by(before, identity);
    let line = |now: &Port| {
        let counted = old.get(&identity(now)).and_then(|then| difference(&then.counters, &now.counters));
        PortLine {
            number: now.number,
            owner: now.owner.clone(),
            vswitch: now.vswitch.clone(),
            done: counted.map(|counted| Done {
                rates: PortRates::of(&counted, (span.ns / 1e6).round() as u64),
                counted,
            }),
        }
    };
    after.iter().map(line).collect()
}

/// Returns the difference of a port's counters, or nothing if one of them went back.
fn difference(before: &PortCounters, after: &PortCounters) -> Option<PortCounters> {
    let less = |of: fn(&PortCounters) -> u64| of(after).checked_sub(of(before));
    Some(PortCounters {
        rx_frames: less(|of| of.rx_frames)?,
        rx_bytes: less(|of| of.rx_bytes)?,
        tx_frames: less(|of| of.tx_frames)?,
        tx_bytes: less(|of| of.tx_bytes)?,
        interrupts: less(|of| of.interrupts)?,
        kicks: less(|of| of.kicks)?,
        rx_multicast: less(|of| of.rx_multicast)?,
        rx_waits: less(|of| of.rx_waits)?,
        rx_drops: drops(&before.rx_drops, &after.rx_drops)?,
        tx_drops: drops(&before.tx_drops, &after.tx_drops)?,
        ..PortCounters::default()
    })
}

fn drops(before: &[(DropReason, u64)], after: &[(DropReason, u64)]) -> Option<Vec<(DropReason, u64)>> {
    let of = |all: &[(DropReason, u64)], reason| {
        all.iter().find(|(each, _)| *each == reason).map_or(0, |(_, count)| *count)
    };
    if before.iter().any(|(reason, count)| of(after, *reason) < *count) {
        return None;
    }
    let more = after.iter().map(|(reason, count)| (*reason, count - of(before, *reason)));
    Some(more.filter(|(_, count)| *count > 0).collect())
}

#[cfg(test)]
mod tests;
