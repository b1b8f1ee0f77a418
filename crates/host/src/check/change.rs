//! Changing settings of the running host, and taking that back (SPEC BP: `--apply`, `--undo`).
//!
//! What a file held is written to a record, and the record to the disk, before the file is changed: whoever is interrupted,
//! at whatever point, can be undone. The first value counts: a second change of a file does not replace it. Settings do
//! not outlive a boot, so neither does the record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use taut_api::check::Change;

use super::tree::Tree;

/// The record's name in the state directory.
const RECORD: &str = "check-undo.json";

/// What files held before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The boot in which that was.
    boot: String,
    /// In the order in which they were changed.
    originals: Vec<Original>,
}

/// What a file held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Original {
    /// Below the root.
    path: String,
    /// Its whole content.
    content: String,
    /// What has to be written to have that content again: of several choices the chosen one.
    value: String,
}

/// What became of a list of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Files that have their value now.
    pub done: Vec<String>,
    /// Files that could not be changed, each with the reason.
    pub failed: Vec<(String, String)>,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The record could not be read or written; without it nothing is touched.
    #[error("cannot keep the record of replaced values in {}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody wrote something else there.
    #[error("{} is not a record of replaced values", path.display())]
    NoRecord {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Makes the changes below `root`; what they replace is kept in the folder `state`.
///
/// # Errors
/// When the record cannot be kept: then nothing was changed. A file that cannot be changed is no error, but in the answer.
pub fn apply(root: &Path, state: &Path, changes: &[Change]) -> Result<Changed, ChangeError> {
    let tree = Tree(root);
    let store = Store::open(state)?;
    let mut record = store.read()?.filter(|record| record.boot == boot(tree)).unwrap_or_default();
    record.boot = boot(tree);
    let mut changed = Changed::default();
    let mut possible = Vec::new();
    for change in changes {
        match original(tree, &change.path) {
            Ok(original) => {
                if record.originals.iter().all(|earlier| earlier.path != original.path) {
                    record.originals.push(original);
                }
                possible.push(change);
            }
            Err(error) => changed.failed.push((change.path.clone(), error.to_string())),
        }
    }
    if possible.is_empty() {
        return Ok(changed);
    }
    store.write(&record)?;
    for change in possible {
        match write(tree, &change.path, &change.value) {
            Ok(()) => changed.done.push(change.path.clone()),
            Err(error) => changed.failed.push((change.path.clone(), error.to_string())),
        }
    }
    Ok(changed)
}

/// Gives every changed file below `root` the content that it had, the last changed first.
///
/// # Errors
/// When the record cannot be read, or brought up to date. What could not be given back stays in the record, and is in the answer.
pub fn undo(root: &Path, state: &Path) -> Result<Changed, ChangeError> {
    let tree = Tree(root);
    if !state.join(RECORD).exists() {
        return Ok(Changed::default());
    }
    let store = Store::open(state)?;
    let mut changed = Changed::default();
    let Some(mut record) = store.read()?.filter(|record| record.boot == boot(tree)) else {
        store.remove()?;
        return Ok(changed);
    };
    let mut left = Vec::new();
    for original in record.originals.drain(..).rev() {
        match restore(tree, &original) {
            Ok(()) => changed.done.push(original.path),
            Err(error) => {
                changed.failed.push((original.path.clone(), error.to_string()));
                left.push(original);
            }
        }
    }
    left.reverse();
    record.originals = left;
    if record.originals.is_empty() {
        store.remove()?;
    } else {
        store.write(&record)?;
    }
    Ok(changed)
}

fn boot(tree: Tree<'_>) -> String {
    tree.text("proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The file below the root. A record is a file too, and may say anything.
fn inside(tree: Tree<'_>, path: &str) -> io::Result<PathBuf> {
    if path.is_empty() || !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of the root"));
    }
    Ok(tree.0.join(path))
}

fn original(tree: Tree<'_>, path: &str) -> io::Result<Original> {
    let content = fs::read_to_string(inside(tree, path)?)?;
    let value = tree.knob(path).map_or_else(|| content.trim().to_owned(), |knob| knob.value);
    Ok(Original { path: path.to_owned(), content, value })
}

fn write(tree: Tree<'_>, path: &str, value: &str) -> io::Result<()> {
    // Never creates: a setting that is not there cannot be set.
    OpenOptions::new().write(true).truncate(true).open(inside(tree, path)?)?.write_all(value.as_bytes())
}

/// The kernel's files show a value in their own way; a captured tree's files hold what was written.
fn restore(tree: Tree<'_>, original: &Original) -> io::Result<()> {
    let path = inside(tree, &original.path)?;
    let is_back = || fs::read_to_string(&path).is_ok_and(|content| content == original.content);
    if is_back() {
        return Ok(());
    }
    let by_value = write(tree, &original.path, &original.value);
    if is_back() {
        return Ok(());
    }
    by_value?;
    write(tree, &original.path, &original.content)?;
    if is_back() { Ok(()) } else { Err(io::Error::other("it does not take its former value")) }
}

/// The record's file; the lock lasts as long as this.
struct Store {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    fn open(folder: &Path) -> Result<Self, ChangeError> {
        let lock = folder.join("check-undo.lock");
        let open = || {
            fs::create_dir_all(folder)?;
            let file = File::create(&lock)?;
            file.lock()?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Self { folder: folder.to_owned(), _lock: file }),
            Err(source) => Err(ChangeError::Record { path: lock, source }),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(RECORD)
    }

    fn read(&self) -> Result<Option<Record>, ChangeError> {
        let path = self.path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ChangeError::Record { path, source }),
        };
        serde_json::from_slice(&text).map(Some).map_err(|source| ChangeError::NoRecord { path, source })
    }

    /// Either the whole new record is there afterwards, or the whole old one.
    fn write(&self, record: &Record) -> Result<(), ChangeError> {
        let next = self.folder.join("check-undo.next");
        let text = serde_json::to_vec_pretty(record).expect("strings are JSON");
        let write = || {
            let mut file = File::create(&next)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&next, self.path())?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| ChangeError::Record { path: self.path(), source })
    }

    fn remove(&self) -> Result<(), ChangeError> {
        fs::remove_file(self.path()).map_err(|source| ChangeError::Record { path: self.path(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    const KSM: &str = "sys/kernel/mm/ksm/run";
    const FILES: [(&str, &str); 3] =
        [(THP, "[always] madvise never\n"), (KSM, "1\n"), ("proc/sys/kernel/random/boot_id", "5f1c\n")];

    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for (path, content) in FILES {
                fs::create_dir_all(host.file(path).parent().unwrap()).unwrap();
                fs::write(host.file(path), content).unwrap();
            }
            host
        }
        fn root(&self) -> &Path {
            self.0.path()
        }
        fn state(&self) -> PathBuf {
            self.root().join("var/lib/taut")
        }
        fn file(&self, path: &str) -> PathBuf {
            self.root().join(path)
        }
        fn apply(&self, changes: &[(&str, &str)]) -> Changed {
            let change =
                |(path, value): &(&str, &str)| Change { path: (*path).into(), value: (*value).into() };
            apply(self.root(), &self.state(), &changes.iter().map(change).collect::<Vec<_>>()).unwrap()
        }
        fn undo(&self) -> Changed {
            undo(self.root(), &self.state()).unwrap()
        }
        fn is_as_before(&self) -> bool {
            FILES.iter().all(|(path, content)| fs::read_to_string(self.file(path)).unwrap() == *content)
        }
    }

    #[test]
    fn every_byte_is_given_back() {
        let host = Host::new();
        let changed = host.apply(&[(THP, "madvise"), (KSM, "0")]);
        assert_eq!(changed.done, [THP, KSM]);
        assert_eq!(fs::read_to_string(host.file(THP)).unwrap(), "madvise");
        assert_eq!(host.undo().done, [KSM, THP]);
        assert!(host.is_as_before());
        assert!(!host.state().join(RECORD).exists());
        assert_eq!(host.undo(), Changed::default());
    }

    #[test]
    fn a_second_change_does_not_lose_the_first_value() {
        let host = Host::new();
        host.apply(&[(KSM, "0")]);
        host.apply(&[(KSM, "2"), (THP, "never")]);
        host.undo();
        assert!(host.is_as_before());
    }

    #[test]
    fn an_interrupted_change_is_undone_from_the_record() {
        let host = Host::new();
        // As far as a process gets that dies between the record and the last file.
        let store = Store::open(&host.state()).unwrap();
        let originals = [THP, KSM].map(|path| original(Tree(host.root()), path).unwrap());
        store.write(&Record { boot: "5f1c".into(), originals: originals.into() }).unwrap();
        write(Tree(host.root()), THP, "never").unwrap();
        drop(store);
        // The next one applies again, and the first values still count.
        host.apply(&[(THP, "madvise"), (KSM, "0")]);
        assert_eq!(host.undo().done.len(), 2);
        assert!(host.is_as_before());
    }

    #[test]
    fn what_cannot_be_changed_is_said_and_the_rest_is_done() {
        let host = Host::new();
        let changed = host.apply(&[("sys/absent", "1"), ("../etc/passwd", "x"), (KSM, "0")]);
        assert_eq!(changed.done, [KSM]);
        assert_eq!(changed.failed.len(), 2);
        assert!(changed.failed[1].1.contains("out of the root"), "{:?}", changed.failed);
        assert!(!host.file("sys/absent").exists());
    }

    #[test]
    fn what_cannot_be_given_back_stays_recorded() {
        let host = Host::new();
        host.apply(&[(KSM, "0"), (THP, "never")]);
        fs::remove_file(host.file(KSM)).unwrap();
        let changed = host.undo();
        assert_eq!((changed.done.as_slice(), changed.failed.len()), ([THP.to_owned()].as_slice(), 1));
        fs::write(host.file(KSM), "0").unwrap();
        assert_eq!(host.undo().done, [KSM]);
        assert!(host.is_as_before());
    }

    #[test]
    fn a_record_of_an_earlier_boot_is_worth_nothing() {
        let host = Host::new();
        host.apply(&[(KSM, "0")]);
        fs::write(host.file("proc/sys/kernel/random/boot_id"), "77aa\n").unwrap();
        fs::write(host.file(KSM), "2\n").unwrap();
        assert_eq!(host.undo(), Changed::default());
        assert_eq!(fs::read_to_string(host.file(KSM)).unwrap(), "2\n");
    }

    #[test]
    fn without_a_record_nothing_is_changed() {
        let host = Host::new();
        fs::create_dir_all(host.state()).unwrap();
        fs::write(host.state().join(RECORD), "not a record").unwrap();
        let change = Change { path: KSM.into(), value: "0".into() };
        let error = apply(host.root(), &host.state(), &[change]).unwrap_err();
        assert!(matches!(error, ChangeError::NoRecord { .. }), "{error}");
        assert!(host.is_as_before());
    }
}
