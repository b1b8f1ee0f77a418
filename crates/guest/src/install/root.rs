//! The root folder of the system that an installation is for.
//!
//! In the mounted image of a VM, an absolute symbolic link means a place in the image. The kernel
//! resolves all paths below the image's root in that way, so that no link leads out into the host.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

/// Attempts to open a path while folders above it are renamed.
const ATTEMPTS: u32 = 100;

/// An open root folder. Paths in it are relative.
#[derive(Debug)]
pub(super) struct Root {
    folder: OwnedFd,
    path: PathBuf,
    /// True if this is the root of the system that runs.
    runs: bool,
}

/// A folder below a root, and the name of a file in it.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) folder: OwnedFd,
    pub(super) name: &'a OsStr,
}

impl Root {
    /// Opens a folder, which must be the root of a system.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = path.canonicalize()?;
        let runs = path == Path::new("/");
        let root = Self { folder: openat(CWD, &path, flags, Mode::empty())?, path, runs };
        // Other programs, such as groupadd, go by this path without regard to the root.
        match statat(&root.folder, "etc", AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(root),
            Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "its `etc` is no folder")),
            Err(Errno::NOENT) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no folder `etc`")),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Path of the root, for programs that get it as an argument.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether this is the root of the system that runs.
    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    /// Tells whether a path leads to something.
    pub(super) fn has(&self, path: &str) -> bool {
        self.open_at(path, OFlags::PATH).is_ok()
    }

    /// Reads a file.
    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::from(self.open_at(path, OFlags::RDONLY)?).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Tells whether a path is a regular file itself, not a symbolic link to one.
    pub(super) fn has_file(&self, path: &str) -> bool {
        self.entry(path).is_ok_and(|entry| entry.is_file())
    }

    /// Opens the folder of a file.
    pub(super) fn entry<'a>(&self, path: &'a str) -> io::Result<Entry<'a>> {
        let (folder, name) = split(path)?;
        Ok(Entry { folder: self.open_at(folder, OFlags::PATH | OFlags::DIRECTORY)?, name })
    }

    /// Opens the folder of a file. Makes it, and those above it, if they do not exist.
    pub(super) fn made_entry<'a>(&self, path: &'a str) -> io::Result<Entry<'a>> {
        let (folder, name) = split(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut folders: Vec<&Path> = Path::new(folder).ancestors().collect();
        folders.reverse();
        let mut parent = self.folder.try_clone()?;
        for folder in folders.iter().filter_map(|folder| folder.to_str()).filter(|folder| !folder.is_empty())
        {
            parent = match self.open_at(folder, flags) {
                Err(Errno::NOENT) => {
                    mkdirat(&parent, split(folder)?.1, Mode::from_raw_mode(0o755))?;
                    self.open_at(folder, flags)?
                }
                opened => opened?,
            };
        }
        Ok(Entry { folder: parent, name })
    }

    fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let path = if path.is_empty() { "." } else { path };
        if self.runs {
            // Kernels before 5.6 have no `openat2`, and this root needs none.
            return openat(&self.folder, path, flags, Mode::empty());
        }
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            opened = openat2(&self.folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        opened
    }
}

impl Entry<'_> {
    /// Tells whether the entry is a regular file itself.
    pub(super) fn is_file(&self) -> bool {
        let stat = statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// Removes the entry. Returns false if there was none.
    pub(super) fn remove(&self) -> io::Result<bool> {
        match unlinkat(&self.folder, self.name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Splits a relative path into its folder and the last name.
fn split(path: &str) -> io::Result<(&str, &OsStr)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() || name == ".." || path.starts_with('/') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{path}` names no file below a root"),
        ));
    }
    Ok((folder, name.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_an_image_lead_to_places_in_the_image() {
        let folder = tempfile::tempdir().unwrap();
        let (image, host) = (folder.path().join("image"), folder.path().join("host"));
        fs::create_dir_all(image.join("etc")).unwrap();
        fs::create_dir_all(image.join("usr/lib")).unwrap();
        fs::create_dir(&host).unwrap();
        fs::write(host.join("file"), "of the host").unwrap();
        // Absolute as in many images, upwards, and to a folder that only the host has.
        symlink("/usr/lib", image.join("lib")).unwrap();
        symlink("../../../../../../usr", image.join("up")).unwrap();
        symlink(&host, image.join("out")).unwrap();
        let root = Root::open(&image).unwrap();
        let entry = root.made_entry("lib/new/file").unwrap();
        assert!(image.join("usr/lib/new").is_dir());
        assert!(!entry.is_file() && !entry.remove().unwrap());
        fs::write(image.join("usr/lib/new/file"), "of the image").unwrap();
        assert!(entry.is_file());
        assert_eq!(root.read("up/lib/new/file").unwrap(), b"of the image");
        assert!(!root.has("out/file"));
        root.made_entry("out/file").unwrap_err();
        assert!(root.has_file("lib/new/file") && !root.has_file("lib/new"));
    }

    #[test]
    fn a_folder_without_etc_is_no_root() {
        let folder = tempfile::tempdir().unwrap();
        let why = |path: &Path| Root::open(path).unwrap_err().to_string();
        assert!(why(folder.path()).contains("it has no folder `etc`"));
        symlink("/etc", folder.path().join("etc")).unwrap();
        assert!(why(folder.path()).contains("is no folder"));
        Root::open(&folder.path().join("none")).unwrap_err();
        assert!(Root::open(Path::new("/")).unwrap().runs());
    }

    #[test]
    fn names_outside_the_root_are_refused() {
        for wrong in ["/etc/file", "etc/", "..", ""] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }
}
