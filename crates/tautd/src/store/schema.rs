//! The store's file.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, params};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use taut_api::Name;
use taut_plan::facts::Numbers;
use taut_plan::network::numbering::assign_numbers;

use super::{Change, Kind, State};
use crate::access::rights::Rights;

/// Name of the file in the state directory.
const FILE: &str = "taut.db";
/// Name of SQLite's write-ahead log beside it.
const LOG: &str = "taut.db-wal";
/// Version of the tables, raised with every change of them.
const VERSION: i64 = 1;

const TABLES: &str = "
    CREATE TABLE documents (kind TEXT, name TEXT, revision INTEGER NOT NULL, spec TEXT NOT NULL,
        PRIMARY KEY (kind, name)) STRICT;
    CREATE TABLE numbers (kind TEXT, key TEXT, number INTEGER NOT NULL, PRIMARY KEY (kind, key)) STRICT;
    CREATE TABLE counter (revision INTEGER NOT NULL) STRICT;
    INSERT INTO counter VALUES (0);
    CREATE TABLE host_changes (subject TEXT PRIMARY KEY, what TEXT NOT NULL) STRICT;
    CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, level TEXT NOT NULL,
        subject TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL) STRICT;
";

/// Revision of each document.
pub(super) type Revisions = BTreeMap<(Kind, Name), u64>;

/// Owners of VMs by name; root's VMs have no entry.
pub(super) type Owners = BTreeMap<Name, Rights>;

/// Owners of VMs. The table is not part of the format: a version that does not know it leaves it as
/// it is, so a store can go back to that version. There every VM is root's.
const OWNERS: &str = "CREATE TABLE IF NOT EXISTS owners (vm TEXT PRIMARY KEY, rights TEXT NOT NULL) STRICT";

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The directory could not be created.
    #[error("cannot create the state directory {0} or write to it")]
    Directory(PathBuf, #[source] io::Error),
    /// Another process works on the file.
    #[error("another tautd has {} open{}", .path.display(), .pid.map(|pid| format!(": process {pid}")).unwrap_or_default())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process, if the kernel tells it.
        pid: Option<i32>,
    },
    /// The file is not a SQLite database, or is damaged.
    #[error("{} is no store of taut, or it is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
    /// SQLite refused.
    #[error("cannot open the store")]
    Database(#[from] rusqlite::Error),
    /// A newer version wrote the file.
    #[error("the store has format {found}, this version of taut reads {VERSION}")]
    Version {
        /// Version of the file.
        found: i64,
    },
    /// The documents need more numbers than there are.
    #[error("the store's documents cannot be numbered: {0}")]
    Numbers(taut_api::ApiError),
    /// A row is invalid.
    #[error("the store's {kind} `{name}` cannot be read")]
    Document {
        /// Kind in the file.
        kind: &'static str,
        /// Name in the file.
        name: String,
        /// Reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OpenError {
    /// Names the cause of a refusal of SQLite that has a remedy of its own.
    pub(super) fn of_file(self, dir: &Path) -> Self {
        let path = dir.join(FILE);
        match self {
            Self::Database(source) => match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    Self::InUse { pid: lock_holder(&path), path }
                }
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged { path, source },
                _ => Self::Database(source),
            },
            other => other,
        }
    }

    /// Returns advice for the user.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Directory(..) | Self::Database(_) => {
                "give it a --state-dir that can be written to".to_owned()
            }
            Self::InUse { pid, .. } => {
                let end = pid.map(|pid| format!("end it first (kill {pid}; its VMs go on)"));
                let end = end.unwrap_or_else(|| "end the other one first".to_owned());
                format!("{end}, or give this one its own --state-dir, --run-dir, --log-dir and --first-user")
            }
            Self::Damaged { path, .. } => {
                let path = path.display();
                format!(
                    "put a backup in its place, or begin with an empty store: mv {path} {path}.damaged; \
                     or give another --state-dir"
                )
            }
            Self::Version { .. } => {
                "start the version of taut that wrote it, or a newer one, or give another --state-dir"
                    .to_owned()
            }
            Self::Numbers(_) | Self::Document { .. } => {
                "start the version of taut that wrote it, or put a backup of taut.db in its place".to_owned()
            }
        }
    }
}

/// Returns the process that holds a lock on a file. Closing the file drops all locks that this
/// process has on it, so this is only for a file that could not be opened as a store.
fn lock_holder(path: &Path) -> Option<i32> {
    let file = File::options().read(true).write(true).open(path).ok()?;
    let found = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    found.pid.map(rustix::process::Pid::as_raw_pid)
}

