//! The file: one SQLite database in write-ahead mode.
//!
//! Chunks are written once, when they are full. Until then their samples are *tails*: rows of a
//! table of its own, in the order of time, so that the newest samples of all subjects lie side by
//! side and a write is a few pages at the end of the table. The chunk replaces its tails.
//!
//! A process that is killed loses nothing of what it has written. A crash of the host may take what
//! was written since SQLite's last checkpoint, because writes are not synced one by one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction, params};

use crate::chunk::{self, Sample};
use crate::timeline::Mark;
use crate::values::Values;

/// Version of the tables, raised with every change of them.
const VERSION: i64 = 2;
/// Version that lacks [`TAILS`] and is the same otherwise.
const WITHOUT_TAILS: i64 = 1;
/// Memory for pages of the file, as a negative number of KiB. The kernel caches the file besides.
const CACHE: i64 = -512;

/// Statements that stay prepared: more than this module has.
const STATEMENTS: usize = 32;

const TABLES: &str = "
    CREATE TABLE subjects (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
        earlier BLOB NOT NULL) STRICT;
    CREATE TABLE chunks (subject INTEGER NOT NULL, density INTEGER NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, samples BLOB NOT NULL, PRIMARY KEY (subject, density, first)) STRICT;
    CREATE TABLE timeline (boot TEXT NOT NULL, base INTEGER NOT NULL, last INTEGER NOT NULL) STRICT;
";

/// Samples of chunks that still grow: the subject and density, the position of the first sample of
/// the chunk (`chunk`) and of these ones (`first`).
const TAILS: &str = "
    CREATE TABLE tails (first INTEGER NOT NULL, subject INTEGER NOT NULL, density INTEGER NOT NULL,
        chunk INTEGER NOT NULL, samples BLOB NOT NULL,
        PRIMARY KEY (first, subject, density)) STRICT, WITHOUT ROWID;
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

/// The newest samples of a chunk that grows.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Position of the first sample of the chunk.
    pub(crate) chunk: u64,
    /// These samples.
    pub(crate) row: Chunk,
}

/// Samples of a chunk that was not finished.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Position of the first sample of the chunk.
    pub(crate) chunk: u64,
    /// Position of the first of these samples.
    pub(crate) first: u64,
    /// These samples.
    pub(crate) samples: Vec<Sample>,
}

/// Everything of one write.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Subjects that are new, or have changed.
    pub(crate) subjects: Vec<Subject>,
    /// Chunks that are full.
    pub(crate) chunks: Vec<Chunk>,
    /// Tails that these chunks replace: subject, density, and position of the first sample.
    pub(crate) replaced: Vec<(i64, usize, u64)>,
    /// New tails of chunks that grow.
    pub(crate) tails: Vec<Tail>,
    /// Subjects to delete, with all of their samples.
    pub(crate) forgotten: Vec<Forgotten>,
}

