//! Statistics: samples of counters, every second, and averages of any period.
//!
//! [`ports`], [`sockets`], [`machines`] and [`host`] say what is read; [`existing`] keeps the lists
//! of ports, VMCI devices and taut's running VMs, and [`thread`](self::thread) reads all of it
//! every second. [`counts`] and [`series`] answer requests from the samples, which are in a file of
//! their own beside the store.

mod counts;
mod existing;
mod gauges;
mod host;
mod left_out;
mod machines;
mod ports;
mod series;
mod sockets;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::fabric::counters::PortCounters;
use taut_api::statistics::{HostStatistics, Period, Series, SocketStatistics, VmStatistics};
use taut_history::thinning::{DENSITIES, Density, USUAL};
use taut_history::{Clocks, FileError, History};

use crate::board::Board;
use crate::fabric::counters::Counters;
use crate::store::Store;

use counts::{Counts, Span};
use machines::Sampled;

pub(crate) use machines::VmTimes;
pub(crate) use series::Asked;

/// Name of the file in the state directory.
const FILE: &str = "history.db";
/// Ends of the names of the file and of SQLite's write-ahead log beside it.
const ENDS: [&str; 2] = ["", "-wal"];
/// Longest wait of a request for others, or for a write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time without a write after which samples count as not written. Usually there are five seconds
/// between two writes.
const MOST_BETWEEN_WRITES: Duration = Duration::from_secs(30);
/// End of the names of files that were put aside, so that new ones could begin.
const UNUSABLE: &str = ".unusable";

/// The parts of the daemon that are sampled.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The documents: which ports there are.
    pub(crate) store: Arc<Store>,
    /// State as last observed: which of them exist.
    pub(crate) board: Arc<Board>,
    /// The fabric's counters.
    pub(crate) counters: Arc<Counters>,
}

/// The samples.
#[derive(Debug)]
pub(crate) struct Statistics {
    path: PathBuf,
    densities: [Density; DENSITIES],
    history: Mutex<Result<History, ApiError>>,
    /// Held by the request that reads. Of many requests only one waits for the history at a time,
    /// so that they do not keep samples from being taken.
    reader: Mutex<()>,
    /// When the samples were opened.
    opened: Instant,
    /// Time of the last write that succeeded, in ms since then.
    written_ms: AtomicU64,
    /// The VMs that ran at the last sample.
    running: Mutex<Arc<Sampled>>,
    /// The last write has failed.
    write_failed: AtomicBool,
    /// The last deletion of old samples has failed.
    prune_failed: AtomicBool,
}

/// Counts of a port.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CountedPort {
    /// Number of the port.
    pub(crate) port: u32,
    /// Owner of the port.
    pub(crate) owner: String,
    /// Time that is covered, in ms.
    pub(crate) covered_ms: u64,
    /// End of that time, in ms since the Unix epoch.
    pub(crate) to_ms: u64,
    /// Growth of its counters in that time.
    pub(crate) counters: PortCounters,
}

impl Statistics {
    /// Opens the samples. A file that is damaged, or of another version, is put aside. If the file
    /// cannot be opened, there are no statistics, and requests for them say why.
    /// `kept` are the times for which samples are kept, from the densest to the thinnest.
    pub(crate) fn open(state_dir: &Path, kept: [Period; DENSITIES]) -> Self {
        Self::open_at(state_dir, kept, clocks())
    }

    /// Opens the samples at a time.
    fn open_at(state_dir: &Path, kept: [Period; DENSITIES], now: Clocks) -> Self {
        let path = state_dir.join(FILE);
        let mut densities = USUAL;
        for (density, kept) in densities.iter_mut().zip(kept) {
            density.kept = kept.ms();
        }
        let opened = open(&path, densities, now).or_else(|error| begin_anew(&path, densities, now, error));
        let history = Mutex::new(opened.map_err(|error| unusable(&path, &error)));
        Self {
            path,
            densities,
            history,
            reader: Mutex::default(),
            opened: Instant::now(),
            written_ms: AtomicU64::new(0),
            running: Mutex::default(),
            write_failed: AtomicBool::new(false),
            prune_failed: AtomicBool::new(false),
        }
    }

    /// Starts to take samples.
    pub(crate) fn start(self: &Arc<Self>, sources: Sources) -> std::io::Result<()> {
        thread::start(self.clone(), sources)
    }

    /// Writes the samples that are not in the file yet.
    pub(crate) fn write(&self) {
        let failure = "samples cannot be written; the newest ones stay in memory";
        if self.change(&self.write_failed, failure, History::write) {
            self.written_ms.store(self.age_ms(), Relaxed);
        }
    }

    /// Returns the time since the samples were opened, in ms.
    fn age_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Deletes old samples of one of `parts` parts of the subjects, that of this number.
    fn prune(&self, part: u64, parts: u64) {
        let failure = "samples that are too old stay for now";
        self.change(&self.prune_failed, failure, |history| history.prune(part, parts));
    }

    /// Changes the file, and logs `failure` if that fails. `has_failed` tells whether the last
    /// change of this kind has failed: of several failures in a row, only the first one is logged.
    /// A file that turns out to be damaged is put aside. Returns whether the change was made.
    fn change(
        &self,
        has_failed: &AtomicBool,
        failure: &str,
        change: impl FnOnce(&mut History) -> Result<(), FileError>,
    ) -> bool {
        let mut kept = self.history.lock();
        let Ok(history) = &mut *kept else { return false };
        let Err(error) = change(history) else {
            has_failed.store(false, Relaxed);
            return true;
        };
        if !has_failed.swap(true, Relaxed) {
            let cause: &dyn std::error::Error = &error;
            tracing::warn!(error = cause, "{failure}");
        }
        if error.is_of_the_file() {
            let begun = begin_anew(&self.path, self.densities, clocks(), error);
            *kept = begun.map_err(|error| unusable(&self.path, &error));
        }
        false
    }

