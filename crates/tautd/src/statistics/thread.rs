//! The thread that takes samples.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::Duration;

use taut_api::fabric::PortId;
use taut_api::fabric::counters::PORT_WORDS;
use taut_history::{Clocks, History};
use taut_host::observe::load::Loads;
use taut_host::observe::processes::{Detail, Found, Machine, Needs, Processes};

use super::existing::{Existing, Subject};
use super::gauges::Gauges;
use super::left_out::LeftOut;
use super::machines::{self, Named, Sampled};
use super::{Sources, Statistics, clocks, host, ports, sockets};
use crate::fabric::counters::PortBlocks;

/// Time between two samples in ms.
const EVERY: u64 = 1000;
/// Samples between two writes to the file: a daemon that is killed loses no more.
const SAMPLES_PER_WRITE: u64 = 5;
/// Most subjects that have ended and keep their samples. Ports and VMs can be made and deleted
/// again all the time.
const MOST_ENDED: usize = 16_384;
/// Parts of the subjects. After each write, old samples of one part are deleted.
const PARTS: u64 = 120;

/// Figures of processes that a sample has.
const NEEDS: Needs =
    Needs { threads: Detail::Times, throttling: true, memory: true, disk: true, paging: true };

/// State of the readers between two samples.
#[derive(Debug)]
pub(super) struct Readers {
    processes: Processes,
    left_out: LeftOut,
    loads: Loads,
    gauges: Gauges,
    existing: Existing,
    counters: PortBlocks,
}

impl Readers {
    /// Begins to read the host below `root`.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            processes: Processes::new(root),
            left_out: LeftOut::default(),
            loads: Loads::new(root),
            gauges: Gauges::default(),
            existing: Existing::default(),
            counters: PortBlocks::default(),
        }
    }
}

/// Starts the thread. It ends with the process.
pub(super) fn start(statistics: Arc<Statistics>, sources: Sources) -> io::Result<()> {
    let run = move || {
        let mut readers = Readers::new(Path::new("/"));
        for number in 1_u64.. {
            sample(&statistics, &sources, &mut readers, clocks);
            if number.is_multiple_of(SAMPLES_PER_WRITE) {
                statistics.write();
                statistics.prune(clocks().since_boot / (EVERY * SAMPLES_PER_WRITE), PARTS);
            }
            // At whole seconds, so that samples are evenly spaced however long one takes.
            let since_boot = clocks().since_boot;
            sleep(Duration::from_millis(EVERY - since_boot % EVERY));
        }
    };
    Builder::new().name("statistics".into()).spawn(run).map(drop)
}

/// Forgets the oldest subjects that have ended, if there are too many: of foreign VMs, and of all
/// subjects. `keys` are those that exist.
pub(super) fn bound(history: &mut History, keys: &BTreeSet<String>) {
    if history.len() > machines::MOST_FOREIGN {
        let running = keys.iter().filter(|key| machines::is_foreign(key)).count();
        let most = machines::MOST_FOREIGN.saturating_sub(running);
        history.keep_newest(most, |key| machines::is_foreign(key) && !keys.contains(key));
    }
    if history.len() > MOST_ENDED + keys.len() {
        history.keep_newest(MOST_ENDED, |key| !keys.contains(key));
    }
}

/// Records the counters of all ports and VMCI devices. `read` reads the words of a port. A port
/// whose counters have the same sum as before is marked as one that rests, instead.
fn record_ports(
    history: &mut History,
    now: Clocks,
    existing: &mut Existing,
    gauges: &mut Gauges,
    mut read: impl FnMut(PortId) -> io::Result<[u64; PORT_WORDS]>,
) -> io::Result<()> {
    for Subject { key, name, port, sum, rests } in &mut existing.ports {
        let words = read(*port)?;
        let before = sum.replace(ports::sum(&words));
        *rests = before == *sum && (*rests || history.begin_rest(key));
        if !*rests {
            history.record(now.since_boot, key, name, &ports::reading(&words));
        }
    }
    for Subject { key, name, port, .. } in &existing.sockets {
        let reading = sockets::reading(&read(*port)?, gauges.begin(key, now.since_boot));
        history.record(now.since_boot, key, name, &reading);
    }
    Ok(())
}

/// Takes a sample of the host and of all ports and machines that exist, and ends those that are
/// gone.
pub(super) fn sample(
    statistics: &Statistics,
    sources: &Sources,
    readers: &mut Readers,
    clocks: impl Fn() -> Clocks,
) {
    let Readers { processes, left_out, loads, gauges, existing, counters } = readers;
    let last = statistics.running();
    let state = sources.store.state();
    let (have_changed, is_observed) = {
        let seen = sources.board.lock();
        // Before the first observation no VM is known to be taut's.
        let is_observed = seen.reconciled > 0 || state.revision == 0;
        (existing.update(state.revision, &state.desired, &seen), is_observed)
    };
    let own = &existing.own;
    let (found, load) = (processes.read(NEEDS, |pid| own.contains_key(&pid)), loads.read());
    let Found { machines, machines_left_out, .. } = found;
    if let Some((level, kind, message)) = left_out.note(machines_left_out) {
        sources.store.event(level, host::KEY, kind, &message);
    }
    let read_at = clocks();
    let named = |(at, machine): (usize, Arc<Machine>)| {
        let known = if have_changed { None } else { last.name_of(at, &machine) };
        let named = known.or_else(|| Named::of(&machine, own).map(Arc::new))?;
        is_observed.then_some((machine, named))
    };
    let machines = machines.into_iter().enumerate().filter_map(named).collect();
    let sampled = Arc::new(Sampled { machines, left_out: machines_left_out });
    if let Ok(history) = &mut *statistics.history.lock() {
        // Others may have kept the lock for a while.
        let now = clocks();
        counters.begin();
        existing.belongs_to(history.number());
        let recorded =
            record_ports(history, now, existing, gauges, |port| counters.words(&sources.counters, port));
        for (machine, named) in &sampled.machines {
            machines::record(history, gauges, read_at.since_boot, named, machine);
        }
        // A reading that failed for want of descriptors or memory is left out. The next one has the
        // growth of its time as well.
        if let Ok(load) = load {
            let reading = host::reading(&load, gauges.begin(host::KEY, read_at.since_boot));
            history.record(read_at.since_boot, host::KEY, host::KEY, &reading);
        }
        if have_changed || !sampled.has_names_of(&last) {
            let machines = sampled.machines.iter().map(|(_, named)| named.key.as_str());
            let all = existing.keys().chain([host::KEY]).chain(machines).map(str::to_owned);
            let all: BTreeSet<_> = all.collect();
            history.end_others(|key| all.contains(key));
            bound(history, &all);
            gauges.keep(&all);
        }
        match recorded {
            Ok(()) => history.rest_until(now.since_boot),
            Err(error) => tracing::warn!(%error, "the counters of ports cannot be read"),
        }
    }
    statistics.set_running(sampled);
}
