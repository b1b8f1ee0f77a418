//! Files of the kernel that are read again and again, and stay open between.
//!
//! To open a file of `/proc`, or to look it up by its path, costs several times as much as to read
//! it. Open files are bounded ([`OpenFileBudget`]): beyond it, a file is opened for each reading.
//! If the thread has ended, reading its open file fails, even if a new thread has its number. So a
//! number that is used again is never mistaken for the old thread. The metadata of an open folder
//! can still be read after its process has ended. The number of links tells of the end.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::{Resource, getrlimit};

/// Most files that stay open. The kernel has a page of memory for each.
const MAX_OPEN_FILES: u64 = 4096;
/// One file in so many that the process may open: others need some, too.
const SHARE_OF_LIMIT: u64 = 4;

/// Budget for files that stay open. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct OpenFileBudget(Arc<AtomicUsize>);

/// A file or folder that may be open.
#[derive(Debug, Default)]
pub(crate) struct CachedFile(Option<Open>);

/// An open file, which takes room until it is dropped.
#[derive(Debug)]
struct Open {
    file: File,
    room: OpenFileBudget,
}

impl OpenFileBudget {
    /// Returns the room that this process has.
    pub(crate) fn of_this_process() -> Self {
        let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self(Arc::new(AtomicUsize::new(
            usize::try_from((may / SHARE_OF_LIMIT).min(MAX_OPEN_FILES)).unwrap_or(0),
        )))
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give_back(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.room.give_back();
    }
}

impl CachedFile {
    /// Reads the file in one call, or its begin if it is longer than the buffer.
    pub(crate) fn read<'a>(
        &mut self,
        path: impl FnOnce() -> PathBuf,
        buffer: &'a mut [u8],
        room: &OpenFileBudget,
    ) -> io::Result<&'a [u8]> {
        let len = if let Some(open) = &self.0 {
            open.file.read_at(buffer, 0)?
        } else {
            let mut file = File::open(path())?;
            let len = file.read(buffer)?;
            self.0 = room.take().then(|| Open { file, room: room.clone() });
            len
        };
        Ok(&buffer[..len])
    }

    /// Returns whether the file is open.
    pub(crate) const fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Opens the file, which then stays open, unless it is open already or there is no room.
    pub(crate) fn keep_open(
        &mut self,
        path: impl FnOnce() -> PathBuf,
        room: &OpenFileBudget,
    ) -> io::Result<()> {
        if self.0.is_none() && room.take() {
            let room = room.clone();
            // The room of a file that cannot be opened is given back.
            let file = File::open(path()).inspect_err(|_| room.give_back())?;
            self.0 = Some(Open { file, room });
        }
        Ok(())
    }

    /// Returns the metadata of the file, without looking up its path. Returns nothing if it is not
    /// open.
    pub(crate) fn metadata(&self) -> Option<io::Result<Metadata>> {
        self.0.as_ref().map(|open| open.file.metadata())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn files_stay_open_while_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: u32| folder.path().join(number.to_string());
        (0..3).for_each(|number| fs::write(path(number), "7 8").unwrap());
        let room = OpenFileBudget(Arc::new(AtomicUsize::new(2)));
        let mut files: Vec<CachedFile> = (0..3).map(|_| CachedFile::default()).collect();
        let read = |files: &mut [CachedFile], number: u32| {
            let mut buffer = [0; 2];
            files[number as usize].read(|| path(number), &mut buffer, &room).ok().map(<[u8]>::to_vec)
        };
        assert!((0..3).all(|number| read(&mut files, number) == Some(b"7 ".to_vec())));
        assert_eq!(files.iter().map(|file| file.0.is_some()).collect::<Vec<_>>(), [true, true, false]);
        fs::write(path(0), "9").unwrap();
        assert_eq!(read(&mut files, 0), Some(b"9".to_vec()));
        files[0] = CachedFile::default();
        read(&mut files, 2);
        assert!(files[2].0.is_some() && read(&mut files, 2) == Some(b"7 ".to_vec()));
    }

    #[test]
    fn a_folder_that_stays_open_tells_of_its_end_and_takes_room_only_if_it_can_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, room) = (folder.path().join("inner"), OpenFileBudget(Arc::new(AtomicUsize::new(1))));
        let mut kept = CachedFile::default();
        assert!(kept.keep_open(|| inner.clone(), &room).is_err() && kept.metadata().is_none());
        fs::create_dir(&inner).unwrap();
        kept.keep_open(|| inner.clone(), &room).unwrap();
        assert!(!room.take(), "the only room is taken");
        let links = || kept.metadata().unwrap().unwrap().nlink();
        assert!(links() > 0);
        fs::remove_dir(&inner).unwrap();
        assert_eq!(links(), 0);
        let mut other = CachedFile::default();
        other.keep_open(|| folder.path().to_owned(), &room).unwrap();
        assert!(other.metadata().is_none(), "there is no room");
        drop(kept);
        assert!(room.take());
    }

    #[test]
    fn an_open_file_of_a_process_that_has_ended_cannot_be_read() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let path = || PathBuf::from(format!("/proc/{}/schedstat", child.id()));
        let (room, mut buffer, mut file) =
            (OpenFileBudget::of_this_process(), [0; 99], CachedFile::default());
        assert!(file.read(path, &mut buffer, &room).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(file.read(PathBuf::new, &mut buffer, &room).is_err());
    }
}
