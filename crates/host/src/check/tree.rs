//! Small files below a root.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use taut_api::check::Knob;

use crate::list;

/// More than any file that is read here has; bounds what a wrong tree can make us allocate.
const MOST: u64 = 1 << 20;

/// The file system below a root. What cannot be read is absent: kernels differ in what they have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree<'a>(pub(super) &'a Path);

impl Tree<'_> {
    /// A file's bytes.
    pub(super) fn bytes(self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.0.join(path)).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without the white space around it.
    pub(super) fn text(self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).trim().to_owned())
    }

    /// A file that holds one number.
    pub(super) fn number<T: std::str::FromStr>(self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// How many numbers a file with a list such as `0-3,8` holds.
    pub(super) fn count(self, path: &str) -> Option<u32> {
        let text = self.text(path)?;
        // Some kernels write this instead of nothing.
        if text == "(null)" {
            return Some(0);
        }
        u32::try_from(list::parse(&text).ok()?.len()).ok()
    }

    /// Names in a folder, sorted; numbers in names count as numbers.
    pub(super) fn names(self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| {
            (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), digits(name))
        });
        names
    }

    /// A setting. In `always [madvise] never` the chosen word is the value.
    pub(super) fn knob(self, path: &str) -> Option<Knob> {
        let text = self.text(path)?;
        let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        let (value, choices) = match chosen {
            Some(chosen) => (
                chosen,
                text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect(),
            ),
            None => (text.as_str(), Vec::new()),
        };
        Some(Knob { path: path.to_owned(), value: value.to_owned(), choices })
    }

    /// A setting whose choices are words in a file beside it.
    pub(super) fn knob_with_choices(self, path: &str, choices: &str) -> Option<Knob> {
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
        Some(Knob { choices: self.text(choices).map_or_else(Vec::new, words), ..self.knob(path)? })
    }
}

/// The number that a name ends with.
fn digits(name: &str) -> u64 {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[start..].parse().unwrap_or(0)
}
