//! A `.vmx` while it is read: its keys, and what became of each.

use std::collections::HashMap;
use std::collections::hash_map;

use taut_api::ApiError;
use taut_api::import::{Fate, ImportedKey};

use super::known;
use super::syntax::{self, Entry};
use crate::error::invalid;

/// The entries of a file and their fates.
pub(super) struct VmxFile {
    entries: Vec<Entry>,
    fates: Vec<Option<Fate>>,
    /// Index of the entry by the key in lower case.
    index: HashMap<String, usize>,
}

impl VmxFile {
    /// Reads the text.
    pub(super) fn read(text: &str) -> Result<Self, ApiError> {
        let hint = "give a .vmx file; each of its lines has the form key = \"value\"";
        let entries = syntax::entries(text).map_err(|error| invalid(error.to_string(), hint))?;
        if entries.is_empty() {
            return Err(invalid("the .vmx contains no settings", hint));
        }
        let mut fates = vec![None; entries.len()];
        let mut index: HashMap<String, usize> = HashMap::new();
        for (number, entry) in entries.iter().enumerate() {
            match index.entry(entry.key.to_ascii_lowercase()) {
                hash_map::Entry::Vacant(place) => _ = place.insert(number),
                hash_map::Entry::Occupied(place) => {
                    let first = &entries[*place.get()];
                    if first.value != entry.value {
                        return Err(twice(first, entry));
                    }
                    fates[number] = Some(Fate::Reported { note: format!("the same as line {}", first.line) });
                }
            }
        }
        Ok(Self { entries, fates, index })
    }

    /// The value of a key, given in lower case.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        Some(&self.entries[*self.index.get(key)?].value)
    }

    /// Tells whether the key is present and true.
    pub(super) fn is_true(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| ["true", "yes", "1", "y"].contains(&value.to_ascii_lowercase().as_str()))
    }

    /// The parsed value of a key. An error names line, key and value.
    pub(super) fn parsed<T: std::str::FromStr>(&self, key: &str, what: &str) -> Result<Option<T>, ApiError> {
        let Some(&number) = self.index.get(key) else { return Ok(None) };
        let Entry { line, key, value } = &self.entries[number];
        value.trim().parse().map(Some).map_err(|_| {
            let message = format!("line {line}: {key} = \"{}\" is not {what}", shortened(value));
            invalid(message, "correct the value in the .vmx")
        })
    }

    /// The numbers `n` of all keys `<prefix>n.…`, ascending.
    pub(super) fn numbers(&self, prefix: &str) -> Vec<u32> {
        let number = |key: &String| key.strip_prefix(prefix)?.split_once('.')?.0.parse().ok();
        let mut numbers: Vec<u32> = self.index.keys().filter_map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// All keys in lower case.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Marks a key as taken over with the same meaning.
    pub(super) fn understood(&mut self, key: &str, field: impl Into<String>) {
        self.set(key, Fate::Understood { field: field.into() });
    }

    /// Marks a key as taken over with another meaning or value.
    pub(super) fn mapped(&mut self, key: &str, field: impl Into<String>, note: impl Into<String>) {
        self.set(key, Fate::Mapped { field: field.into(), note: note.into() });
    }

    /// Marks a key as known and without effect.
    pub(super) fn reported(&mut self, key: &str, note: impl Into<String>) {
        self.set(key, Fate::Reported { note: note.into() });
    }

    /// Marks all keys with this prefix that have no fate yet as known and without effect.
    pub(super) fn report_all(&mut self, prefix: &str, note: &str) {
        let keys: Vec<String> = self.index.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        for key in keys {
            if self.fates[self.index[&key]].is_none() {
                self.reported(&key, note);
            }
        }
    }

    fn set(&mut self, key: &str, fate: Fate) {
        if let Some(&number) = self.index.get(key) {
            self.fates[number] = Some(fate);
        }
    }

    /// The fate of every key, in the order of the file. Keys that no module took are known or
    /// ignored.
    pub(super) fn into_report(self) -> Vec<ImportedKey> {
        let fate = |key: &str| match known::note(&key.to_ascii_lowercase()) {
            Some(note) => Fate::Reported { note: note.to_owned() },
            None => Fate::Ignored,
        };
        self.entries
            .into_iter()
            .zip(self.fates)
            .map(|(Entry { key, value, .. }, known)| {
                let fate = known.unwrap_or_else(|| fate(&key));
                ImportedKey { key, value, fate }
            })
            .collect()
    }
}

fn twice(first: &Entry, second: &Entry) -> ApiError {
    invalid(
        format!(
            "{} is set twice: \"{}\" in line {} and \"{}\" in line {}",
            second.key,
            shortened(&first.value),
            first.line,
            shortened(&second.value),
            second.line
        ),
        "remove one of the two lines; upper and lower case are the same in keys",
    )
}

/// A value, shortened for messages.
pub(super) fn shortened(value: &str) -> String {
    value.chars().take(80).collect()
}
