//! Small files below a root path, read with a size limit.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use taut_api::check::Knob;

use super::{list, setting};

/// Maximum number of bytes read from a file. A corrupt tree cannot cause a larger allocation.
const LIMIT: u64 = 1 << 20;

/// The file system below a root. An unreadable file counts as absent, since kernels differ in the
/// files that they have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree<'a>(pub(crate) &'a Path);

impl Tree<'_> {
    /// Reads a file's bytes.
    pub(crate) fn bytes(self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.0.join(path)).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads a file's text without the white space around it.
    pub(crate) fn text(self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).trim().to_owned())
    }

    /// Reads a file that holds one number. Some kernels write -1 for "does not apply".
    pub(crate) fn number<T: std::str::FromStr>(self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Counts the numbers in a file with a list such as `0-3,8`.
    pub(crate) fn count(self, path: &str) -> Option<u32> {
        let text = self.text(path)?;
        // Some kernels write this for an empty list.
        if text == "(null)" {
            return Some(0);
        }
        u32::try_from(list::parse(&text).ok()?.len()).ok()
    }

    /// Returns the names in a folder, sorted by text and then by the number at the end.
    pub(crate) fn names(self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| {
            (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), digits(name))
        });
        names
    }

    /// Reads a setting with its choices. The value of `always [madvise] never` is the marked word.
    pub(crate) fn knob(self, path: &str) -> Option<Knob> {
        let text = self.text(path)?;
        let (value, choices) = match setting::marked(&text) {
            Some(chosen) => (
                chosen,
                text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect(),
            ),
            None => (text.as_str(), Vec::new()),
        };
        Some(Knob { path: path.to_owned(), value: value.to_owned(), choices })
    }

    /// Reads a setting whose choices are words in another file.
    pub(crate) fn knob_with_choices(self, path: &str, choices: &str) -> Option<Knob> {
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
        Some(Knob { choices: self.text(choices).map_or_else(Vec::new, words), ..self.knob(path)? })
    }
}

/// Returns the number at the end of a name, or 0.
fn digits(name: &str) -> u64 {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[start..].parse().unwrap_or(0)
}
