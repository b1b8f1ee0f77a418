//! The store: documents with revisions, numbers of ports, records of host changes, tokens,
//! and events.
//!
//! The store is one SQLite file in write-ahead mode. It is synced before a write is acknowledged,
//! and never opened by two processes at once. Memory holds a copy of all documents, which changes
//! only after the file did. Reading the copy and adding an event never wait for the disk.

mod change;
mod difference;
mod events;
mod schema;
mod tokens;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::{Connection, params};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::fabric::config::{SocketWorker, WorkerConfig};
use taut_plan::Desired;
use taut_plan::network::numbering::assign_numbers;
use tokio::sync::watch;

pub(crate) use change::{Change, Kind};
pub(crate) use events::{Selection, Which};
pub(crate) use schema::OpenError;

use crate::access::rights::Rights;
use events::EventLog;
use schema::{Owners, Revisions};
use tokens::Tokens;

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    events: EventLog,
    db: Arc<Mutex<Connection>>,
    /// Changes only while `db` is locked, after the file has changed.
    state: Mutex<Arc<State>>,
    /// Tokens of callers over TCP. They change only while `db` is locked, after the file has.
    tokens: watch::Sender<Tokens>,
}

/// All documents at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Documents of the users.
    pub(crate) desired: Desired,
    /// Revision of each document.
    revisions: Revisions,
    /// Owner of each VM that is not root's.
    owners: Owners,
    /// Revision of the newest write, deletions included.
    pub(crate) revision: u64,
}

impl State {
    /// Returns the revision of a document's last write; 0 if there is no such document.
    pub(crate) fn revision_of(&self, kind: Kind, name: &taut_api::Name) -> u64 {
        self.revisions.get(&(kind, name.clone())).copied().unwrap_or(0)
    }

    /// Returns the owner of a VM, with whose rights its files are opened.
    pub(crate) fn owner_of(&self, vm: &taut_api::Name) -> Rights {
        self.owners.get(vm).cloned().unwrap_or_else(Rights::root)
    }
}

impl Store {
    /// Opens the store in `dir`, and creates it if there is none.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let open = || schema::open(dir).and_then(|db| Ok((schema::load(&db)?, tokens::load(&db)?, db)));
        let (state, tokens, db) = open().map_err(|error| error.of_file(dir))?;
        let db = Arc::new(Mutex::new(db));
        let tokens = watch::Sender::new(Arc::new(tokens));
        Ok(Self { events: EventLog::start(db.clone())?, db, state: Mutex::new(Arc::new(state)), tokens })
    }

    /// Sets the behaviour of the fabric's threads, which comes from the command line.
    pub(crate) fn set_workers(&mut self, workers: WorkerConfig, socket_worker: SocketWorker) {
        let state = self.state.get_mut().expect("no holder of the store panics");
        let desired = &mut Arc::make_mut(state).desired;
        desired.workers = workers;
        desired.socket_worker = socket_worker;
    }

    /// Returns all documents as of now.
    pub(crate) fn state(&self) -> Arc<State> {
        lock(&self.state).clone()
    }

    /// Writes the change that `decide` makes of the present state, unless it refuses. `Ok` with the
    /// new state means that the write is on disk; an error means that nothing has changed.
    pub(crate) fn write(
        &self,
        decide: impl FnOnce(&State) -> Result<Change, ApiError>,
    ) -> Result<Arc<State>, ApiError> {
        self.write_for(None, decide)
    }

    /// Like [`Store::write`]. A VM that is written gets this owner, if one is given; else it keeps
    /// its own.
    pub(crate) fn write_for(
        &self,
        owner: Option<Rights>,
        decide: impl FnOnce(&State) -> Result<Change, ApiError>,
    ) -> Result<Arc<State>, ApiError> {
        let mut db = self.durable();
        let mut next = State::clone(&lock(&self.state));
        let change = decide(&next)?;
        next.revision += 1;
        change.apply(&mut next.desired);
        let key = (change.kind(), change.name().clone());
        if change.is_deletion() {
            next.revisions.remove(&key);
        } else {
            next.revisions.insert(key, next.revision);
        }
        if let Change::Vm(name, vm) = &change {
            match owner {
                Some(owner) if vm.is_some() && !owner.are_roots() => {
                    next.owners.insert(name.clone(), owner);
                }
                None if vm.is_some() => {}
                _ => drop(next.owners.remove(name)),
            }
        }
        next.desired.numbers = assign_numbers(&next.desired)?;
        schema::save(&mut db, &change, &next).map_err(|error| refused_by_disk(&error))?;
        let next = Arc::new(next);
        lock(&self.state).clone_from(&next);
        Ok(next)
    }

    /// Records a change of the host for `subject`, before it is made.
    pub(crate) fn remember<T: serde::Serialize>(&self, subject: &str, what: &T) -> Result<(), ApiError> {
        let what = serde_json::to_string(what).map_err(|error| {
            ApiError::new(ErrorKind::Internal, "a record cannot be encoded as JSON", "report this fault")
                .because(&error)
        })?;
        let sql = "INSERT INTO host_changes VALUES (?1, ?2) ON CONFLICT (subject) DO UPDATE SET what = ?2";
        self.durable().execute(sql, params![subject, what]).map_err(|error| refused_by_disk(&error))?;
        Ok(())
    }

    /// Deletes the record of `subject`, after its change was undone.
    pub(crate) fn forget(&self, subject: &str) -> Result<(), ApiError> {
        let sql = "DELETE FROM host_changes WHERE subject = ?1";
        self.durable().execute(sql, [subject]).map_err(|error| refused_by_disk(&error))?;
        Ok(())
    }

    /// Returns all records: subject and JSON.
    pub(crate) fn remembered(&self) -> Result<Vec<(String, String)>, rusqlite::Error> {
        let db = lock(&self.db);
        let mut query = db.prepare("SELECT subject, what FROM host_changes")?;
        query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Locks the file for writes that must survive a power failure once they are acknowledged.
    fn durable(&self) -> MutexGuard<'_, Connection> {
        synchronous(&self.db, "FULL")
    }
}

/// Locks the file for writes that wait for the disk as far as `level` says.
fn synchronous<'a>(db: &'a Mutex<Connection>, level: &str) -> MutexGuard<'a, Connection> {
    let db = lock(db);
    // Cannot fail: the pragma only sets a field of the connection.
    let _ = db.pragma_update(None, "synchronous", level);
    db
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the store panics")
}

/// Describes a failed write. SQLite has rolled back, and memory is unchanged.
fn refused_by_disk(error: &rusqlite::Error) -> ApiError {
    let hint = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "free space on the disk of the state directory, then try again"
        }
        _ => "check the disk of the state directory, then try again",
    };
    ApiError::new(ErrorKind::Unavailable, "cannot write the store; nothing was changed", hint).because(error)
}

#[cfg(test)]
mod tests;
