//! The one ledger of what taut has changed on this host: who wants which file changed, and what each contained before.
//!
//! `taut check host --apply` and latency-sensitive VMs want some of the same files. So each file has its claims: what it contained
//! before the first of them, and what every holder wants of it. The claim of the last holder in [`Holder`]'s order is in
//! force; a holder that lets go leaves the file to the others, and the last one gives back what it had, byte for byte.
//!
//! The ledger is a file in the state directory, under a lock, and on the disk before anything is changed: whoever is killed,
//! at whatever point, leaves a ledger from which the next one, of either kind, goes on. Settings do not outlive a boot, so
//! neither does the ledger.

mod book;
mod setting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use taut_api::Name;
use taut_api::passthrough::PciAddress;

use crate::affinity::Affinities;
use crate::pci::bind::Taken;
use crate::{groups, precedence};
use book::{Book, Entry, Store};

/// Who wants files changed. Of two who want the same file, the later in this order has its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// `taut check host --apply`.
    Check,
    /// The daemon, for its VMs.
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

/// What a file is to contain, made of what it would contain without this holder; nothing when that may stay.
pub(crate) type Wish<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

/// Files and what is wished of them.
pub(crate) type Wishes<'a> = BTreeMap<PathBuf, Wish<'a>>;

/// Called before each step that changes a file; an error ends everything there, as a kill would.
type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It could not be read or written; without it nothing is touched.
    #[error("cannot keep the ledger of changed settings in {}", path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody wrote something else there.
    #[error("{} is not a ledger of changed settings", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// What became of a holder's wishes. Paths are below the root, without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Files that are as the holder wants them.
    pub in_force: BTreeSet<String>,
    /// Files that have what they had before.
    pub given_back: Vec<String>,
    /// Files that another holder has its way with, and who that is.
    pub held: BTreeMap<String, Holder>,
    /// Files that could not be changed or given back, and why.
    pub failed: BTreeMap<String, String>,
}

/// VMs with the pCPUs that their vCPUs own, and where the vCPUs' threads might run before.
pub(crate) type Vms = (BTreeMap<Name, Vec<u32>>, BTreeMap<Name, Affinities>);

/// The ledger of one host.
#[derive(Debug, Clone)]
pub struct Ledger {
    root: PathBuf,
    folder: PathBuf,
}

impl Ledger {
    /// The ledger in `folder` of the host whose file system starts at `root`.
    pub fn new(root: &Path, folder: &Path) -> Self {
        Self { root: root.to_owned(), folder: folder.to_owned() }
    }

    /// Makes the files as `holder` wishes, all of them and no others; gives up what it wished before. Files in `refused` are left
    /// alone; those that cannot be changed are added to it, with the reason, and have no claim.
    ///
    /// # Errors
    /// When the ledger cannot be kept: then nothing was changed, or what was changed is in it.
    pub(crate) fn settle(
        &self,
        holder: Holder,
        wishes: &Wishes<'_>,
        refused: &mut BTreeMap<PathBuf, String>,
    ) -> Result<Settled, LedgerError> {
        self.settle_stepwise(holder, wishes, refused, &mut || Ok(()))
    }

    /// Adds plain values to what `holder` wants already.
    ///
    /// # Errors
    /// As [`Ledger::settle`].
    pub(crate) fn add(&self, holder: Holder, values: &[(String, String)]) -> Result<Settled, LedgerError> {
        let store = Store::open(&self.folder)?;
        let mut book = store.read(&self.root)?;
        let mut settled = Settled::default();
        for (path, value) in values {
            if let Err(error) = self.claim(&mut book, holder, path, |_| Some(value.clone())) {
                settled.failed.insert(path.clone(), error.to_string());
            }
        }
        let mut refused = BTreeMap::new();
        self.make_so(&store, book, holder, settled, &mut refused, &mut || Ok(()))
    }

