//! Files that a stranger's document names: found first, opened only if their type fits.
//!
//! Magic links, such as those below `/proc/self/fd`, are not followed: they lead to descriptors of
//! this process, among them the memory of guests.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fcntl_setfl, fstat, open, openat2};

/// A file that was found and is not open for reading or writing yet.
#[derive(Debug)]
pub struct NamedFile(OwnedFd);

impl NamedFile {
    /// Finds the file or folder at this path.
    ///
    /// # Errors
    /// The kernel's; `ELOOP` for a magic link.
    pub fn find(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?))
    }

    /// Finds a file by its name below a folder. No link on the way is followed.
    ///
    /// # Errors
    /// The kernel's; `EXDEV` for a name that leads out of the folder.
    pub fn find_below(folder: &Path, name: &str) -> io::Result<Self> {
        let folder = Self::find(folder)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self(openat2(&folder.0, name, flags, Mode::empty(), resolve)?))
    }

    /// Returns the type of the file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kind(&self) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(fstat(&self.0)?.st_mode))
    }

    /// Opens the file if its type fits, whatever its path leads to by now. A file of another type
    /// is not opened, because that may block (a FIFO) or have an effect (a watchdog device).
    ///
    /// # Errors
    /// The kernel's, and [`io::ErrorKind::InvalidInput`] with the type if it does not fit.
    pub fn open(&self, access: OFlags, fits: impl Fn(FileType) -> bool) -> io::Result<OwnedFd> {
        let kind = self.kind()?;
        if !fits(kind) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is a {kind:?}")));
        }
        // The thread may have a table of descriptors of its own.
        let found = format!("/proc/thread-self/fd/{}", self.0.as_raw_fd());
        let file = open(found, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        // The flag was for the call alone: whoever gets the file gets its flags, too.
        fcntl_setfl(&file, access)?;
        Ok(file)
    }
}

impl AsFd for NamedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create, mknodat};

    use super::*;

    fn is_file(kind: FileType) -> bool {
        kind == FileType::RegularFile
    }

    #[test]
    fn descriptors_of_this_process_are_no_files_of_documents() {
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        let number = memory.as_raw_fd();
        let own = std::process::id();
        for path in [format!("/proc/self/fd/{number}"), format!("/proc/{own}/fd/{number}")] {
            assert!(std::fs::File::open(&path).is_ok(), "{path}");
            assert!(NamedFile::find(Path::new(&path)).is_err(), "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), &link).unwrap();
        assert!(NamedFile::find(&link).is_err());
        let root = format!("/proc/{own}/root/{}", dir.path().display());
        assert!(NamedFile::find_below(Path::new(&root), "link").is_err());
    }

    #[test]
    fn only_a_file_of_a_type_that_fits_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (file, fifo) = (dir.path().join("file"), dir.path().join("fifo"));
        std::fs::write(&file, "x").unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(NamedFile::find(&file).unwrap().open(OFlags::RDWR, is_file).is_ok());
        assert!(NamedFile::find_below(dir.path(), "file").unwrap().open(OFlags::RDONLY, is_file).is_ok());
        for other in [fifo.as_path(), dir.path(), Path::new("/dev/null")] {
            let error = NamedFile::find(other).unwrap().open(OFlags::RDONLY, is_file).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        assert!(NamedFile::find(&dir.path().join("link")).is_ok());
        for name in ["link", "../x", "/etc/passwd"] {
            assert!(NamedFile::find_below(dir.path(), name).is_err(), "{name}");
        }
    }
}
