//! Changing settings of the running host and undoing it (BP: `--apply`, `--undo`).
//!
//! The changes are claims in the [ledger](crate::ledger), beside those for latency-sensitive VMs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use taut_api::check::Change;

use crate::kernel::adjust::Adjustments;
use crate::ledger::{Holder, Ledger, LedgerError, Settled};

/// The outcome of a list of changes. Paths are below the root, without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Files that have the wanted value, or their former content.
    pub done: Vec<ChangedFile>,
    /// Files whose value another holder determines, and which one. The change or its undoing takes
    /// effect when that holder lets go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<(String, String)>,
    /// Files that could not be changed, each with the reason.
    pub failed: Vec<(String, String)>,
}

/// A file that was changed or restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// Path below the root, without a leading slash.
    pub path: String,
    /// Content before, as far as it could be read: of a list of choices, the chosen one.
    pub from: String,
    /// Content now.
    pub to: String,
}

/// The content of files before they are changed.
struct Before(Vec<(String, String)>);

impl Before {
    fn read(root: &Path, paths: impl Iterator<Item = String>) -> Self {
        Self(paths.map(|path| (content(root, &path), path)).map(|(text, path)| (path, text)).collect())
    }

    /// Compares a file with its content before.
    fn changed(&self, root: &Path, path: &str) -> ChangedFile {
        let before = self.0.iter().find(|(known, _)| known == path);
        let from = before.map(|(_, content)| content.clone()).unwrap_or_default();
        ChangedFile { path: path.to_owned(), from, to: content(root, path) }
    }
}

