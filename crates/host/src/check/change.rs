//! Changing settings of the running host and undoing it (BP: `--apply`, `--undo`).
//!
//! The changes are claims in the [ledger](crate::ledger), beside those of the daemon.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use taut_api::check::Change;
use taut_api::pnic::PnicSettings;

use crate::kernel::adjust::Adjustments;
use crate::kernel::cards::{Cards, SystemCards};
use crate::ledger::cards::{CardKey, Step};
use crate::ledger::{Holder, Ledger, LedgerError, Settled};

/// The holder of a card's setting that the daemon determines.
const PNIC: &str = "settings of taut pnic";

/// The outcome of a list of changes. A setting is a file, with its path below the root and a
/// leading slash, or one of a network card, such as `eth1 rx-usecs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Settings that have the wanted value, or their former one.
    pub done: Vec<ChangedSetting>,
    /// Settings whose value another holder determines, and which one. The change or its undoing
    /// takes effect when that holder lets go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<(String, String)>,
    /// Settings that could not be changed, each with the reason.
    pub failed: Vec<(String, String)>,
}

/// A setting that was changed or restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedSetting {
    /// File or setting of a card.
    pub setting: String,
    /// Value before, as far as it could be read: of a list of choices, the chosen one.
    pub from: String,
    /// Value now.
    pub to: String,
}

/// The content of files before they are changed.
struct Before(Vec<(String, String)>);

impl Before {
    fn read(root: &Path, paths: impl Iterator<Item = String>) -> Self {
        Self(paths.map(|path| (content(root, &path), path)).map(|(text, path)| (path, text)).collect())
    }

    /// Compares a file with its content before.
    fn changed(&self, root: &Path, path: &str) -> ChangedSetting {
        let before = self.0.iter().find(|(known, _)| known == path);
        let from = before.map(|(_, content)| content.clone()).unwrap_or_default();
        ChangedSetting { setting: file(path), from, to: content(root, path) }
    }
}

/// The name of a file for users.
fn file(path: &str) -> String {
    format!("/{path}")
}