/// Makes the directory and the file, for their owner alone. Documents and events tell who runs
/// what.
fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // SQLite makes its log with the mode of the file.
    File::options().create(true).append(true).mode(0o600).open(dir.join(FILE))?;
    for file in [FILE, LOG] {
        // An earlier version made them readable for all.
        match fs::set_permissions(dir.join(file), Permissions::from_mode(0o600)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Memory for the store's pages, as a negative number of KiB. The kernel caches the file besides.
/// SQLite's own 2 MiB would fill in the course of hours, which looks like a leak.
const CACHE: i64 = -256;

pub(super) fn open(dir: &Path) -> Result<Connection, OpenError> {
    make_private(dir).map_err(|error| OpenError::Directory(dir.to_owned(), error))?;
    let db = Connection::open(dir.join(FILE))?;
    // Lock exclusively before WAL mode: this avoids a shared-memory file, and refuses a second
    // daemon on the same directory.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "cache_size", CACHE)?;
    match db.pragma_query_value(None, "user_version", |row| row.get(0))? {
        0 => db.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?,
        VERSION => {}
        found => return Err(OpenError::Version { found }),
    }
    // Not part of the format: a version that does not know it maintains it nevertheless.
    let index = "CREATE INDEX IF NOT EXISTS events_of_subject ON events (subject, seq)";
    if let Err(error) = db.execute_batch(index) {
        tracing::warn!(%error, "events are found slowly: their index cannot be made");
    }
    Ok(db)
}

pub(super) fn load(db: &Connection) -> Result<State, OpenError> {
    let revision = db.query_row("SELECT revision FROM counter", [], |row| row.get(0))?;
    let mut state = State { revision, ..State::default() };
    for kind in Kind::ALL {
        let mut query = db.prepare("SELECT name, revision, spec FROM documents WHERE kind = ?1")?;
        let mut rows = query.query([kind.as_str()])?;
        while let Some(row) = rows.next()? {
            let (name, revision, spec): (String, u64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let bad = |source| OpenError::Document { kind: kind.as_str(), name: name.clone(), source };
            let key: Name = name.parse().map_err(|error| bad(Box::new(error)))?;
            let change = Change::from_json(kind, key.clone(), &spec).map_err(|error| bad(Box::new(error)))?;
            change.apply(&mut state.desired);
            state.revisions.insert((kind, key), revision);
        }
    }
    let numbers = |kind: &str| -> rusqlite::Result<BTreeMap<String, u16>> {
        let mut query = db.prepare("SELECT key, number FROM numbers WHERE kind = ?1")?;
        query.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    state.desired.numbers = Numbers { ports: numbers("port")?, segments: numbers("segment")? };
    state.owners = owners(db, &state)?;
    // Another version may have numbered differently.
    state.desired.numbers = assign_numbers(&state.desired).map_err(OpenError::Numbers)?;
    Ok(state)
}

/// Reads the owners of VMs that exist.
fn owners(db: &Connection, state: &State) -> Result<Owners, OpenError> {
    let mut owners = Owners::new();
    let exists = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'owners'";
    if db.query_row(exists, [], |row| row.get::<_, u64>(0))? == 0 {
        return Ok(owners);
    }
    let mut query = db.prepare("SELECT vm, rights FROM owners")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (name, rights): (String, String) = (row.get(0)?, row.get(1)?);
        let bad = |source| OpenError::Document { kind: "owner of", name: name.clone(), source };
        let vm: Name = name.parse().map_err(|error| bad(Box::new(error)))?;
        let rights = serde_json::from_str(&rights).map_err(|error| bad(Box::new(error)))?;
        // A version that does not know owners may have deleted the VM.
        if state.desired.vms.contains_key(&vm) {
            owners.insert(vm, rights);
        }
    }
    Ok(owners)
}

/// Writes one change with its revision, numbers and owner, or nothing.
pub(super) fn save(db: &mut Connection, change: &Change, next: &State) -> rusqlite::Result<()> {
    let transaction = db.transaction()?;
    let (kind, name) = (change.kind().as_str(), change.name().as_str());
    if change.is_deletion() {
        transaction.execute("DELETE FROM documents WHERE kind = ?1 AND name = ?2", params![kind, name])?;
    } else {
        let spec =
            change.to_json().map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        transaction.execute(
            "INSERT INTO documents VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (kind, name) DO UPDATE SET revision = ?3, spec = ?4",
            params![kind, name, next.revision, spec],
        )?;
    }
    if let Change::Vm(vm, _) = change {
        save_owner(&transaction, vm, next.owners.get(vm))?;
    }
    transaction.execute("UPDATE counter SET revision = ?1", [next.revision])?;
    transaction.execute("DELETE FROM numbers", [])?;
    let numbers = &next.desired.numbers;
    let mut insert = transaction.prepare_cached("INSERT INTO numbers VALUES (?1, ?2, ?3)")?;
    for (kind, table) in [("port", &numbers.ports), ("segment", &numbers.segments)] {
        for (key, number) in table {
            insert.execute(params![kind, key, number])?;
        }
    }
    drop(insert);
    transaction.commit()
}

/// Writes the owner of one VM; root's VMs have none.
fn save_owner(db: &Connection, vm: &Name, owner: Option<&Rights>) -> rusqlite::Result<()> {
    db.execute(OWNERS, [])?;
    let Some(owner) = owner else {
        db.execute("DELETE FROM owners WHERE vm = ?1", [vm.as_str()])?;
        return Ok(());
    };
    let rights = serde_json::to_string(owner)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let sql = "INSERT INTO owners VALUES (?1, ?2) ON CONFLICT (vm) DO UPDATE SET rights = ?2";
    db.execute(sql, params![vm.as_str(), rights])?;
    Ok(())
}
