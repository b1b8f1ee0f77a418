//! The record of everything that taut changed on this host, kept so that it can be put back.
//!
//! `taut check host --apply` and VMs with exclusive pCPUs change some of the same files. Therefore
//! a file has *claims*: its content before the first change, and the value that each holder wants.
//! The claim of the last holder in [`Holder`]'s order is in force. When a holder lets go, the file
//! gets the next claim's value; after the last one it gets its former content, byte for byte.
//! Settings of network cards have claims in the same way ([`cards`]).
//!
//! The ledger is a file in the state directory, under a lock. It is on disk before anything is
//! changed. Any process, killed at any point, leaves a ledger from which the next one continues.
//! Settings do not survive a boot, and neither does the ledger's content.

mod book;
pub(crate) mod cards;
pub(crate) mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kernel::adjust::Adjustments;
use crate::kernel::setting;
pub(crate) use book::Book;
use book::{Entry, LockedFile};

/// The two users of the ledger. If both want the same file, the later in this order prevails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// `taut check host --apply`.
    Check,
    /// The daemon, for its VMs and for network cards.
    Daemon,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Check => "taut check --apply",
            Self::Daemon => "latency-sensitive VMs",
        })
    }
}

/// Called before each change of a file. An error stops there, as a kill would.
type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Error that prevents every change.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger could not be read or written.
    #[error("cannot keep the ledger of changed settings in {}", path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has other content than a ledger.
    #[error("{} is not a ledger of changed settings", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
}

/// The outcome of a holder's changes. Paths are below the root, without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Files with the value that the holder wants.
    pub in_force: BTreeSet<String>,
    /// Files with their former content.
    pub given_back: Vec<String>,
    /// Files whose value another holder determines, and which one.
    pub held: BTreeMap<String, Holder>,
    /// Files that could not be changed or restored, and why.
    pub failed: BTreeMap<String, String>,
}

/// The ledger of one host.
#[derive(Debug, Clone)]
pub struct Ledger {
    root: PathBuf,
    folder: PathBuf,
}

impl Ledger {
    /// Names the ledger in `folder` of the host whose file system starts at `root`.
    pub fn new(root: &Path, folder: &Path) -> Self {
        Self { root: root.to_owned(), folder: folder.to_owned() }
    }

    /// The root of the host's file system.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Replaces all claims of `holder` by `adjustments`, and changes the files accordingly. Files
    /// in `refused` are left alone. Files that cannot be changed are added to it, with the reason,
    /// and have no claim.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be written. Every change made until then is in it.
    pub(crate) fn settle(
        &self,
        holder: Holder,
        adjustments: &Adjustments<'_>,
        refused: &mut BTreeMap<PathBuf, String>,
    ) -> Result<Settled, LedgerError> {
        self.settle_stepwise(holder, adjustments, refused, &mut || Ok(()))
    }

    /// Adds claims with plain values to those that `holder` has.
    ///
    /// # Errors
    /// Returns the same errors as [`Ledger::settle`].
    pub(crate) fn add(&self, holder: Holder, values: &[(String, String)]) -> Result<Settled, LedgerError> {
        let file = LockedFile::open(&self.folder)?;
        let mut book = file.read(&self.root)?;
        let mut settled = Settled::default();
        for (path, value) in values {
            if let Err(error) = self.claim(&mut book, holder, path, |_| Some(value.clone())) {
                settled.failed.insert(path.clone(), error.to_string());
            }
        }
        let change = Change { holder, settled, refused: &mut BTreeMap::new(), step: &mut || Ok(()) };
        self.make_so(&file, book, change)
    }