/// The content of a file in one line. Of `always [madvise] never` it is `madvise`.
fn content(root: &Path, path: &str) -> String {
    let text = fs::read_to_string(root.join(path)).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    chosen.unwrap_or(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Makes the changes in their order, those of files first. The ledger keeps the values from before
/// the first change.
///
/// # Errors
/// Returns an error if the ledger cannot be written; what was changed until then is in it. A
/// setting that cannot be changed is no error, but listed in the outcome.
pub fn apply(ledger: &Ledger, changes: &[Change]) -> Result<Changed, LedgerError> {
    apply_with(ledger, changes, &mut SystemCards::of(ledger.root()))
}

fn apply_with(ledger: &Ledger, changes: &[Change], cards: &mut dyn Cards) -> Result<Changed, LedgerError> {
    let mut files = Vec::new();
    let mut of_cards = BTreeMap::new();
    for change in changes.iter().cloned() {
        match change {
            Change::File { path, value } => files.push((path, value)),
            Change::Card { name, settings } => drop(of_cards.insert(name, settings)),
        }
    }
    let mut changed = apply_to_files(ledger, &files)?;
    if !of_cards.is_empty() {
        changed.add(apply_to_cards(ledger, &of_cards, cards)?);
    }
    Ok(changed)
}

fn apply_to_files(ledger: &Ledger, values: &[(String, String)]) -> Result<Changed, LedgerError> {
    let root = ledger.root();
    let before = Before::read(root, values.iter().map(|(path, _)| path.clone()));
    let settled = ledger.add(Holder::Check, values)?;
    let is_wanted = |path: &String| values.iter().any(|(wanted, _)| wanted == path);
    let done = values.iter().filter(|(path, _)| settled.in_force.contains(path));
    Ok(Changed {
        done: done.map(|(path, _)| before.changed(root, path)).collect(),
        held: held(&settled, is_wanted),
        failed: failed(&settled),
    })
}

fn apply_to_cards(
    ledger: &Ledger,
    wanted: &BTreeMap<String, PnicSettings>,
    cards: &mut dyn Cards,
) -> Result<Changed, LedgerError> {
    let settled = ledger.add_cards(Holder::Check, wanted, cards)?;
    let mut changed = Changed::default();
    for (name, settings) in wanted {
        let Some(card) = settled.get(name) else { continue };
        if card.index.is_none() && card.problems.is_empty() {
            changed.failed.push((name.clone(), "the host has no such interface".to_owned()));
        }
        for key in CardKey::of(settings) {
            let setting = format!("{name} {key}");
            if let Some(why) = card.problems.get(&key) {
                changed.failed.push((setting, why.clone()));
            } else if card.held.contains(&key) {
                changed.held.push((setting, PNIC.to_owned()));
            } else if let Some(step) = card.in_force.get(&key) {
                changed.done.push(of_step(setting, step));
            }
        }
    }
    Ok(changed)
}

/// Restores everything that [`apply`] changed, the last changed file first.
///
/// # Errors
/// Returns an error if the ledger cannot be read or written. A setting that could not be restored
/// stays in the ledger and is listed in the outcome.
pub fn undo(ledger: &Ledger) -> Result<Changed, LedgerError> {
    undo_with(ledger, &mut SystemCards::of(ledger.root()))
}

fn undo_with(ledger: &Ledger, cards: &mut dyn Cards) -> Result<Changed, LedgerError> {
    let mut changed = undo_files(ledger)?;
    if ledger.has_cards(Holder::Check)? {
        changed.add(undo_cards(ledger, cards)?);
    }
    Ok(changed)
}

fn undo_cards(ledger: &Ledger, cards: &mut dyn Cards) -> Result<Changed, LedgerError> {
    let claimed = ledger.claimed_cards(Holder::Check)?;
    let settled = ledger.settle_cards(Holder::Check, &BTreeMap::new(), cards)?;
    let others = ledger.claimed_cards(Holder::Daemon)?;
    let keys_of = |claims: &BTreeMap<String, PnicSettings>, name: &String| {
        claims.get(name).map(CardKey::of).unwrap_or_default()
    };
    let mut changed = Changed::default();
    for (name, card) in &settled {
        let (own, kept) = (keys_of(&claimed, name), keys_of(&others, name));
        let setting = |key: &CardKey| format!("{name} {key}");
        changed.done.extend(card.given_back.iter().map(|(key, step)| of_step(setting(key), step)));
        changed.held.extend(own.intersection(&kept).map(|key| (setting(key), PNIC.to_owned())));
        let failed = card.problems.iter().filter(|(key, _)| !kept.contains(key));
        changed.failed.extend(failed.map(|(key, why)| (setting(key), why.clone())));
    }
    Ok(changed)
}

fn of_step(setting: String, step: &Step) -> ChangedSetting {
    ChangedSetting { setting, from: step.from.clone(), to: step.to.clone() }
}

fn undo_files(ledger: &Ledger) -> Result<Changed, LedgerError> {
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
        held: kept.map(|path| (file(&path), Holder::Daemon.to_string())).collect(),
        failed: failed(&settled),
    })
}

fn held(settled: &Settled, wanted: impl Fn(&String) -> bool) -> Vec<(String, String)> {
    let held = settled.held.iter().filter(|(path, _)| wanted(path));
    held.map(|(path, who)| (file(path), who.to_string())).collect()
}

fn failed(settled: &Settled) -> Vec<(String, String)> {
    settled.failed.iter().map(|(path, why)| (file(path), why.clone())).collect()
}

impl Changed {
    /// Adds the outcome of further changes.
    fn add(&mut self, more: Self) {
        let Self { done, held, failed } = more;
        self.done.extend(done);
        self.held.extend(held);
        self.failed.extend(failed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::kernel::cards::fixture::{FakeCard, FakeCards};

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
                |(path, value): &(&str, &str)| Change::File { path: (*path).into(), value: (*value).into() };
            apply(&self.ledger(), &changes.iter().map(change).collect::<Vec<_>>()).unwrap()
        }
        fn undo(&self) -> Changed {
            undo(&self.ledger()).unwrap()
        }
        fn paths(changed: Changed) -> Vec<String> {
            changed.done.into_iter().map(|file| file.setting[1..].to_owned()).collect()
        }
        fn is_as_before(&self) -> bool {
            FILES.iter().all(|(path, content)| fs::read_to_string(self.file(path)).unwrap() == *content)
        }
    }

