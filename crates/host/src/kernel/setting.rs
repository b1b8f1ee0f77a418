//! Files of the kernel that hold one setting.
//!
//! The kernel may show a value in another form than was written. A file of a captured tree holds
//! exactly what was written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Returns the word that the kernel marks as chosen: `madvise` of `always [madvise] never`.
pub(crate) fn marked(content: &str) -> Option<&str> {
    content.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Returns the value that a content stands for: its chosen word, or the content without white
/// space.
pub(crate) fn chosen(content: &str) -> &str {
    marked(content).unwrap_or_else(|| content.trim())
}

/// Writes a value unless the file has it already.
pub(crate) fn put(file: &Path, value: &str) -> io::Result<()> {
    let now = fs::read_to_string(file)?;
    if now.trim_end() == value.trim_end() || chosen(&now) == value { Ok(()) } else { write(file, value) }
}

/// Restores a file's content, by writing `value` first and then `content` itself.
///
/// # Errors
/// Returns an error if the file reads back differently after both.
pub(crate) fn restore(file: &Path, value: &str, content: &str) -> io::Result<()> {
    let is_back = || fs::read_to_string(file).map(|now| now == content);
    if is_back()? {
        return Ok(());
    }
    let by_value = write(file, value);
    if is_back()? {
        return Ok(());
    }
    by_value?;
    write(file, content)?;
    if is_back()? { Ok(()) } else { Err(io::Error::other("it does not take its former value")) }
}

/// Writes without creating the file: a missing file means that the kernel has no such setting.
fn write(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(file)?.write_all(value.as_bytes())
}
