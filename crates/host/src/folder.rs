//! Folders of control groups: files in them are the kernel's, and go with the folder.

use std::fs;
use std::io;
use std::path::Path;

/// Writes unless it is so already.
pub(crate) fn put(path: &Path, value: &str) -> io::Result<()> {
    let before = fs::read_to_string(path).unwrap_or_default();
    if before.trim_end() == value { Ok(()) } else { fs::write(path, value) }
}

/// Removes a group that nobody is in.
#[cfg(not(test))]
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    fs::remove_dir(dir)
}

/// In a folder that plays a group the files have to go first, unless somebody is in it.
#[cfg(test)]
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    let inner = fs::read_dir(dir)?.flatten().any(|entry| entry.path().is_dir());
    if inner { fs::remove_dir(dir) } else { fs::remove_dir_all(dir) }
}
