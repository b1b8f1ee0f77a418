//! The ledger's file: its content, its lock, and writing it atomically.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use taut_api::Name;
use taut_api::passthrough::PciAddress;

use super::record::{CardRecord, GroupRecord, PriorityRecord, TakenDevice};
use super::{Holder, LedgerError};
use crate::kernel::affinity::Affinities;

/// Name of the file in the state directory.
const BOOK: &str = "host-changes.json";

/// The content of the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Book {
    /// Identifier of the boot that the content belongs to.
    pub(super) boot: String,
    /// Changed files, in the order in which they were first changed.
    #[serde(default)]
    pub(super) files: Vec<Entry>,
    /// VMs with cpusets or partitions, and the pCPUs that their vCPUs own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) vms: BTreeMap<Name, Vec<u32>>,
    /// PCI devices taken from the host for VMs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) devices: BTreeMap<PciAddress, TakenDevice>,
    /// pCPUs that vCPU threads were allowed before they were bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) affinities: BTreeMap<Name, Affinities>,
    /// Control groups made for VMs.
    #[serde(default, skip_serializing_if = "GroupRecord::is_empty")]
    pub(crate) groups: GroupRecord,
    /// Processes with real-time priority, and their scheduling class before.
    #[serde(rename = "precedence", default, skip_serializing_if = "PriorityRecord::is_empty")]
    pub(crate) priority: PriorityRecord,
    /// Network cards with changed settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) cards: Vec<CardRecord>,
}

impl Book {
    /// Returns whether the host is as it was before any change.
    fn is_empty(&self) -> bool {
        let Self { boot: _, files, vms, devices, affinities, groups, priority, cards } = self;
        let nothing = files.is_empty() && vms.is_empty() && devices.is_empty() && affinities.is_empty();
        nothing && groups.is_empty() && priority.is_empty() && cards.is_empty()
    }
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Path below the root.
    pub(super) path: String,
    /// The whole content before the first change.
    pub(super) content: String,
    /// The value to write to restore that content: the chosen word if the file lists choices.
    pub(super) value: String,
    /// The value that each holder wants; the last holder's is in force. If empty, the file is to be
    /// restored.
    pub(super) claims: BTreeMap<Holder, String>,
    /// Recorded, and perhaps not written to the file yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) pending: bool,
    /// Restored or gone: the entry leaves the book.
    #[serde(skip)]
    pub(super) done: bool,
}

impl Entry {
    /// Returns the content without the claims of this holder and of those after it.
    pub(super) fn content_without(&self, holder: Holder) -> &str {
        self.claims.range(..holder).next_back().map_or(&self.content, |(_, value)| value)
    }
}

/// The open ledger. Dropping it releases the lock.
pub(super) struct LockedFile {
    folder: PathBuf,
    _lock: File,
}

impl LockedFile {
    /// Waits for the lock and opens the ledger.
    pub(super) fn open(folder: &Path) -> Result<Self, LedgerError> {
        let lock = folder.join("host-changes.lock");
        let open = || {
            fs::create_dir_all(folder)?;
            let file = File::create(&lock)?;
            file.lock()?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Self { folder: folder.to_owned(), _lock: file }),
            Err(source) => Err(LedgerError::Kept { path: lock, source }),
        }
    }

    /// Opens the ledger unless there is none, which means that nothing is changed.
    pub(super) fn open_existing(folder: &Path) -> Result<Option<Self>, LedgerError> {
        if folder.join(BOOK).exists() { Self::open(folder).map(Some) } else { Ok(None) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(BOOK)
    }

    /// Reads the book of this boot. Returns an empty book if there is none.
    pub(super) fn read(&self, root: &Path) -> Result<Book, LedgerError> {
        let boot = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default();
        let boot = boot.trim().to_owned();
        let path = self.path();
        let book = match fs::read(&path) {
            Ok(text) => serde_json::from_slice::<Book>(&text)
                .map_err(|source| LedgerError::Strange { path, source })
                .map(Some)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(LedgerError::Kept { path, source }),
        };
        let of_this_boot = book.filter(|book| book.boot == boot);
        Ok(of_this_boot.unwrap_or_else(|| Book { boot, ..Book::default() }))
    }

    /// Replaces the file atomically and flushes it to the disk. An empty book removes the file.
    pub(super) fn write(&self, book: &Book) -> Result<(), LedgerError> {
        let kept = |source| LedgerError::Kept { path: self.path(), source };
        if book.is_empty() {
            return match fs::remove_file(self.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(kept(error)),
                _ => Ok(()),
            };
        }
        let next = self.write_next(book).map_err(kept)?;
        let replace = || {
            fs::rename(&next, self.path())?;
            File::open(&self.folder)?.sync_all()
        };
        replace().map_err(kept)
    }

    /// Writes the book beside the file, and removes it again.
    pub(super) fn try_writing(&self, book: &Book) -> Result<(), LedgerError> {
        let tried = self.write_next(book).and_then(fs::remove_file);
        tried.map_err(|source| LedgerError::Kept { path: self.path(), source })
    }

    /// Writes the file that is to replace the ledger.
    fn write_next(&self, book: &Book) -> io::Result<PathBuf> {
        let next = self.folder.join("host-changes.next");
        let text = serde_json::to_vec_pretty(book).expect("strings are JSON");
        let mut file = File::create(&next)?;
        file.write_all(&text)?;
        file.sync_all()?;
        Ok(next)
    }
}
