//! Puts files into place: whole or not at all, and only if they differ.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// It is new, or has other content or permissions now.
    Written,
    /// It was as it should be.
    Unchanged,
}

/// Writes a file of these permissions, with its folders.
pub(super) fn place(path: &Path, content: &[u8], mode: u32) -> io::Result<Placed> {
    let is_there = fs::read(path).is_ok_and(|found| found == content);
    if is_there && fs::metadata(path)?.permissions().mode() & 0o7777 == mode {
        return Ok(Placed::Unchanged);
    }
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(Placed::Written)
}

/// Removes a file. Returns false if there was none.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_once_and_again_if_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("etc/deep/file");
        assert_eq!(place(&path, b"one", 0o644).unwrap(), Placed::Written);
        assert_eq!(place(&path, b"one", 0o644).unwrap(), Placed::Unchanged);
        assert_eq!(place(&path, b"one", 0o755).unwrap(), Placed::Written);
        assert_eq!(place(&path, b"two", 0o755).unwrap(), Placed::Written);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
    }

    #[test]
    fn a_folder_in_the_way_is_an_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::create_dir(&path).unwrap();
        place(&path, b"one", 0o644).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
