//! The event log: bounded and ordered.
//!
//! Adding an event never waits for the disk and never fails the action that it reports. A thread of
//! its own writes the events. Readers wait until the events that were added before are written. No
//! subject can add so many that those of others are lost ([`quota`]).

mod quota;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use taut_api::event::{Event, Level};
use tokio::sync::watch;

use super::{Store, lock, synchronous};
use quota::{Counts, Rates};

/// Number of events that are kept. Beyond it, the subject with the most events loses its oldest.
const KEPT: u64 = 20_000;
/// Longest time until the log says that events of a subject were left out.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);
/// Number of events that wait for the disk; further ones are counted and lost.
const QUEUED: usize = 4096;

/// The thread that writes events, and the way to it.
#[derive(Debug)]
pub(super) struct EventLog {
    /// `None` once the log ends.
    queue: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// Events that found the queue full and are not reported yet.
    lost: Arc<AtomicU64>,
    newest: watch::Receiver<u64>,
}

/// What the thread does.
#[derive(Debug)]
enum Work {
    /// Writes an event.
    Write(Entry),
    /// Answers that everything before is written.
    Answer(SyncSender<()>),
}

/// Events that a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Number after which they are.
    pub(crate) since: u64,
    /// Least severe level.
    pub(crate) least: Level,
    /// Part of them.
    pub(crate) which: Which,
}

/// Part of the events that fit, with the maximum number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The oldest ones.
    Oldest(u32),
    /// The newest ones.
    Newest(u32),
}

/// An event without its number.
#[derive(Debug)]
struct Entry {
    at_ms: u64,
    level: Level,
    subject: String,
    kind: String,
    message: String,
}

impl EventLog {
    /// Starts the thread, which writes to `db`.
    pub(super) fn start(db: Arc<Mutex<Connection>>) -> rusqlite::Result<Self> {
        let (told, newest, counts) = {
            let db = lock(&db);
            let (told, newest) = watch::channel(newest(&db)?);
            (told, newest, Counts::new(counts(&db)?))
        };
        let (queue, work) = sync_channel(QUEUED);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { db, lost: lost.clone(), newest: told, rates: Rates::default(), counts };
        let thread = std::thread::Builder::new().name("events".into()).spawn(move || writer.run(&work));
        if let Err(error) = &thread {
            tracing::warn!(%error, "events are not kept: no thread can be started");
        }
        Ok(Self { queue: Some(queue), thread: thread.ok(), lost, newest })
    }

