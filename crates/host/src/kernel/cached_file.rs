//! Files of the kernel that are read again and again, and stay open between.
//!
//! To open a file of `/proc` costs several times as much as to read it. Open files are bounded
//! ([`OpenFileBudget`]): beyond it, a file is opened for each reading. If the thread has ended,
//! reading its open file fails, even if a new thread has its number. So a number that is used again
//! is never mistaken for the old thread.

use std::fs::File;
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

/// A file that may be open.
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
}

impl Drop for Open {
    fn drop(&mut self) {
        self.room.0.fetch_add(1, Relaxed);
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
}

#[cfg(test)]
mod tests {
    use std::fs;

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
