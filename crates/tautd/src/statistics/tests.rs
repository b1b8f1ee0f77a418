//! Samples of a fabric's counters whose values the tests know.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use taut_api::Name;
use taut_api::fabric::counters::{PortWord, port_base};
use taut_api::fabric::{DropReason, PortId};
use taut_api::network::{ExternalPortSpec, PortGroupSpec, VSwitchSpec};
use taut_api::statistics::{Column, Subject};
use taut_history::Reading;
use tempfile::TempDir;

use super::*;
use crate::store::Change;

/// A daemon's statistics, without its other parts.
struct Daemon {
    dir: TempDir,
    sources: Sources,
    statistics: Statistics,
    readers: Mutex<thread::Readers>,
}

/// Opens the samples in a folder. All are kept for a day.
fn open(state_dir: &Path) -> Statistics {
    open_at(state_dir, 0)
}

/// Opens them so many seconds after the host's present time.
fn open_at(state_dir: &Path, second: u64) -> Statistics {
    Statistics::open_at(state_dir, [Period::DAY; 3], later(second))
}

/// Returns the clocks of the host so many seconds after the first call.
fn later(second: u64) -> Clocks {
    static FIRST: OnceLock<Clocks> = OnceLock::new();
    let first = FIRST.get_or_init(clocks);
    Clocks { since_boot: first.since_boot + 1000 * second, wall: first.wall + 1000 * second }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

impl Daemon {
    /// Starts with one port, `external/gen`.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources {
            store: Arc::new(Store::open(dir.path()).unwrap()),
            board: Arc::default(),
            counters: Arc::new(Counters::open(&dir.path().join("counters")).unwrap()),
        };
        let group =
            PortGroupSpec { vswitch: name("sw"), ..serde_json::from_str(r#"{"vswitch":"sw"}"#).unwrap() };
        let port: ExternalPortSpec =
            serde_json::from_str(r#"{"portgroup":"lan","socket":"/tmp/gen"}"#).unwrap();
        for change in [
            Change::VSwitch(name("sw"), Some(VSwitchSpec::default())),
            Change::PortGroup(name("lan"), Some(group)),
            Change::External(name("gen"), Some(port)),
        ] {
            sources.store.write(|_| Ok(change)).unwrap();
        }
        let statistics = open(dir.path());
        // The host has no machines.
        let readers = Mutex::new(thread::Readers::new(dir.path()));
        Self { dir, sources, statistics, readers }
    }

    /// Sets a counter of the port.
    fn count(&self, word: usize, value: u64) {
        let port = self.sources.store.state().desired.ports().next().unwrap().0;
        let port: PortId = self.sources.store.state().desired.numbers.port(&port).unwrap();
        let at = (port_base(port) + word) as u64 * 8;
        let file = std::fs::File::options().write(true).open(self.dir.path().join("counters")).unwrap();
        file.write_all_at(&value.to_le_bytes(), at).unwrap();
    }

    /// Takes a sample so many seconds after the host's present time.
    fn sample(&self, second: u64) {
        let now = later(second);
        thread::sample(&self.statistics, &self.sources, &mut self.readers.lock(), || now);
    }

    /// Returns what the only port has counted up to a second.
    fn counted(&self, period: &str, second: u64) -> Option<CountedPort> {
        let kept = self.statistics.history.lock();
        let all = counts::all(kept.as_ref().unwrap(), period, later(second), ports::is_key);
        all.into_iter().find_map(CountedPort::of)
    }
}

#[test]
fn rates_are_those_of_the_counters_and_drops_keep_their_reasons() {
    let daemon = Daemon::new();
    assert_eq!(daemon.counted("5m", 0), None, "there is no sample yet");
    let dropped = PortWord::RxDrops as usize + DropReason::RingFull as usize;
    for second in 0..=400 {
        daemon.count(PortWord::RxFrames as usize, 1000 * second);
        daemon.count(dropped, 10 * second);
        daemon.count(PortWord::RxQueues as usize, 1 + second % 2);
        daemon.sample(second);
    }
    for (period, seconds) in [("5m", 300), ("10s", 10)] {
        let CountedPort { owner, covered_ms: covered, counters: counted, .. } =
            daemon.counted(period, 400).unwrap();
        assert_eq!(owner, "external/gen");
        assert!((1000 * seconds..1000 * seconds + 1100).contains(&covered), "{covered} ms");
        let expected = covered as f64;
        assert!((counted.rx_frames as f64 - expected).abs() < 0.01 * expected + 100.0, "{counted:?}");
        assert_eq!(counted.rx_drops, [(DropReason::RingFull, counted.rx_frames / 100)]);
        assert_eq!(counted.rx_queues, 0, "it is no counter");
    }
}

#[test]
fn a_counter_that_begins_again_and_a_killed_daemon_make_no_false_rate() {
    let mut daemon = Daemon::new();
    daemon.count(0, 5000);
    daemon.sample(0);
    daemon.statistics.write();
    daemon.count(0, 6000);
    daemon.sample(1);
    // The daemon is killed: its last sample was not written. The next daemon finds that the counter
    // has begun again.
    daemon.statistics = open(&daemon.dir.path().join("absent"));
    daemon.statistics = open_at(daemon.dir.path(), 30);
    daemon.count(0, 70);
    daemon.sample(30);
    assert_eq!(daemon.counted("1m", 30).unwrap().counters.rx_frames, 70);
    daemon.count(0, 80);
    daemon.sample(31);
    assert_eq!(daemon.counted("1m", 31).unwrap().counters.rx_frames, 80);
    // A zero is a reading as well: the counter has begun again, although it is higher soon after.
    daemon.count(0, 0);
    daemon.sample(32);
    daemon.count(0, 500);
    daemon.sample(33);
    assert_eq!(daemon.counted("1m", 33).unwrap().counters.rx_frames, 580);
}

#[test]
fn a_port_that_is_gone_stays_readable_in_its_time() {
    let daemon = Daemon::new();
    for second in 0..10 {
        daemon.count(0, second);
        daemon.sample(second);
    }
    daemon.sources.store.write(|_| Ok(Change::External(name("gen"), None))).unwrap();
    daemon.sample(10);
    daemon.sample(100);
    assert_eq!(daemon.counted("2m", 100).unwrap().counters.rx_frames, 9);
    assert_eq!(daemon.counted("1m", 100), None, "it was gone all the time");
}

#[test]
fn a_port_that_rests_stays_in_the_samples_and_counts_later() {
    let mut daemon = Daemon::new();
    daemon.count(0, 5);
    let covered = |daemon: &Daemon, second: u64| {
        let counted = daemon.counted("1m", second)?;
        Some((counted.covered_ms, counted.counters.rx_frames))
    };
    for second in 0..=70 {
        daemon.sample(second);
    }
    assert_eq!(covered(&daemon, 70), Some((60_000, 0)));
    daemon.count(0, 12);
    daemon.sample(71);
    assert_eq!(covered(&daemon, 71), Some((60_000, 7)));
    // A new file has the port at once, although its counters are as before.
    daemon.sample(72);
    daemon.sample(73);
    let dir = tempfile::tempdir().unwrap();
    daemon.statistics = open_at(dir.path(), 74);
    daemon.sample(74);
    daemon.sample(75);
    daemon.sample(76);
    assert_eq!(covered(&daemon, 76), Some((2000, 0)));
    // The rest does not go on while the counters cannot be read.
    let counters = std::fs::File::options().write(true).open(daemon.dir.path().join("counters")).unwrap();
    let len = counters.metadata().unwrap().len();
    counters.set_len(0).unwrap();
    daemon.sample(77);
    assert_eq!(covered(&daemon, 77), Some((2000, 0)));
    counters.set_len(len).unwrap();
    daemon.count(0, 20);
    daemon.sample(78);
    assert_eq!(covered(&daemon, 78), Some((4000, 8)));
}

#[test]
fn ports_are_listed_anew_only_after_a_change() {
    let daemon = Daemon::new();
    let Sources { store, board, .. } = &daemon.sources;
    let mut existing = existing::Existing::default();
    let update = |existing: &mut existing::Existing| {
        let state = store.state();
        existing.update(state.revision, &state.desired, &board.lock())
    };
    assert!(update(&mut existing) && !update(&mut existing));
    assert_eq!(existing.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["external/gen"]);
    assert!(existing.keys().all(ports::is_key) && existing.sockets.is_empty());
    store.write(|_| Ok(Change::External(name("gen"), None))).unwrap();
    assert!(update(&mut existing) && existing.ports.is_empty() && !update(&mut existing));
}

#[test]
fn a_series_has_a_point_for_each_step_and_none_where_nobody_took_samples() {
    let mut daemon = Daemon::new();
    let dropped = PortWord::TxDrops as usize + DropReason::UnknownUnicast as usize;
    for second in (0..=60).chain(100..=120) {
        if second == 100 {
            daemon.statistics = open(&daemon.dir.path().join("absent"));
            daemon.statistics = open_at(daemon.dir.path(), second);
        }
        daemon.count(PortWord::TxFrames as usize, 1000 * second);
        daemon.count(PortWord::TxBytes as usize, 64_000 * second);
        daemon.count(dropped, 10 * second);
        daemon.sample(second);
        daemon.statistics.write();
    }
    let later = later(120);
    let asked = |subject, name: &str| {
        let kept = daemon.statistics.history.lock();
        let asked = Asked { subject, name: name.to_owned(), pid: None };
        series::series(kept.as_ref().unwrap(), &BTreeMap::new(), &asked, "3m".parse().unwrap(), later)
            .unwrap()
    };
    let found = asked(Subject::Port, "external/gen").unwrap();
    assert_eq!((found.step_ms, found.to_ms, found.from_ms), (1000, later.wall, later.wall - 180_000));
    assert!((79..=80).contains(&found.points.len()), "{}", found.points.len());
    let gaps = found.points.windows(2).filter(|pair| pair[1].to_ms - pair[0].to_ms > 5000).count();
    assert_eq!(gaps, 1);
    let mean = |column| {
        let at = found.columns.iter().position(|each| *each == column).unwrap();
        let all: f64 = found.points.iter().map(|point| point.values[at].unwrap()).sum();
        all / found.points.len() as f64
    };
    for (column, rate) in [
        (Column::TxFramesPerS, 1000.0),
        (Column::TxBitsPerS, 512_000.0),
        (Column::TxDropsPerS, 10.0),
        (Column::RxDropsPerS, 0.0),
    ] {
        assert!((mean(column) - rate).abs() <= 0.05 * rate, "{column:?}: {}", mean(column));
    }
    assert_eq!(asked(Subject::Uplink, "gen"), None);
    assert_eq!(asked(Subject::Vm, "external/gen"), None);
}

#[test]
fn foreign_vms_that_have_ended_do_not_fill_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let statistics = open(dir.path());
    let mut kept = statistics.history.lock();
    let history = kept.as_mut().unwrap();
    let most = machines::MOST_FOREIGN as u64;
    let since_boot = clocks().since_boot;
    for number in 0..most + 10 {
        let at = since_boot + 1000 * number;
        history.record(at, &format!("machine/x/{number}/7"), "x", &Reading::new([(1, number)]));
    }
    history.record(since_boot, "port/1/vm/a/nic0", "vm/a/nic0", &Reading::default());
    // The first one runs still, and is the oldest.
    let running = BTreeSet::from(["machine/x/0/7".to_owned()]);
    thread::bound(history, &running);
    let is_there = |number: u64| history.last(&format!("machine/x/{number}/7")).is_some();
    assert_eq!(history.len() as u64, most + 1);
    assert!(is_there(0) && !is_there(1) && !is_there(10) && is_there(11));
    assert!(history.last("port/1/vm/a/nic0").is_some());
}

#[test]
fn a_file_that_is_no_history_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE), "something else, and longer than a header of SQLite".repeat(9))
        .unwrap();
    let statistics = open(dir.path());
    assert!(statistics.ports(Period::USUAL).unwrap().is_empty());
    assert!(dir.path().join(format!("{FILE}{UNUSABLE}")).exists());
    assert!(dir.path().join(FILE).exists());
    assert!(statistics.is_written());
    // An error that is not of the file leaves the file where it is.
    std::fs::create_dir_all(dir.path().join("other").join(FILE)).unwrap();
    assert!(open(&dir.path().join("other")).ports(Period::USUAL).is_err());
    assert!(dir.path().join("other").join(FILE).exists());
    let statistics = open(&dir.path().join("absent"));
    let error = statistics.ports(Period::USUAL).unwrap_err();
    assert!(error.hint.contains("history.db"), "{error}");
    assert!(!statistics.is_written());
}