    /// VMs that have cpusets, and the pCPUs that their vCPUs own; and where these might run before.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(crate) fn vms(&self) -> Result<Vms, LedgerError> {
        self.book().map(|book| (book.vms, book.affinities))
    }

    /// Notes which VMs have cpusets.
    ///
    /// # Errors
    /// When the ledger cannot be kept.
    pub(crate) fn note_vms(&self, (vms, affinities): &Vms) -> Result<(), LedgerError> {
        self.note(|book| {
            book.vms.clone_from(vms);
            book.affinities.clone_from(affinities);
        })
    }

    /// PCI devices that were taken from the host.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(crate) fn devices(&self) -> Result<BTreeMap<PciAddress, Taken>, LedgerError> {
        self.book().map(|book| book.devices)
    }

    /// Notes which PCI devices are taken from the host.
    ///
    /// # Errors
    /// When the ledger cannot be kept.
    pub(crate) fn note_devices(&self, devices: &BTreeMap<PciAddress, Taken>) -> Result<(), LedgerError> {
        self.note(|book| book.devices.clone_from(devices))
    }

    /// Control groups that were made for VMs.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(crate) fn groups(&self) -> Result<groups::Record, LedgerError> {
        self.book().map(|book| book.groups)
    }

    /// Notes which control groups are made for VMs.
    ///
    /// # Errors
    /// When the ledger cannot be kept.
    pub(crate) fn note_groups(&self, made: &groups::Record) -> Result<(), LedgerError> {
        self.note(|book| book.groups.clone_from(made))
    }

    /// Threads that go before others.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(crate) fn precedence(&self) -> Result<precedence::Record, LedgerError> {
        self.book().map(|book| book.precedence)
    }

    /// Notes which threads go before others.
    ///
    /// # Errors
    /// When the ledger cannot be kept.
    pub(crate) fn note_precedence(&self, changed: &precedence::Record) -> Result<(), LedgerError> {
        self.note(|book| book.precedence.clone_from(changed))
    }

    /// What is in it; nothing where there is none.
    fn book(&self) -> Result<Book, LedgerError> {
        match Store::open_if_there(&self.folder)? {
            Some(store) => store.read(&self.root),
            None => Ok(Book::default()),
        }
    }

    /// Changes what is in it, on the disk before this returns.
    fn note(&self, change: impl FnOnce(&mut Book)) -> Result<(), LedgerError> {
        let store = Store::open(&self.folder)?;
        let mut book = store.read(&self.root)?;
        let before = book.clone();
        change(&mut book);
        if book == before { Ok(()) } else { store.write(&book) }
    }

    /// Files that a holder wants changed, in the order in which they were first changed.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn claimed(&self, holder: Holder) -> Result<Vec<String>, LedgerError> {
        let claimed = self.book()?.files.into_iter().filter(|entry| entry.claims.contains_key(&holder));
        Ok(claimed.map(|entry| entry.path).collect())
    }

    /// Is there anything left to do for a holder: claims of its own, or files that are still to be given back?
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(crate) fn owes(&self, holder: Holder) -> Result<bool, LedgerError> {
        Ok(self
            .book()?
            .files
            .iter()
            .any(|entry| entry.claims.is_empty() || entry.claims.contains_key(&holder)))
    }

    fn settle_stepwise(
        &self,
        holder: Holder,
        wishes: &Wishes<'_>,
        refused: &mut BTreeMap<PathBuf, String>,
        step: Step<'_>,
    ) -> Result<Settled, LedgerError> {
        let store = Store::open(&self.folder)?;
        let mut book = store.read(&self.root)?;
        for entry in &mut book.files {
            if !wishes.contains_key(&self.root.join(&entry.path)) && entry.claims.remove(&holder).is_some() {
                entry.pending = true;
            }
        }
        // Of cpusets below each other the upper one has to be larger at any time: the lower ones are made smaller first.
        for (path, wish) in wishes.iter().rev() {
            if refused.contains_key(path) {
                continue;
            }
            // Interrupts and cpusets come and go: what is not there needs no change.
            let _ = self.claim(&mut book, holder, &below(&self.root, path), |base| wish(base));
        }
        self.make_so(&store, book, holder, Settled::default(), refused, step)
    }

    /// Notes what `holder` wants of a file.
    fn claim(
        &self,
        book: &mut Book,
        holder: Holder,
        path: &str,
        wish: impl FnOnce(&str) -> Option<String>,
    ) -> io::Result<()> {
        let file = inside(&self.root, path)?;
        if let Some(entry) = book.files.iter_mut().find(|entry| entry.path == path) {
            let wanted = wish(entry.without(holder));
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
        if let Some(value) = wish(&content) {
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

    /// Keeps the book, makes the files so, and keeps what came of it. What this holder has in force is looked at again each time:
    /// somebody else may have changed it.
    fn make_so(
        &self,
        store: &Store,
        mut book: Book,
        holder: Holder,
        mut settled: Settled,
        refused: &mut BTreeMap<PathBuf, String>,
        step: Step<'_>,
    ) -> Result<Settled, LedgerError> {
        let kept = |source| LedgerError::Kept { path: store.path(), source };
        if book != store.read(&self.root)? {
            store.write(&book)?;
        }
        // Last changed, first given back; and once more for those that needed another one first.
        for last in [false, true] {
            for entry in book.files.iter_mut().rev().filter(|entry| entry.claims.is_empty()) {
                step().map_err(kept)?;
                match inside(&self.root, &entry.path).and_then(|file| setting::restore(&file, entry)) {
                    Ok(()) => settled.given_back.push(entry.path.clone()),
                    // Nothing that could have anything back.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        if last {
                            let before = entry.value.trim();
                            let why = format!("cannot be put back to `{before}`: {error}");
                            settled.failed.insert(entry.path.clone(), why);
                        }
                        continue;
                    }
                }
                entry.done = true;
            }
            book.files.retain(|entry| !entry.done);
        }
        for last in [false, true] {
            for entry in &mut book.files {
                let Some((&who, value)) = entry.claims.last_key_value() else { continue };
                if !entry.pending && who != holder {
                    continue;
                }
                step().map_err(kept)?;
                let put = inside(&self.root, &entry.path).and_then(|file| setting::put(&file, value));
                match put {
                    Ok(()) => entry.pending = false,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => entry.done = true,
                    // The other one hears of it with its own next look.
                    Err(_) if !last || who != holder => entry.pending = true,
                    Err(error) => {
                        let why = format!("cannot be changed: {error}");
                        refused.insert(self.root.join(&entry.path), format!("/{} {why}", entry.path));
                        settled.failed.insert(entry.path.clone(), why);
                        entry.claims.remove(&who);
                        // It may have taken an earlier wish.
                        let others = entry.claims.last_key_value().map(|(_, value)| value.clone());
                        let file = self.root.join(&entry.path);
                        let back = match &others {
                            Some(value) => setting::put(&file, value),
                            None => setting::restore(&file, entry),
                        };
                        entry.done = others.is_none() && back.is_ok();
                    }
                }
            }
            book.files.retain(|entry| !entry.done);
        }
        for entry in book.files.iter().filter(|entry| entry.claims.contains_key(&holder)) {
            match entry.claims.last_key_value() {
                Some((who, _)) if *who == holder => drop(settled.in_force.insert(entry.path.clone())),
                Some((who, _)) => drop(settled.held.insert(entry.path.clone(), *who)),
                None => {}
            }
        }
        step().map_err(kept)?;
        if book != store.read(&self.root)? {
            store.write(&book)?;
        }
        Ok(settled)
    }
}

/// The path below the root.
fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// The file below the root. A ledger is a file too, and may say anything.
fn inside(root: &Path, path: &str) -> io::Result<PathBuf> {
    if path.is_empty() || !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of the root"));
    }
    Ok(root.join(path))
}

#[cfg(test)]
mod tests;
