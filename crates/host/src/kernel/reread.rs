//! Files of the kernel that are read again and again, and stay open between.
//!
//! To open a file of `/proc` costs several times as much as to read it. Open files are bounded
//! ([`Room`]): where there is no room, a file is opened for each reading. An open file of a thread
//! that has ended cannot be read any more, whoever has its number then.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::{Resource, getrlimit};

/// Most files that stay open. The kernel has a page of memory for each.
const MOST: u64 = 4096;
/// Part of the files that the process may open: others need some, too.
const PART: u64 = 4;

/// Room for open files.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<AtomicUsize>);

/// A file that may be open.
#[derive(Debug, Default)]
pub(crate) struct Reread(Option<Open>);

/// An open file, which takes room until it is dropped.
#[derive(Debug)]
struct Open {
    file: File,
    room: Room,
}

impl Room {
    /// Returns the room that this process has.
    pub(crate) fn of_this_process() -> Self {
        let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self(Arc::new(AtomicUsize::new(usize::try_from((may / PART).min(MOST)).unwrap_or(0))))
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

impl Reread {
    /// Reads the file in one call, or its begin if it is longer than the buffer.
    pub(crate) fn read<'a>(
        &mut self,
        path: impl FnOnce() -> PathBuf,
        buffer: &'a mut [u8],
        room: &Room,
    ) -> Option<&'a [u8]> {
        let len = if let Some(open) = &self.0 {
            open.file.read_at(buffer, 0).ok()?
        } else {
            let mut file = File::open(path()).ok()?;
            let len = file.read(buffer).ok()?;
            self.0 = room.take().then(|| Open { file, room: room.clone() });
            len
        };
        Some(&buffer[..len])
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
        let room = Room(Arc::new(AtomicUsize::new(2)));
        let mut files: Vec<Reread> = (0..3).map(|_| Reread::default()).collect();
        let read = |files: &mut [Reread], number: u32| {
            let mut buffer = [0; 2];
            files[number as usize].read(|| path(number), &mut buffer, &room).map(<[u8]>::to_vec)
        };
        assert!((0..3).all(|number| read(&mut files, number) == Some(b"7 ".to_vec())));
        assert_eq!(files.iter().map(|file| file.0.is_some()).collect::<Vec<_>>(), [true, true, false]);
        fs::write(path(0), "9").unwrap();
        assert_eq!(read(&mut files, 0), Some(b"9".to_vec()));
        files[0] = Reread::default();
        read(&mut files, 2);
        assert!(files[2].0.is_some() && read(&mut files, 2) == Some(b"7 ".to_vec()));
    }

    #[test]
    fn an_open_file_of_a_process_that_has_ended_cannot_be_read() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let path = || PathBuf::from(format!("/proc/{}/schedstat", child.id()));
        let (room, mut buffer, mut file) = (Room::of_this_process(), [0; 99], Reread::default());
        assert!(file.read(path, &mut buffer, &room).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(file.read(PathBuf::new, &mut buffer, &room), None);
    }
}