    /// Reads the content; an empty book if there is no ledger.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub(crate) fn book(&self) -> Result<Book, LedgerError> {
        match LockedFile::open_existing(&self.folder)? {
            Some(file) => file.read(&self.root),
            None => Ok(Book::default()),
        }
    }

    /// Changes the content; it is on disk when this returns.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be written.
    pub(crate) fn record(&self, change: impl FnOnce(&mut Book)) -> Result<(), LedgerError> {
        let file = LockedFile::open(&self.folder)?;
        let mut book = file.read(&self.root)?;
        let before = book.clone();
        change(&mut book);
        if book == before { Ok(()) } else { file.write(&book) }
    }

    /// Checks that the ledger can be read, and that its file system takes one of its size. Nothing
    /// changes.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written.
    pub(crate) fn try_writing(&self) -> Result<(), LedgerError> {
        let file = LockedFile::open(&self.folder)?;
        file.try_writing(&file.read(&self.root)?)
    }

    /// Returns the files that a holder claims, in the order in which they were first changed.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub fn claimed(&self, holder: Holder) -> Result<Vec<String>, LedgerError> {
        let claimed = self.book()?.files.into_iter().filter(|entry| entry.claims.contains_key(&holder));
        Ok(claimed.map(|entry| entry.path).collect())
    }

    /// Returns whether a holder has claims, or any file is still to be restored.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub(crate) fn has_changes(&self, holder: Holder) -> Result<bool, LedgerError> {
        Ok(self
            .book()?
            .files
            .iter()
            .any(|entry| entry.claims.is_empty() || entry.claims.contains_key(&holder)))
    }

    fn settle_stepwise(
        &self,
        holder: Holder,
        adjustments: &Adjustments<'_>,
        refused: &mut BTreeMap<PathBuf, String>,
        step: Step<'_>,
    ) -> Result<Settled, LedgerError> {
        let file = LockedFile::open(&self.folder)?;
        let mut book = file.read(&self.root)?;
        for entry in &mut book.files {
            let is_wanted = adjustments.contains_key(&self.root.join(&entry.path));
            if !is_wanted && entry.claims.remove(&holder).is_some() {
                entry.pending = true;
            }
        }
        // In reverse order of the paths: a cpuset must contain those below it at any time, so the
        // lower ones shrink first.
        for (path, adjust) in adjustments.iter().rev() {
            if refused.contains_key(path) {
                continue;
            }
            // Interrupts and cpusets come and go; a file that has gone needs no change.
            let _ = self.claim(&mut book, holder, &below(&self.root, path), |base| adjust(base));
        }
        self.make_so(&file, book, Change { holder, settled: Settled::default(), refused, step })
    }

    /// Enters the value that `holder` wants for a file into the book.
    fn claim(
        &self,
        book: &mut Book,
        holder: Holder,
        path: &str,
        adjust: impl FnOnce(&str) -> Option<String>,
    ) -> io::Result<()> {
        let file = inside(&self.root, path)?;
        if let Some(entry) = book.files.iter_mut().find(|entry| entry.path == path) {
            let wanted = adjust(entry.content_without(holder));
            if entry.claims.get(&holder) != wanted.as_ref() {
                entry.pending = true;
                match wanted {
                    Some(value) => entry.claims.insert(holder, value),
                    None => entry.claims.remove(&holder),
                };
            }
            return Ok(());
        }
        let content = std::fs::read_to_string(file)?;
        if let Some(value) = adjust(&content) {
            book.files.push(Entry {
                path: path.to_owned(),
                value: setting::chosen(&content).to_owned(),
                content,
                claims: [(holder, value)].into(),
                pending: true,
                done: false,
            });
        }
        Ok(())
    }

    /// Records the book, changes the files accordingly, and records the outcome.
    fn make_so(
        &self,
        file: &LockedFile,
        mut book: Book,
        mut change: Change<'_>,
    ) -> Result<Settled, LedgerError> {
        let kept = |source| LedgerError::Kept { path: file.path(), source };
        if book != file.read(&self.root)? {
            file.write(&book)?;
        }
        self.restore_unclaimed(&mut book, &mut change).map_err(kept)?;
        self.put_claims(&mut book, &mut change).map_err(kept)?;
        let Change { holder, mut settled, step, .. } = change;
        for entry in book.files.iter().filter(|entry| entry.claims.contains_key(&holder)) {
            match entry.claims.last_key_value() {
                Some((who, _)) if *who == holder => drop(settled.in_force.insert(entry.path.clone())),
                Some((who, _)) => drop(settled.held.insert(entry.path.clone(), *who)),
                None => {}
            }
        }
        step().map_err(kept)?;
        if book != file.read(&self.root)? {
            file.write(&book)?;
        }
        Ok(settled)
    }

    /// Restores files without claims, the last changed first. Two passes serve files that can only
    /// be restored after another one.
    fn restore_unclaimed(&self, book: &mut Book, change: &mut Change<'_>) -> io::Result<()> {
        for last in [false, true] {
            for entry in book.files.iter_mut().rev().filter(|entry| entry.claims.is_empty()) {
                (change.step)()?;
                let restored = inside(&self.root, &entry.path)
                    .and_then(|file| setting::restore(&file, &entry.value, &entry.content));
                match restored {
                    Ok(()) => change.settled.given_back.push(entry.path.clone()),
                    // A file that has gone needs no restoring.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        if last {
                            let before = entry.value.trim();
                            let why = format!("cannot be put back to `{before}`: {error}");
                            change.settled.failed.insert(entry.path.clone(), why);
                        }
                        continue;
                    }
                }
                entry.done = true;
            }
            book.files.retain(|entry| !entry.done);
        }
        Ok(())
    }

    /// Writes the claims in force, in two passes for the same reason. The holder's own claims are
    /// checked each time, since another program may have changed the file.
    fn put_claims(&self, book: &mut Book, change: &mut Change<'_>) -> io::Result<()> {
        for last in [false, true] {
            for entry in &mut book.files {
                let Some((&who, value)) = entry.claims.last_key_value() else { continue };
                if !entry.pending && who != change.holder {
                    continue;
                }
                (change.step)()?;
                let put = inside(&self.root, &entry.path).and_then(|file| setting::put(&file, value));
                match put {
                    Ok(()) => entry.pending = false,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => entry.done = true,
                    // The other holder learns of it when it settles next.
                    Err(_) if !last || who != change.holder => entry.pending = true,
                    Err(error) => self.drop_claim(entry, who, &error, change),
                }
            }
            book.files.retain(|entry| !entry.done);
        }
        Ok(())
    }

    /// Gives up a claim that the kernel refuses, and puts the file back under the claims that are
    /// left.
    fn drop_claim(&self, entry: &mut Entry, who: Holder, error: &io::Error, change: &mut Change<'_>) {
        let why = format!("cannot be changed: {error}");
        let file = self.root.join(&entry.path);
        change.refused.insert(file.clone(), format!("/{} {why}", entry.path));
        change.settled.failed.insert(entry.path.clone(), why);
        entry.claims.remove(&who);
        // The file may still have the value of an earlier claim.
        let others = entry.claims.last_key_value().map(|(_, value)| value.clone());
        let back = match &others {
            Some(value) => setting::put(&file, value),
            None => setting::restore(&file, &entry.value, &entry.content),
        };
        entry.done = others.is_none() && back.is_ok();
    }
}

/// One holder's change to the files, under way.
struct Change<'a> {
    holder: Holder,
    settled: Settled,
    /// Files that the kernel refuses to change, and why.
    refused: &'a mut BTreeMap<PathBuf, String>,
    step: Step<'a>,
}

/// Returns the part of a path below the root.
fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Joins a path of the ledger to the root. Another program may have edited the ledger, so the path
/// is checked.
fn inside(root: &Path, path: &str) -> io::Result<PathBuf> {
    if path.is_empty() || !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of the root"));
    }
    Ok(root.join(path))
}

#[cfg(test)]
mod tests;
