//! Puts files into place: whole or not at all, and only if they differ.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use super::root::{Entry, Root};

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// The file is new, or has other content, permissions or another owner now.
    Written,
    /// The file was as it should be.
    Unchanged,
}

/// User and group that own what is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Owner {
    pub(super) const ROOT: Self = Self { user: 0, group: 0 };
}

/// Writes a file of these permissions and this owner, with its folders. A symbolic link in its
/// place is replaced.
pub(super) fn place(root: &Root, path: &str, content: &[u8], mode: u32, owner: Owner) -> io::Result<Placed> {
    let entry = root.made_entry(path)?;
    if is_there(&entry, content, mode, owner).unwrap_or(false) {
        return Ok(Placed::Unchanged);
    }
    let mut name = OsString::from(".");
    name.push(entry.name);
    name.push(".taut-new");
    let beside = Entry { folder: entry.folder.try_clone()?, name: &name };
    // Of an installation that was interrupted.
    beside.remove()?;
    let written = write(&beside, content, mode, owner)
        .and_then(|()| Ok(renameat(&beside.folder, beside.name, &entry.folder, entry.name)?));
    if written.is_err() {
        let _ = unlinkat(&beside.folder, beside.name, AtFlags::empty());
    }
    written.map(|()| Placed::Written)
}

/// Tells whether a file is there as it should be, and not as a symbolic link.
fn is_there(entry: &Entry<'_>, content: &[u8], mode: u32, owner: Owner) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(&entry.folder, entry.name, flags, Mode::empty())?);
    let found = file.metadata()?;
    let is_same = found.is_file()
        && found.mode() & 0o7777 == mode
        && (found.uid(), found.gid()) == (owner.user, owner.group)
        && found.len() == content.len() as u64;
    if !is_same {
        return Ok(false);
    }
    let mut present = Vec::with_capacity(content.len());
    file.read_to_end(&mut present)?;
    Ok(present == content)
}

fn write(entry: &Entry<'_>, content: &[u8], mode: u32, owner: Owner) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&entry.folder, entry.name, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(content)?;
    // The owner first: a change of it takes some permissions away.
    fchown(&file, Some(owner.user), Some(owner.group))?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// The owner of what this test makes.
    fn own() -> Owner {
        Owner { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
    }

    fn root() -> (tempfile::TempDir, Root, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = folder.path().join("etc/deep/file");
        (folder, root, path)
    }

    fn put(root: &Root, content: &[u8], mode: u32) -> io::Result<Placed> {
        place(root, "etc/deep/file", content, mode, own())
    }

    #[test]
    fn a_file_is_written_once_and_again_if_it_differs() {
        let (_folder, root, path) = root();
        assert_eq!(put(&root, b"one", 0o644).unwrap(), Placed::Written);
        assert_eq!(put(&root, b"one", 0o644).unwrap(), Placed::Unchanged);
        assert_eq!(put(&root, b"one", 0o755).unwrap(), Placed::Written);
        assert_eq!(put(&root, b"two", 0o755).unwrap(), Placed::Written);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
        let entry = root.entry("etc/deep/file").unwrap();
        assert!(entry.remove().unwrap());
        assert!(!entry.remove().unwrap());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_to_the_same_content_is_replaced_by_the_file() {
        let (folder, root, path) = root();
        put(&root, b"one", 0o644).unwrap();
        let other = folder.path().join("etc/other");
        fs::rename(&path, &other).unwrap();
        symlink("../other", &path).unwrap();
        assert_eq!(put(&root, b"one", 0o644).unwrap(), Placed::Written);
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&other).unwrap(), b"one");
    }

    #[test]
    fn a_file_of_another_owner_is_not_as_it_should_be() {
        let (_folder, root, path) = root();
        put(&root, b"one", 0o644).unwrap();
        let entry = root.entry("etc/deep/file").unwrap();
        assert!(is_there(&entry, b"one", 0o644, own()).unwrap());
        for other in [Owner { user: own().user + 1, ..own() }, Owner { group: own().group + 1, ..own() }] {
            assert!(!is_there(&entry, b"one", 0o644, other).unwrap(), "{other:?}");
        }
        // Only root may give files away.
        if own() == Owner::ROOT {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            assert_eq!(put(&root, b"one", 0o644).unwrap(), Placed::Written);
            assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
        }
    }

    #[test]
    fn a_folder_in_the_way_is_an_error_and_leaves_nothing() {
        let (_folder, root, path) = root();
        fs::create_dir_all(&path).unwrap();
        put(&root, b"one", 0o644).unwrap_err();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