/// A subject to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// Its number.
    pub(crate) subject: i64,
    /// Its tails: density, and position of the first sample.
    pub(crate) tails: Vec<(usize, u64)>,
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
            db.set_prepared_statement_cache_capacity(STATEMENTS);
            db.pragma_query_value(None, "user_version", |row| row.get(0))
        };
        let found: i64 = prepare().map_err(failed)?;
        let make = |tables: &str| {
            db.execute_batch(&format!("BEGIN; {tables} {TAILS} PRAGMA user_version = {VERSION}; COMMIT;"))
        };
        match found {
            VERSION => {}
            0 => make(TABLES).map_err(failed)?,
            WITHOUT_TAILS => make("").map_err(failed)?,
            _ => return Err(FileError::Version { path: path.to_owned(), found }),
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

    /// Returns the tails of chunks that were not finished, by subject and density, in the order of
    /// time. Damaged ones are left out.
    pub(crate) fn tails(&self) -> Result<BTreeMap<(i64, usize), Vec<Unfinished>>, FileError> {
        let read = || {
            let sql = "SELECT subject, density, chunk, first, samples FROM tails ORDER BY first";
            let mut query = self.db.prepare(sql)?;
            let mut rows = query.query([])?;
            let mut tails = BTreeMap::<_, Vec<_>>::new();
            while let Some(row) = rows.next()? {
                let bytes: Vec<u8> = row.get(4)?;
                let Ok(samples) = chunk::decode(&bytes) else { continue };
                let tail = Unfinished { chunk: row.get(2)?, first: row.get(3)?, samples };
                tails.entry((row.get(0)?, row.get(1)?)).or_default().push(tail);
            }
            Ok(tails)
        };
        read().map_err(|error| self.failed(error))
    }

    /// Writes all of this, or nothing. Rows that exist are replaced.
    pub(crate) fn write(&mut self, mark: &Mark, news: &News) -> Result<(), FileError> {
        let mut write = || {
            let transaction = self.db.transaction()?;
            insert(&transaction, news)?;
            forget(&transaction, &news.forgotten)?;
            transaction.prepare_cached("DELETE FROM timeline")?.execute([])?;
            let Mark { boot, base, last } = mark;
            let sql = "INSERT INTO timeline VALUES (?1, ?2, ?3)";
            transaction.prepare_cached(sql)?.execute(params![boot, base, last])?;
            transaction.commit()
        };
        let written = write();
        written.map_err(|error| self.failed(error))
    }

    /// Deletes chunks of subjects that end before these positions, one for each density. `due` are
    /// the numbers of the subjects, and whether each is to be deleted if no chunk of it is left.
    /// Returns the subjects that were deleted.
    pub(crate) fn prune(&mut self, due: &[(i64, bool)], before: &[u64]) -> Result<Vec<i64>, FileError> {
        let mut prune = || {
            let transaction = self.db.transaction()?;
            let mut gone = Vec::new();
            for (subject, rests) in due {
                for (density, before) in before.iter().enumerate() {
                    // The first condition bounds the rows that are read.
                    let sql = "DELETE FROM chunks
                        WHERE subject = ?1 AND density = ?2 AND first < ?3 AND last < ?3";
                    transaction.prepare_cached(sql)?.execute(params![subject, density, before])?;
                }
                let sql = "DELETE FROM subjects WHERE id = ?1
                    AND NOT EXISTS (SELECT 1 FROM chunks WHERE subject = ?1)";
                if *rests && transaction.prepare_cached(sql)?.execute([subject])? > 0 {
                    // After a restart a new subject may get its number, and must not get its tails.
                    transaction.prepare_cached("DELETE FROM tails WHERE subject = ?1")?.execute([subject])?;
                    gone.push(*subject);
                }
            }
            // Tails of chunks that an ended process dropped are never replaced.
            if let Some(before) = before.iter().min() {
                transaction.prepare_cached("DELETE FROM tails WHERE first < ?1")?.execute([before])?;
            }
            transaction.commit()?;
            Ok(gone)
        };
        let pruned = prune();
        pruned.map_err(|error| self.failed(error))
    }

    /// Gives `take` the samples of a density in each chunk that has some of a period, the oldest
    /// chunk first. A damaged chunk has no samples.
    pub(crate) fn each_chunk(
        &self,
        subject: i64,
        density: usize,
        [from, to]: [u64; 2],
        mut take: impl FnMut(Vec<Sample>),
    ) -> Result<(), FileError> {
        let mut read = || {
            let sql = "SELECT samples FROM chunks
                WHERE subject = ?1 AND density = ?2 AND last >= ?3 AND first <= ?4 ORDER BY first";
            let mut query = self.db.prepare_cached(sql)?;
            let mut rows = query.query(params![subject, density, from, to])?;
            while let Some(row) = rows.next()? {
                take(chunk::decode(&row.get::<_, Vec<u8>>(0)?).unwrap_or_default());
            }
            Ok(())
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

const DELETE_TAIL: &str = "DELETE FROM tails WHERE subject = ?1 AND density = ?2 AND first = ?3";

/// Deletes subjects.
fn forget(transaction: &Transaction<'_>, forgotten: &[Forgotten]) -> rusqlite::Result<()> {
    let mut from_chunks = transaction.prepare_cached("DELETE FROM chunks WHERE subject = ?1")?;
    let mut from_subjects = transaction.prepare_cached("DELETE FROM subjects WHERE id = ?1")?;
    let mut from_tails = transaction.prepare_cached(DELETE_TAIL)?;
    for Forgotten { subject, tails } in forgotten {
        from_chunks.execute([subject])?;
        from_subjects.execute([subject])?;
        for (density, first) in tails {
            from_tails.execute(params![subject, density, first])?;
        }
    }
    Ok(())
}

/// Inserts subjects, chunks and tails, and deletes the tails that the chunks replace.
fn insert(transaction: &Transaction<'_>, news: &News) -> rusqlite::Result<()> {
    let mut into = transaction.prepare_cached("INSERT OR REPLACE INTO subjects VALUES (?1, ?2, ?3, ?4)")?;
    for Subject { id, key, name, earlier } in &news.subjects {
        let earlier = chunk::Chunk::begin(Sample { at: 0, totals: earlier.clone() }).encode();
        into.execute(params![id, key, name, earlier])?;
    }
    let mut into = transaction.prepare_cached("INSERT OR REPLACE INTO chunks VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for Chunk { subject, density, first, last, samples } in &news.chunks {
        into.execute(params![subject, density, first, last, samples])?;
    }
    let mut from = transaction.prepare_cached(DELETE_TAIL)?;
    for (subject, density, first) in &news.replaced {
        from.execute(params![subject, density, first])?;
    }
    let sql = "INSERT OR REPLACE INTO tails (first, subject, density, chunk, samples)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut into = transaction.prepare_cached(sql)?;
    for Tail { chunk, row: Chunk { subject, density, first, samples, .. } } in &news.tails {
        into.execute(params![first, subject, density, chunk, samples])?;
    }
    Ok(())
}
