//! The ledger's file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use taut_api::Name;
use taut_api::passthrough::PciAddress;

use super::{Holder, LedgerError};
use crate::affinity::Affinities;
use crate::pci::bind::Taken;
use crate::{groups, precedence};

/// Its name in the state directory.
const BOOK: &str = "host-changes.json";

/// What is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Book {
    /// The boot in which that was.
    pub(super) boot: String,
    /// In the order in which they were first changed.
    #[serde(default)]
    pub(super) files: Vec<Entry>,
    /// VMs with cpusets, and the pCPUs that their vCPUs own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) vms: BTreeMap<Name, Vec<u32>>,
    /// PCI devices that VMs have, and the driver that each had.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) devices: BTreeMap<PciAddress, Taken>,
    /// Where their vCPU threads might run before they were bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) affinities: BTreeMap<Name, Affinities>,
    /// Control groups that were made for VMs.
    #[serde(default, skip_serializing_if = "groups::Record::is_empty")]
    pub(super) groups: groups::Record,
    /// Threads that go before others, and how they were.
    #[serde(default, skip_serializing_if = "precedence::Record::is_empty")]
    pub(super) precedence: precedence::Record,
}

impl Book {
    /// Is the host as it was?
    fn is_empty(&self) -> bool {
        let Self { boot: _, files, vms, devices, affinities, groups, precedence } = self;
        let nothing = files.is_empty() && vms.is_empty() && devices.is_empty() && affinities.is_empty();
        nothing && groups.is_empty() && precedence.is_empty()
    }
}

/// A file that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Below the root.
    pub(super) path: String,
    /// Its whole content before the first change.
    pub(super) content: String,
    /// What has to be written to have that content again: of several choices the chosen one.
    pub(super) value: String,
    /// Who wants what of it; the last has its way. Nobody: it is to be given back.
    pub(super) claims: BTreeMap<Holder, String>,
    /// Noted, but perhaps not done yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) pending: bool,
    /// Given back: it leaves the book.
    #[serde(skip)]
    pub(super) done: bool,
}

impl Entry {
    /// What it would contain without this holder, and those who come after it.
    pub(super) fn without(&self, holder: Holder) -> &str {
        self.claims.range(..holder).next_back().map_or(&self.content, |(_, value)| value)
    }
}

/// The file; the lock lasts as long as this.
pub(super) struct Store {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    /// Waits for the lock.
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

    /// Nothing where no ledger is: nothing is changed then.
    pub(super) fn open_if_there(folder: &Path) -> Result<Option<Self>, LedgerError> {
        if folder.join(BOOK).exists() { Self::open(folder).map(Some) } else { Ok(None) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(BOOK)
    }

    /// The book of this boot; an empty one when there is none.
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

    /// Either the whole new book is there afterwards, or the whole old one; an empty one is no file.
    pub(super) fn write(&self, book: &Book) -> Result<(), LedgerError> {
        let kept = |source| LedgerError::Kept { path: self.path(), source };
        if book.is_empty() {
            return match fs::remove_file(self.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(kept(error)),
                _ => Ok(()),
            };
        }
        let next = self.folder.join("host-changes.next");
        let text = serde_json::to_vec_pretty(book).expect("strings are JSON");
        let write = || {
            let mut file = File::create(&next)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&next, self.path())?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(kept)
    }
}