    /// Returns the counts of all ports that have samples in the period.
    pub(crate) fn ports(&self, period: Period) -> Result<Vec<CountedPort>, ApiError> {
        Ok(self.each(period, ports::is_key)?.into_iter().filter_map(CountedPort::of).collect())
    }

    /// Returns the times of all VMs of the host with samples in the period.
    pub(crate) fn vms(&self, period: Period) -> Result<Vec<VmStatistics>, ApiError> {
        let running = self.running().processes();
        let found = self.each(period, machines::is_key)?;
        Ok(found.into_iter().map(|counts| machines::statistics(counts, &running)).collect())
    }

    /// Returns the averages of VMCI sockets of all VMs with samples in the period.
    pub(crate) fn sockets(&self, period: Period) -> Result<Vec<SocketStatistics>, ApiError> {
        Ok(self.each(period, sockets::is_key)?.into_iter().map(sockets::statistics).collect())
    }

    /// Returns the averages of the host over the period.
    pub(crate) fn host(&self, period: Period) -> Result<HostStatistics, ApiError> {
        self.read(|history| host::statistics(history, period, clocks()))
    }

    /// Returns the rates of a subject over the period, step by step; nothing if no such subject has
    /// samples in the period.
    pub(crate) fn series(&self, asked: &Asked, period: Period) -> Result<Option<Series>, ApiError> {
        let running = self.running().processes();
        self.read(|history| series::series(history, &running, asked, period, clocks()))
    }

    /// Returns the times of the VMs of the host that ran at the last sample, and the number of
    /// those that it has left out.
    pub(crate) fn vm_times(&self) -> (Vec<VmTimes>, usize) {
        let running = self.running();
        (running.times(), running.left_out)
    }

    /// Returns whether samples reach the file: it can be used, the last write has not failed, and
    /// is not too long ago. Does not wait for a write that is under way.
    pub(crate) fn is_written(&self) -> bool {
        let is_usable = self.history.try_lock().is_none_or(|history| history.is_ok());
        let since = Duration::from_millis(self.age_ms().saturating_sub(self.written_ms.load(Relaxed)));
        is_usable && !self.write_failed.load(Relaxed) && since < MOST_BETWEEN_WRITES
    }

    /// Returns the counts of all subjects that `is_asked` selects by their keys. The history is
    /// free between two subjects, for samples and for other requests.
    fn each(&self, period: Period, is_asked: fn(&str) -> bool) -> Result<Vec<Counts>, ApiError> {
        let (span, subjects) = self.read(|history| {
            let span = Span::of(history, period, clocks());
            Ok((span, span.subjects(history, is_asked)))
        })?;
        let counts = |subject| self.read(|history| span.counts(history, subject)).transpose();
        subjects.into_iter().filter_map(counts).collect()
    }

    /// Reads the history. Whoever waits for it already is the next to have it.
    fn read<T>(&self, read: impl FnOnce(&History) -> Result<T, FileError>) -> Result<T, ApiError> {
        let deadline = Instant::now() + PATIENCE;
        let reader = self.reader.try_lock_until(deadline).ok_or_else(busy)?;
        let history = self.history.try_lock_until(deadline).ok_or_else(busy)?;
        let found = match &*history {
            Ok(history) => read(history).map_err(|error| {
                let hint = "look at the disk of the state directory";
                ApiError::new(ErrorKind::Internal, "the statistics cannot be read", hint).because(&error)
            }),
            Err(error) => Err(error.clone()),
        };
        MutexGuard::unlock_fair(history);
        MutexGuard::unlock_fair(reader);
        found
    }

    fn running(&self) -> Arc<Sampled> {
        self.running.lock().clone()
    }

    fn set_running(&self, sampled: Arc<Sampled>) {
        *self.running.lock() = sampled;
    }
}

/// Returns the answer to requests that have waited for too long.
fn busy() -> ApiError {
    let message = format!("the statistics were in use for {} s", PATIENCE.as_secs());
    let hint =
        "ask again, for a shorter period; if nobody else asks, look at the disk of the state directory";
    ApiError::new(ErrorKind::Unavailable, message, hint)
}

fn open(path: &Path, densities: [Density; DENSITIES], now: Clocks) -> Result<History, FileError> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    History::open(path, densities, boot.trim(), now)
}

/// Puts a file aside that is at fault itself, and begins a new one.
fn begin_anew(
    path: &Path,
    densities: [Density; DENSITIES],
    now: Clocks,
    error: FileError,
) -> Result<History, FileError> {
    if !error.is_of_the_file() {
        return Err(error);
    }
    let with_end = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        name
    };
    for end in ENDS {
        // If it cannot be moved, the next try says why.
        let _ = std::fs::rename(with_end(end), with_end(&format!("{end}{UNUSABLE}")));
    }
    let cause: &dyn std::error::Error = &error;
    tracing::warn!(error = cause, aside = ?with_end(UNUSABLE), "statistics begin anew");
    open(path, densities, now)
}

/// Returns the answer to requests while the file cannot be used.
fn unusable(path: &Path, error: &FileError) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "there are no statistics: their file cannot be used",
        format!("make {} writable, or move it away, and start tautd again", path.display()),
    )
    .because(error)
}

/// Returns the time of the clock, in ms since the Unix epoch.
pub(crate) fn wall_ms() -> u64 {
    clocks().wall
}

/// Reads the clocks.
fn clocks() -> Clocks {
    let ms = |clock| {
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
    };
    Clocks { since_boot: ms(ClockId::Boottime), wall: ms(ClockId::Realtime) }
}

#[cfg(test)]
mod tests;