    fn add(&self, entry: Entry) {
        let Some(queue) = &self.queue else { return };
        // Without its thread the log has said why nothing is kept.
        if let Err(TrySendError::Full(_)) = queue.try_send(Work::Write(entry)) {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Waits until all events that were added before are written.
    fn flush(&self) {
        let (answer, answered) = sync_channel(1);
        if let Some(queue) = &self.queue
            && queue.send(Work::Answer(answer)).is_ok()
        {
            // An error means that the thread has ended and writes nothing more.
            let _ = answered.recv();
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed that; there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Adds an event and logs it, without waiting for the disk. A full or slow disk loses the
    /// event, not the action that it reports.
    pub(crate) fn event(&self, level: Level, subject: &str, kind: &str, message: &str) {
        self.events.add(Entry {
            at_ms: now_ms(),
            level,
            subject: subject.to_owned(),
            kind: kind.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Waits until all events that were added before are written.
    pub(crate) fn flush_events(&self) {
        self.events.flush();
    }

    /// Returns at most `limit` events after number `since`, oldest first.
    #[cfg(test)]
    pub(crate) fn events(&self, since: u64, limit: u32) -> rusqlite::Result<Vec<Event>> {
        self.select_events(Selection { since, least: Level::Info, which: Which::Oldest(limit) })
    }

    /// Returns selected events, oldest first.
    pub(crate) fn select_events(&self, selection: Selection) -> rusqlite::Result<Vec<Event>> {
        self.flush_events();
        let Selection { since, least, which } = selection;
        let (limit, order) = match which {
            Which::Oldest(limit) => (limit, "ASC"),
            Which::Newest(limit) => (limit, "DESC"),
        };
        let levels = Level::ALL.map(|level| if level >= least { level.as_str() } else { "" });
        let db = lock(&self.db);
        let mut query = db.prepare_cached(&format!(
            "SELECT seq, at_ms, level, subject, kind, message FROM events \
             WHERE seq > ?1 AND level IN (?3, ?4, ?5) ORDER BY seq {order} LIMIT ?2"
        ))?;
        let event = |row: &rusqlite::Row<'_>| {
            Ok(Event {
                seq: row.get(0)?,
                at_ms: row.get(1)?,
                level: level(&row.get::<_, String>(2)?),
                subject: row.get(3)?,
                kind: row.get(4)?,
                message: row.get(5)?,
            })
        };
        let [a, b, c] = levels;
        let found: rusqlite::Result<Vec<_>> =
            query.query_map(params![since, limit, a, b, c], event)?.collect();
        let mut found = found?;
        found.sort_by_key(|event| event.seq);
        Ok(found)
    }

    /// Returns a channel with the number of the newest written event.
    pub(crate) fn newest_event(&self) -> watch::Receiver<u64> {
        self.events.newest.clone()
    }
}

/// The thread's state.
#[derive(Debug)]
struct Writer {
    db: Arc<Mutex<Connection>>,
    lost: Arc<AtomicU64>,
    newest: watch::Sender<u64>,
    rates: Rates,
    counts: Counts,
}

impl Writer {
    /// Works until the log ends.
    fn run(mut self, work: &Receiver<Work>) {
        let mut reported = Instant::now();
        loop {
            match work.recv_timeout(REPORTED_WITHIN) {
                Ok(Work::Write(entry)) => {
                    if self.rates.admit(&entry.subject, entry.at_ms) {
                        self.write(&entry);
                    }
                }
                // Whoever asked may have gone.
                Ok(Work::Answer(answer)) => _ = answer.send(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Also while events keep coming.
            if reported.elapsed() >= REPORTED_WITHIN {
                self.report_left_out();
                reported = Instant::now();
            }
            let missing = self.lost.swap(0, Relaxed);
            if missing > 0 {
                let message = format!("{missing} events came faster than the disk took them and were lost");
                self.warn("daemon", "events.lost", message);
            }
        }
    }

    fn report_left_out(&mut self) {
        for (subject, count) in self.rates.take_left_out(now_ms()) {
            let message = format!("{count} more events of this subject came too fast and were left out");
            self.warn(&subject, "events.left-out", message);
        }
    }

    fn warn(&mut self, subject: &str, kind: &str, message: String) {
        let (subject, kind) = (subject.to_owned(), kind.to_owned());
        self.write(&Entry { at_ms: now_ms(), level: Level::Warning, subject, kind, message });
    }

    fn write(&mut self, entry: &Entry) {
        let Entry { level, subject, kind, message, .. } = entry;
        match level {
            Level::Info => tracing::info!(subject, kind, "{message}"),
            Level::Warning => tracing::warn!(subject, kind, "{message}"),
            Level::Error => tracing::error!(subject, kind, "{message}"),
        }
        self.counts.add(subject);
        let loser = self.counts.loser(KEPT);
        // A power failure may lose the last events: they are not worth a wait for the disk.
        match add(&mut synchronous(&self.db, "NORMAL"), entry, loser.as_deref()) {
            Ok(seq) => {
                if let Some(loser) = loser {
                    self.counts.remove(&loser);
                }
                self.newest.send_replace(seq);
            }
            Err(error) => {
                self.counts.remove(subject);
                tracing::warn!(%error, "the event above could not be kept");
            }
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

fn newest(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT coalesce(max(seq), 0) FROM events", [], |row| row.get(0))
}

fn counts(db: &Connection) -> rusqlite::Result<HashMap<String, u64>> {
    let mut query = db.prepare("SELECT subject, count(*) FROM events GROUP BY subject")?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Adds an event and deletes the oldest one of `loser`. Returns its number.
fn add(db: &mut Connection, entry: &Entry, loser: Option<&str>) -> rusqlite::Result<u64> {
    let Entry { at_ms, level, subject, kind, message } = entry;
    let transaction = db.transaction()?;
    transaction
        .prepare_cached(
            "INSERT INTO events (at_ms, level, subject, kind, message) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![at_ms, level.as_str(), subject, kind, message])?;
    let seq = transaction.last_insert_rowid() as u64;
    if let Some(loser) = loser {
        let sql = "DELETE FROM events WHERE seq = (SELECT min(seq) FROM events WHERE subject = ?1)";
        transaction.prepare_cached(sql)?.execute([loser])?;
    }
    transaction.commit()?;
    Ok(seq)
}

fn level(text: &str) -> Level {
    match text {
        "info" => Level::Info,
        "warning" => Level::Warning,
        _ => Level::Error,
    }
}
