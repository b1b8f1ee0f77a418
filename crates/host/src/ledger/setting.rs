//! Files of the kernel that hold a setting. They show a value in their own way; a captured tree's files hold what was written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::book::Entry;

/// The value that a content stands for: of `always [madvise] never` the chosen word.
pub(super) fn chosen(content: &str) -> &str {
    let word = content.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    word.unwrap_or_else(|| content.trim())
}

/// Writes unless it is so already.
pub(super) fn put(file: &Path, value: &str) -> io::Result<()> {
    let now = fs::read_to_string(file)?;
    if now.trim_end() == value.trim_end() || chosen(&now) == value { Ok(()) } else { write(file, value) }
}

/// Gives a file the content that it had.
pub(super) fn restore(file: &Path, entry: &Entry) -> io::Result<()> {
    let is_back = || fs::read_to_string(file).map(|content| content == entry.content);
    if is_back()? {
        return Ok(());
    }
    let by_value = write(file, &entry.value);
    if is_back()? {
        return Ok(());
    }
    by_value?;
    write(file, &entry.content)?;
    if is_back()? { Ok(()) } else { Err(io::Error::other("it does not take its former value")) }
}

/// Never creates: a setting that is not there cannot be set.
fn write(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(file)?.write_all(value.as_bytes())
}