    #[test]
    fn undo_restores_every_byte() {
        let host = Host::new();
        let changed = host.apply(&[(THP, "madvise"), (KSM, "0")]);
        let told = |changed: &Changed| {
            let each = |file: &ChangedSetting| format!("{}: {} → {}", file.setting, file.from, file.to);
            changed.done.iter().map(each).collect::<Vec<_>>()
        };
        let expected = [format!("/{THP}: always → madvise"), format!("/{KSM}: 1 → 0")];
        assert_eq!(told(&changed), expected);
        assert_eq!(fs::read_to_string(host.file(THP)).unwrap(), "madvise");
        let expected = [format!("/{KSM}: 0 → 1"), format!("/{THP}: madvise → always")];
        assert_eq!(told(&host.undo()), expected);
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
    fn settings_of_cards_are_changed_and_restored_beside_files() {
        let host = Host::new();
        let mut cards = FakeCards::plug(&["eth1"]);
        let settings = |json| serde_json::from_str(json).unwrap();
        let card = |name: &str, json| Change::Card { name: name.to_owned(), settings: settings(json) };
        let changes = [
            card(
                "eth1",
                r#"{ "coalescing": { "rx_us": 0, "adaptive_rx": false }, "rings": { "rx": 9000 } }"#,
            ),
            card("eth9", r#"{ "rings": { "rx": 8 } }"#),
            Change::File { path: KSM.into(), value: "0".into() },
        ];
        let ledger = host.ledger();
        let changed = apply_with(&ledger, &changes, &mut cards).unwrap();
        let told = |changed: &Changed| {
            let each = |done: &ChangedSetting| format!("{}: {} → {}", done.setting, done.from, done.to);
            changed.done.iter().map(each).collect::<Vec<_>>()
        };
        let of_file = format!("/{KSM}: 1 → 0");
        assert_eq!(told(&changed), [&*of_file, "eth1 rx-usecs: 3 → 0", "eth1 adaptive-rx: on → off"]);
        let failed: Vec<_> = changed.failed.iter().map(|(setting, _)| setting.as_str()).collect();
        assert_eq!(failed, ["eth1 rx-ring", "eth9"]);
        // A claim of the daemon holds one of them.
        let daemon = [("eth1".to_owned(), settings(r#"{ "coalescing": { "rx_us": 50 } }"#))].into();
        ledger.settle_cards(Holder::Daemon, &daemon, &mut cards).unwrap();
        let held = apply_with(&ledger, &changes[..1], &mut cards).unwrap().held;
        assert_eq!(held, [("eth1 rx-usecs".to_owned(), PNIC.to_owned())]);
        let undone = undo_with(&ledger, &mut cards).unwrap();
        assert_eq!(told(&undone), [format!("/{KSM}: 0 → 1"), "eth1 adaptive-rx: off → on".to_owned()]);
        assert_eq!((undone.held, undone.failed), (held, vec![]));
        ledger.settle_cards(Holder::Daemon, &BTreeMap::new(), &mut cards).unwrap();
        assert_eq!(cards.card("eth1"), FakeCard::new(7));
        assert_eq!(undo_with(&ledger, &mut cards).unwrap(), Changed::default());
        assert!(host.is_as_before());
    }

    #[test]
    fn the_cards_of_a_captured_tree_are_not_those_of_this_host() {
        let host = Host::new();
        let settings = serde_json::from_str(r#"{ "rings": { "rx": 8 } }"#).unwrap();
        let change = Change::Card { name: "lo".to_owned(), settings };
        let changed = apply(&host.ledger(), &[change]).unwrap();
        assert_eq!((changed.done.len(), changed.failed.len()), (0, 1));
        assert!(changed.failed[0].1.contains("not those of the running kernel"), "{changed:?}");
        assert_eq!(undo(&host.ledger()).unwrap(), Changed::default());
    }

    #[test]
    fn without_a_ledger_nothing_is_changed() {
        let host = Host::new();
        let book = host.file("var/lib/taut/host-changes.json");
        fs::create_dir_all(book.parent().unwrap()).unwrap();
        fs::write(book, "not a ledger").unwrap();
        let change = Change::File { path: KSM.into(), value: "0".into() };
        let error = apply(&host.ledger(), &[change]).unwrap_err();
        assert!(matches!(error, LedgerError::Strange { .. }), "{error}");
        assert!(host.is_as_before());
    }
}