/// The content of a file in one line. Of `always [madvise] never` it is `madvise`.
fn content(root: &Path, path: &str) -> String {
    let text = fs::read_to_string(root.join(path)).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    chosen.unwrap_or(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Makes the changes in their order. The ledger keeps a file's content from before its first
/// change.
///
/// # Errors
/// Returns an error if the ledger cannot be written; then nothing was changed. A file that cannot
/// be changed is no error, but listed in the outcome.
pub fn apply(ledger: &Ledger, changes: &[Change]) -> Result<Changed, LedgerError> {
    let values: Vec<_> = changes.iter().map(|change| (change.path.clone(), change.value.clone())).collect();
    let root = ledger.root();
    let before = Before::read(root, changes.iter().map(|change| change.path.clone()));
    let settled = ledger.add(Holder::Check, &values)?;
    let wanted = |path: &String| changes.iter().any(|change| change.path == *path);
    let done = changes.iter().filter(|change| settled.in_force.contains(&change.path));
    Ok(Changed {
        done: done.map(|change| before.changed(root, &change.path)).collect(),
        held: held(&settled, wanted),
        failed: settled.failed.into_iter().collect(),
    })
}

/// Restores every file that [`apply`] changed, the last changed first.
///
/// # Errors
/// Returns an error if the ledger cannot be read or written. A file that could not be restored
/// stays in the ledger and is listed in the outcome.
pub fn undo(ledger: &Ledger) -> Result<Changed, LedgerError> {
    let claimed = ledger.claimed(Holder::Check)?;
    if claimed.is_empty() && !ledger.has_changes(Holder::Check)? {
        return Ok(Changed::default());
    }
    let root = ledger.root();
    let before = Before::read(root, claimed.iter().cloned());
    let settled = ledger.settle(Holder::Check, &Adjustments::new(), &mut BTreeMap::new())?;
    let others = ledger.claimed(Holder::Daemon)?;
    let kept = claimed.into_iter().filter(|path| others.contains(path));
    Ok(Changed {
        done: settled.given_back.iter().map(|path| before.changed(root, path)).collect(),
        held: kept.map(|path| (path, Holder::Daemon.to_string())).collect(),
        failed: settled.failed.into_iter().collect(),
    })
}

fn held(settled: &Settled, wanted: impl Fn(&String) -> bool) -> Vec<(String, String)> {
    let held = settled.held.iter().filter(|(path, _)| wanted(path));
    held.map(|(path, who)| (path.clone(), who.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const THP: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    const KSM: &str = "sys/kernel/mm/ksm/run";
    const BOOST: &str = "sys/devices/system/cpu/cpufreq/boost";
    const FILES: [(&str, &str); 4] = [
        (THP, "[always] madvise never\n"),
        (KSM, "1\n"),
        (BOOST, "1\n"),
        ("proc/sys/kernel/random/boot_id", "5f1c\n"),
    ];

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
        fn ledger(&self) -> Ledger {
            Ledger::new(self.root(), &self.root().join("var/lib/taut"))
        }
        fn file(&self, path: &str) -> PathBuf {
            self.root().join(path)
        }
        fn apply(&self, changes: &[(&str, &str)]) -> Changed {
            let change =
                |(path, value): &(&str, &str)| Change { path: (*path).into(), value: (*value).into() };
            apply(&self.ledger(), &changes.iter().map(change).collect::<Vec<_>>()).unwrap()
        }
        fn undo(&self) -> Changed {
            undo(&self.ledger()).unwrap()
        }
        fn paths(changed: Changed) -> Vec<String> {
            changed.done.into_iter().map(|file| file.path).collect()
        }
        fn is_as_before(&self) -> bool {
            FILES.iter().all(|(path, content)| fs::read_to_string(self.file(path)).unwrap() == *content)
        }
    }

    #[test]
    fn undo_restores_every_byte() {
        let host = Host::new();
        let changed = host.apply(&[(THP, "madvise"), (KSM, "0")]);
        let told: Vec<_> = changed.done.iter().map(|file| (&*file.path, &*file.from, &*file.to)).collect();
        assert_eq!(told, [(THP, "always", "madvise"), (KSM, "1", "0")]);
        assert_eq!(fs::read_to_string(host.file(THP)).unwrap(), "madvise");
        let restored = host.undo().done;
        let told: Vec<_> = restored.iter().map(|file| (&*file.path, &*file.from, &*file.to)).collect();
        assert_eq!(told, [(KSM, "0", "1"), (THP, "madvise", "always")]);
        assert!(host.is_as_before());
        assert!(!host.file("var/lib/taut/host-changes.json").exists());
        assert_eq!(host.undo(), Changed::default());
    }

    #[test]
    fn a_second_change_keeps_the_first_content() {
        let host = Host::new();
        host.apply(&[(KSM, "0")]);
        host.apply(&[(KSM, "2"), (THP, "never")]);
        host.undo();
        assert!(host.is_as_before());
    }

    #[test]
    fn a_file_that_cannot_be_changed_is_listed_and_the_others_are_changed() {
        let host = Host::new();
        let changed = host.apply(&[("sys/absent", "1"), ("../etc/passwd", "x"), (KSM, "0")]);
        assert_eq!(changed.failed.len(), 2);
        assert!(changed.failed[0].1.contains("out of the root"), "{:?}", changed.failed);
        assert!(!host.file("sys/absent").exists());
        assert_eq!(Host::paths(changed), [KSM]);
    }

    #[test]
    fn a_file_that_cannot_be_restored_stays_recorded_unless_it_is_gone() {
        let host = Host::new();
        host.apply(&[(KSM, "0"), (THP, "never"), (BOOST, "0")]);
        fs::remove_file(host.file(BOOST)).unwrap();
        fs::remove_file(host.file(KSM)).unwrap();
        fs::create_dir(host.file(KSM)).unwrap();
        let changed = host.undo();
        assert!(changed.failed.len() == 1 && changed.failed[0].1.contains("`1`"), "{:?}", changed.failed);
        assert_eq!(Host::paths(changed), [THP]);
        fs::remove_dir(host.file(KSM)).unwrap();
        fs::write(host.file(KSM), "0").unwrap();
        assert_eq!(Host::paths(host.undo()), [KSM]);
        assert_eq!(fs::read_to_string(host.file(KSM)).unwrap(), "1\n");
        assert_eq!(host.undo(), Changed::default());
    }

    #[test]
    fn a_ledger_of_an_earlier_boot_is_ignored() {
        let host = Host::new();
        host.apply(&[(KSM, "0")]);
        fs::write(host.file("proc/sys/kernel/random/boot_id"), "77aa\n").unwrap();
        fs::write(host.file(KSM), "2\n").unwrap();
        assert_eq!(host.undo(), Changed::default());
        assert_eq!(fs::read_to_string(host.file(KSM)).unwrap(), "2\n");
    }

    #[test]
    fn without_a_ledger_nothing_is_changed() {
        let host = Host::new();
        let book = host.file("var/lib/taut/host-changes.json");
        fs::create_dir_all(book.parent().unwrap()).unwrap();
        fs::write(book, "not a ledger").unwrap();
        let change = Change { path: KSM.into(), value: "0".into() };
        let error = apply(&host.ledger(), &[change]).unwrap_err();
        assert!(matches!(error, LedgerError::Strange { .. }), "{error}");
        assert!(host.is_as_before());
    }
}
