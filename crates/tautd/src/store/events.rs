//! The event log: bounded and ordered. Logging never delays or fails the logged action.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use taut_api::event::{Event, Level};
use tokio::sync::watch;

use super::Store;

/// Number of events that are kept; older ones are deleted.
const KEPT: u64 = 20_000;

impl Store {
    /// Adds an event and logs it. A full disk loses the event, not the action that it reports.
    pub(crate) fn event(&self, level: Level, subject: &str, kind: &str, message: &str) {
        match level {
            Level::Info => tracing::info!(subject, kind, "{message}"),
            Level::Warning => tracing::warn!(subject, kind, "{message}"),
            Level::Error => tracing::error!(subject, kind, "{message}"),
        }
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64);
        // A power failure may lose the last events: waiting for the disk would delay the actions.
        let added = add(&mut self.synchronous("NORMAL").db, at_ms, level, subject, kind, message);
        match added {
            Ok(seq) => {
                self.newest_event.send_replace(seq);
            }
            Err(error) => tracing::warn!(%error, "the event above could not be kept"),
        }
    }

    /// Returns at most `limit` events after number `since`, oldest first.
    pub(crate) fn events(&self, since: u64, limit: u32) -> rusqlite::Result<Vec<Event>> {
        let inner = self.lock();
        let mut query = inner.db.prepare_cached(
            "SELECT seq, at_ms, level, subject, kind, message FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        )?;
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
        query.query_map(params![since, limit], event)?.collect()
    }

    /// Returns a channel with the number of the newest event.
    pub(crate) fn newest_event(&self) -> watch::Receiver<u64> {
        self.newest_event.subscribe()
    }
}

pub(super) fn newest(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT coalesce(max(seq), 0) FROM events", [], |row| row.get(0))
}

fn add(
    db: &mut Connection,
    at_ms: u64,
    level: Level,
    subject: &str,
    kind: &str,
    message: &str,
) -> rusqlite::Result<u64> {
    let transaction = db.transaction()?;
    transaction
        .prepare_cached(
            "INSERT INTO events (at_ms, level, subject, kind, message) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![at_ms, level_text(level), subject, kind, message])?;
    let seq = transaction.last_insert_rowid() as u64;
    transaction.prepare_cached("DELETE FROM events WHERE seq <= ?1")?.execute([seq.saturating_sub(KEPT)])?;
    transaction.commit()?;
    Ok(seq)
}

const fn level_text(level: Level) -> &'static str {
    match level {
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error => "error",
    }
}

fn level(text: &str) -> Level {
    match text {
        "info" => Level::Info,
        "warning" => Level::Warning,
        _ => Level::Error,
    }
}
