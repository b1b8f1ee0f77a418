//! The store's file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use taut_api::Name;
use taut_plan::facts::Numbers;
use taut_plan::network::numbering::assign_numbers;

use super::{Change, Kind, State};

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

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The directory could not be created.
    #[error("cannot create the state directory {0}")]
    Directory(PathBuf, #[source] std::io::Error),
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

pub(super) fn open(dir: &Path) -> Result<Connection, OpenError> {
    std::fs::create_dir_all(dir).map_err(|error| OpenError::Directory(dir.to_owned(), error))?;
    let db = Connection::open(dir.join("taut.db"))?;
    // Lock exclusively before WAL mode: this avoids a shared-memory file, and refuses a second
    // daemon on the same directory.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    match db.pragma_query_value(None, "user_version", |row| row.get(0))? {
        0 => db.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?,
        VERSION => {}
        found => return Err(OpenError::Version { found }),
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
    // Another version may have numbered differently.
    state.desired.numbers = assign_numbers(&state.desired).map_err(OpenError::Numbers)?;
    Ok(state)
}

/// Writes one change with its revision and numbers, or nothing.
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
