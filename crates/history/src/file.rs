//! The file: one SQLite database in write-ahead mode.
//!
//! A process that is killed loses nothing of what it has written. A crash of the host may take what
//! was written since SQLite's last checkpoint, because writes are not synced one by one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};

use crate::chunk::{self, Sample};
use crate::timeline::Mark;
use crate::values::Values;

/// Version of the tables, raised with every change of them.
const VERSION: i64 = 1;
/// Memory for pages of the file, as a negative number of KiB. The kernel caches the file besides.
const CACHE: i64 = -512;

const TABLES: &str = "
    CREATE TABLE subjects (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
        earlier BLOB NOT NULL) STRICT;
    CREATE TABLE chunks (subject INTEGER NOT NULL, density INTEGER NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, samples BLOB NOT NULL, PRIMARY KEY (subject, density, first)) STRICT;
    CREATE TABLE timeline (boot TEXT NOT NULL, base INTEGER NOT NULL, last INTEGER NOT NULL) STRICT;
";

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// SQLite refused.
    #[error("the history {} cannot be used", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// SQLite's reason.
        #[source]
        source: rusqlite::Error,
    },
    /// Another version wrote the file.
    #[error("the history {} has format {found}, and this version of taut reads {VERSION}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
}

impl FileError {
    /// Returns whether the file itself is at fault, and not the disk or another process: nothing
    /// but a new file helps.
    pub fn is_of_the_file(&self) -> bool {
        match self {
            Self::Version { .. } => true,
            Self::Database { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
            ),
        }
    }
}

/// A subject in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Its number in the file.
    pub(crate) id: i64,
    /// Its key, which never changes.
    pub(crate) key: String,
    /// Its name.
    pub(crate) name: String,
    /// Sum of its counters' earlier runs; see [`crate::totals`].
    pub(crate) earlier: Values,
}

/// A chunk of samples to write.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The subject's number.
    pub(crate) subject: i64,
    /// Number of the density.
    pub(crate) density: usize,
    /// Position of the first sample.
    pub(crate) first: u64,
    /// Position of the last sample.
    pub(crate) last: u64,
    /// The samples.
    pub(crate) samples: Vec<u8>,
}

/// The samples on both sides of a position.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Around {
    /// The last one that is not after it.
    pub(crate) before: Option<Sample>,
    /// The first one after it.
    pub(crate) after: Option<Sample>,
}

impl Around {
    /// Looks at the samples of a chunk.
    pub(crate) fn look(&mut self, samples: impl IntoIterator<Item = Sample>, at: u64) {
        for sample in samples {
            let (place, is_nearer): (_, fn(u64, u64) -> bool) = if sample.at <= at {
                (&mut self.before, |new, old| new > old)
            } else {
                (&mut self.after, |new, old| new < old)
            };
            if place.as_ref().is_none_or(|old| is_nearer(sample.at, old.at)) {
                *place = Some(sample);
            }
        }
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    db: Connection,
}

impl File {
    /// Opens a file, and creates it if there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Database { path: path.to_owned(), source };
        let db = Connection::open(path).map_err(failed)?;
        let prepare = || {
            db.pragma_update(None, "locking_mode", "exclusive")?;
            db.pragma_update(None, "journal_mode", "wal")?;
            db.pragma_update(None, "synchronous", "normal")?;
            db.pragma_update(None, "cache_size", CACHE)?;
            db.pragma_query_value(None, "user_version", |row| row.get(0))
        };
        let found: i64 = prepare().map_err(failed)?;
        if found == 0 {
            let made = format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;");
            db.execute_batch(&made).map_err(failed)?;
        } else if found != VERSION {
            return Err(FileError::Version { path: path.to_owned(), found });
        }
        Ok(Self { path: path.to_owned(), db })
    }

    fn failed(&self, source: rusqlite::Error) -> FileError {
        FileError::Database { path: self.path.clone(), source }
    }

    /// Returns all subjects.
    pub(crate) fn subjects(&self) -> Result<Vec<Subject>, FileError> {
        let read = || {
            let mut query = self.db.prepare_cached("SELECT id, key, name, earlier FROM subjects")?;
            let subjects = query.query_map([], |row| {
                let earlier: Vec<u8> = row.get(3)?;
                // Without a damaged sum, the next reading counts as a new run.
                let earlier = chunk::decode(&earlier).ok().and_then(|mut samples| samples.pop());
                Ok(Subject {
                    id: row.get(0)?,
                    key: row.get(1)?,
                    name: row.get(2)?,
                    earlier: earlier.map(|sample| sample.totals).unwrap_or_default(),
                })
            })?;
            subjects.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(|error| self.failed(error))
    }

    /// Returns the end of the timeline.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, FileError> {
        let query = "SELECT boot, base, last FROM timeline";
        let read = self
            .db
            .query_row(query, [], |row| Ok(Mark { boot: row.get(0)?, base: row.get(1)?, last: row.get(2)? }));
        read.optional().map_err(|error| self.failed(error))
    }

