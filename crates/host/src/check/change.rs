//! Changing settings of the running host and undoing it (BP: `--apply`, `--undo`).
//!
//! The changes are claims in the [ledger](crate::ledger), beside those for latency-sensitive VMs.

use std::collections::BTreeMap;

use serde::Serialize;
use taut_api::check::Change;

use crate::kernel::adjust::Adjustments;
use crate::ledger::{Holder, Ledger, LedgerError, Settled};

/// The outcome of a list of changes. Paths are below the root, without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Files that have the wanted value.
    pub done: Vec<String>,
    /// Files whose value another holder determines, and which one. The change or its undoing takes
    /// effect when that holder lets go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<(String, String)>,
    /// Files that could not be changed, each with the reason.
    pub failed: Vec<(String, String)>,
}

/// Makes the changes in their order. The ledger keeps a file's content from before its first
/// change.
///
/// # Errors
/// Returns an error if the ledger cannot be written; then nothing was changed. A file that cannot
/// be changed is no error, but listed in the outcome.
pub fn apply(ledger: &Ledger, changes: &[Change]) -> Result<Changed, LedgerError> {
    let values: Vec<_> = changes.iter().map(|change| (change.path.clone(), change.value.clone())).collect();
    let settled = ledger.add(Holder::Check, &values)?;
    let wanted = |path: &String| changes.iter().any(|change| change.path == *path);
    let done = changes.iter().filter(|change| settled.in_force.contains(&change.path));
    Ok(Changed {
        done: done.map(|change| change.path.clone()).collect(),
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
    let settled = ledger.settle(Holder::Check, &Adjustments::new(), &mut BTreeMap::new())?;
    let others = ledger.claimed(Holder::Daemon)?;
    let kept = claimed.into_iter().filter(|path| others.contains(path));
    Ok(Changed {
        done: settled.given_back,
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
    use std::fs;
    use std::path::{Path, PathBuf};

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
        fn is_as_before(&self) -> bool {
            FILES.iter().all(|(path, content)| fs::read_to_string(self.file(path)).unwrap() == *content)
        }
    }

    #[test]
    fn undo_restores_every_byte() {
        let host = Host::new();
        let changed = host.apply(&[(THP, "madvise"), (KSM, "0")]);
        assert_eq!(changed.done, [THP, KSM]);
        assert_eq!(fs::read_to_string(host.file(THP)).unwrap(), "madvise");
        assert_eq!(host.undo().done, [KSM, THP]);
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
        assert_eq!(changed.done, [KSM]);
        assert_eq!(changed.failed.len(), 2);
        assert!(changed.failed[0].1.contains("out of the root"), "{:?}", changed.failed);
        assert!(!host.file("sys/absent").exists());
    }

    #[test]
    fn a_file_that_cannot_be_restored_stays_recorded_unless_it_is_gone() {
        let host = Host::new();
        host.apply(&[(KSM, "0"), (THP, "never"), (BOOST, "0")]);
        fs::remove_file(host.file(BOOST)).unwrap();
        fs::remove_file(host.file(KSM)).unwrap();
        fs::create_dir(host.file(KSM)).unwrap();
        let changed = host.undo();
        assert_eq!((changed.done.as_slice(), changed.failed.len()), ([THP.to_owned()].as_slice(), 1));
        assert!(changed.failed[0].1.contains("`1`"), "{:?}", changed.failed);
        fs::remove_dir(host.file(KSM)).unwrap();
        fs::write(host.file(KSM), "0").unwrap();
        assert_eq!(host.undo().done, [KSM]);
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
