//! Files of the host that were changed, and what each contained before.
//!
//! One rule for all levers: what a file is to contain is made of what it contained before taut touched it; a file that nobody
//! wants changed any more gets back what it had, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What was replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    replaced: BTreeMap<PathBuf, String>,
}

/// New content from what the file contained; nothing when it may stay.
pub(crate) type Wish<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

/// Files and what is wished of them.
pub(crate) type Wishes<'a> = BTreeMap<PathBuf, Wish<'a>>;

impl Ledger {
    /// Is everything as it was?
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Every file that is changed now, and what it contained.
    pub fn replaced(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.replaced.iter().map(|(path, before)| (path.as_path(), before.as_str()))
    }

    /// The ledger with everything that `wishes` will replace, to be kept before [`Ledger::settle`] does so. Files in `refused` are
    /// left alone.
    pub(crate) fn planned(&self, wishes: &Wishes<'_>, refused: &BTreeMap<PathBuf, String>) -> Self {
        let mut next = self.clone();
        for (path, wish) in wishes {
            if next.replaced.contains_key(path) || refused.contains_key(path) {
                continue;
            }
            // Interrupts and cpusets come and go: what is not there needs no change.
            if let Ok(before) = fs::read_to_string(path)
                && wish(&before).is_some()
            {
                next.replaced.insert(path.clone(), before);
            }
        }
        next
    }

    /// Makes the files as wished, and gives back what nobody wishes any more. Returns what could not be given back; files that could
    /// not be changed are added to `refused`, with the reason, and are not in the ledger.
    pub(crate) fn settle(
        &mut self,
        wishes: &Wishes<'_>,
        refused: &mut BTreeMap<PathBuf, String>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let wished = |path: &PathBuf, before: &str| wishes.get(path).and_then(|wish| wish(before));
        // Of cpusets below each other the upper one has to be larger at any time: upwards first what is given back, downwards
        // first what is taken, and once more for those that needed another one first.
        let given_back: Vec<_> =
            self.replaced.iter().filter(|(path, before)| wished(path, before).is_none()).collect();
        let mut gone: Vec<PathBuf> = Vec::new();
        for (path, before) in given_back {
            match put(path, before) {
                Ok(()) => gone.push(path.clone()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => gone.push(path.clone()),
                Err(error) => problems.push(format!(
                    "{} cannot be put back to `{}`: {error}",
                    path.display(),
                    before.trim()
                )),
            }
        }
        for path in gone {
            self.replaced.remove(&path);
        }
        let mut failed: BTreeMap<PathBuf, io::Error> = BTreeMap::new();
        for (path, before) in self.replaced.iter().rev() {
            if let Some(value) = wished(path, before)
                && let Err(error) = put(path, &value)
            {
                failed.insert(path.clone(), error);
            }
        }
        for (path, _) in std::mem::take(&mut failed) {
            if let Some(value) = self.replaced.get(&path).and_then(|before| wished(&path, before))
                && let Err(error) = put(&path, &value)
            {
                failed.insert(path, error);
            }
        }
        for (path, error) in failed {
            let before = self.replaced.remove(&path).unwrap_or_default();
            // It may have taken an earlier wish.
            let _ = put(&path, &before);
            let why = format!("{} cannot be changed: {error}", path.display());
            refused.insert(path, why);
        }
        problems
    }
}

/// Writes unless it is so already.
fn put(path: &Path, value: &str) -> io::Result<()> {
    if fs::read_to_string(path)?.trim_end() == value.trim_end() { Ok(()) } else { fs::write(path, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shout<'a>() -> Wish<'a> {
        Box::new(|before| (!before.starts_with('=')).then(|| before.trim().to_uppercase()))
    }

    #[test]
    fn what_is_wished_is_made_and_given_back_byte_for_byte() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for (name, content) in [("a", "one\n"), ("b", " two"), ("c", "=three")] {
            fs::write(file(name), content).unwrap();
        }
        let wishes: Wishes<'_> = ["a", "b", "c", "gone"].map(|name| (file(name), shout())).into();
        let mut refused = BTreeMap::new();
        let mut ledger = Ledger::default().planned(&wishes, &refused);
        assert_eq!(ledger.replaced().count(), 2, "what stays as it is, or is not there, is not in it");
        assert_eq!(ledger.settle(&wishes, &mut refused), Vec::<String>::new());
        assert_eq!(fs::read_to_string(file("a")).unwrap(), "ONE");
        // Kept, lost in a crash, and read again.
        let text = serde_json::to_string(&ledger).unwrap();
        let mut ledger: Ledger = serde_json::from_str(&text).unwrap();
        assert_eq!(ledger.planned(&wishes, &refused), ledger, "what it contained is not what taut wrote");
        fs::write(file("b"), "somebody else").unwrap();
        ledger.settle(&wishes, &mut refused);
        assert_eq!(fs::read_to_string(file("b")).unwrap(), "TWO");
        assert_eq!(ledger.settle(&Wishes::new(), &mut refused), Vec::<String>::new());
        for (name, content) in [("a", "one\n"), ("b", " two"), ("c", "=three")] {
            assert_eq!(fs::read_to_string(file(name)).unwrap(), content);
        }
        assert!(ledger.is_empty() && refused.is_empty());
    }
}