    /// Writes all of this, or nothing. Rows that exist are replaced.
    pub(crate) fn write(
        &mut self,
        mark: &Mark,
        subjects: &[Subject],
        chunks: &[Chunk],
    ) -> Result<(), FileError> {
        let mut write = || {
            let transaction = self.db.transaction()?;
            {
                let sql = "INSERT OR REPLACE INTO subjects VALUES (?1, ?2, ?3, ?4)";
                let mut insert = transaction.prepare_cached(sql)?;
                for Subject { id, key, name, earlier } in subjects {
                    let earlier = chunk::Chunk::begin(Sample { at: 0, totals: earlier.clone() }).encode();
                    insert.execute(params![id, key, name, earlier])?;
                }
                let sql = "INSERT OR REPLACE INTO chunks VALUES (?1, ?2, ?3, ?4, ?5)";
                let mut insert = transaction.prepare_cached(sql)?;
                for Chunk { subject, density, first, last, samples } in chunks {
                    insert.execute(params![subject, density, first, last, samples])?;
                }
            }
            transaction.execute("DELETE FROM timeline", [])?;
            let Mark { boot, base, last } = mark;
            transaction.execute("INSERT INTO timeline VALUES (?1, ?2, ?3)", params![boot, base, last])?;
            transaction.commit()
        };
        let written = write();
        written.map_err(|error| self.failed(error))
    }

    /// Deletes a subject's chunks that end before these positions, one for each density, and the
    /// subject itself if `forget` and no chunk is left. Returns whether it has deleted the subject.
    pub(crate) fn prune(&mut self, subject: i64, before: &[u64], forget: bool) -> Result<bool, FileError> {
        let mut prune = || {
            let transaction = self.db.transaction()?;
            for (density, before) in before.iter().enumerate() {
                let sql = "DELETE FROM chunks WHERE subject = ?1 AND density = ?2 AND last < ?3";
                transaction.prepare_cached(sql)?.execute(params![subject, density, before])?;
            }
            let sql = "DELETE FROM subjects WHERE id = ?1
                AND NOT EXISTS (SELECT 1 FROM chunks WHERE subject = ?1)";
            let is_gone = forget && transaction.prepare_cached(sql)?.execute([subject])? > 0;
            transaction.commit()?;
            Ok(is_gone)
        };
        let pruned = prune();
        pruned.map_err(|error| self.failed(error))
    }

    /// Returns the samples of a density in chunks that have some of a period, by the position of
    /// the first one. A damaged chunk has no samples.
    pub(crate) fn chunks(
        &self,
        subject: i64,
        density: usize,
        from: u64,
        to: u64,
    ) -> Result<BTreeMap<u64, Vec<Sample>>, FileError> {
        let read = || {
            let sql = "SELECT first, samples FROM chunks
                WHERE subject = ?1 AND density = ?2 AND last >= ?3 AND first <= ?4";
            let mut query = self.db.prepare_cached(sql)?;
            let chunks = query.query_map(params![subject, density, from, to], |row| {
                let bytes: Vec<u8> = row.get(1)?;
                Ok((row.get(0)?, chunk::decode(&bytes).unwrap_or_default()))
            })?;
            chunks.collect::<Result<_, _>>()
        };
        read().map_err(|error| self.failed(error))
    }

    /// Returns the samples of a density around a position.
    pub(crate) fn around(&self, subject: i64, density: usize, at: u64) -> Result<Around, FileError> {
        let mut around = Around::default();
        for sql in [
            "SELECT samples FROM chunks WHERE subject = ?1 AND density = ?2 AND first <= ?3
                ORDER BY first DESC LIMIT 1",
            "SELECT samples FROM chunks WHERE subject = ?1 AND density = ?2 AND first > ?3
                ORDER BY first LIMIT 1",
        ] {
            let found = self.db.prepare_cached(sql).and_then(|mut query| {
                query.query_row(params![subject, density, at], |row| row.get::<_, Vec<u8>>(0)).optional()
            });
            let bytes = found.map_err(|error| self.failed(error))?;
            // A damaged chunk has no samples: those around it answer.
            around.look(bytes.and_then(|bytes| chunk::decode(&bytes).ok()).unwrap_or_default(), at);
        }
        Ok(around)
    }
}
