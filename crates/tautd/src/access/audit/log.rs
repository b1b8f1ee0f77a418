//! One chain of records in files that rotate: `NAME`, then `NAME.1` to `NAME.4`.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

use super::record::{Draft, MOST_BYTES, NO_HASH, Record, digest};

/// Size from which on a file is rotated, in bytes.
const ROTATED_AT: u64 = 8 << 20;
/// Number of rotated files that are kept.
const KEPT: u32 = 4;
/// End of a file that is read to find its newest records. Many more fit in than are ever written at
/// once.
const TAIL: u64 = 4 << 20;
/// Space that is reserved at a time, in bytes.
const RESERVED: u64 = 32 << 10;

/// The files of one chain, for reading. The lock keeps them from being rotated meanwhile.
#[derive(Debug, Clone)]
pub(super) struct Files {
    path: PathBuf,
    rotation: Arc<RwLock<()>>,
}

/// A chain that records are added to.
#[derive(Debug)]
pub(super) struct Log {
    files: Files,
    file: File,
    /// Length of the file: the end of its newest record.
    end: u64,
    /// End of the space that is reserved for the file.
    reserved: u64,
    /// Highest number of a record.
    newest: u64,
    /// Hash of the newest record.
    hash: String,
    /// Requests without outcome. Space for their outcomes is always reserved.
    open: u64,
    rotated_at: u64,
}

impl Files {
    /// Opens all files that exist, the oldest first.
    pub(super) fn open(&self) -> io::Result<Vec<(PathBuf, File)>> {
        let _no_rotation = self.rotation.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for number in (0..=KEPT).rev() {
            let path = self.numbered(number);
            match File::open(&path) {
                Ok(file) => found.push((path, file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns the path of a file: 0 is the one that is written.
    fn numbered(&self, number: u32) -> PathBuf {
        match number {
            0 => self.path.clone(),
            number => {
                let mut path = self.path.clone().into_os_string();
                path.push(format!(".{number}"));
                path.into()
            }
        }
    }
}

impl Log {
    /// Opens a chain, and begins one if there is none. A record that a crash cut off is removed:
    /// nothing was done or answered because of it.
    pub(super) fn open(folder: &Path, name: &str) -> io::Result<Self> {
        let files = Files { path: folder.join(name), rotation: Arc::default() };
        let file = create(&files.path)?;
        let length = file.metadata()?.len();
        let tail = read_tail(&file, length)?;
        let whole = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let cut_off = (tail.len() - whole) as u64;
        if cut_off > 0 {
            tracing::warn!(bytes = cut_off, path = %files.path.display(), "an incomplete record is removed");
            file.set_len(length - cut_off)?;
        }
        let mut log = Self {
            end: length - cut_off,
            reserved: 0,
            newest: 0,
            hash: NO_HASH.to_owned(),
            open: 0,
            rotated_at: ROTATED_AT,
            files,
            file,
        };
        // Numbers grow, but an outcome has that of its request, which may be in the file before.
        if let Ok(before) = File::open(log.files.numbered(1)) {
            let length = before.metadata()?.len();
            log.recall(&read_tail(&before, length)?);
        }
        log.recall(&tail[..whole]);
        Ok(log)
    }

    /// Takes number and hash of the newest record from the end of a file.
    fn recall(&mut self, tail: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Number {
            seq: u64,
        }
        for line in tail.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            if let Ok(Number { seq }) = serde_json::from_slice(line) {
                self.newest = self.newest.max(seq);
                self.hash = digest(line);
            }
        }
    }

    /// Returns the files, for reading.
    pub(super) fn files(&self) -> Files {
        self.files.clone()
    }

    /// Makes sure that `requests` more requests and the outcomes of all open ones find space.
    pub(super) fn reserve(&mut self, requests: u64) -> io::Result<()> {
        let needed = self.end + (self.open + 2 * requests) * MOST_BYTES;
        if needed <= self.reserved {
            return Ok(());
        }
        let wanted = needed.next_multiple_of(RESERVED);
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.end, wanted - self.end) {
            Ok(()) => self.reserved = wanted,
            // A file system that cannot reserve space still has some, mostly.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Writes records and waits until they are on disk: all, or none with an error. Returns the
    /// number of each.
    pub(super) fn append(&mut self, drafts: Vec<Draft>) -> io::Result<Vec<u64>> {
        let (mut newest, mut hash) = (self.newest, self.hash.clone());
        let mut open = self.open;
        let (mut text, mut numbers) = (Vec::new(), Vec::with_capacity(drafts.len()));
        for draft in drafts {
            match &draft {
                Draft::Request(_) => open += 1,
                Draft::Outcome(..) => open = open.saturating_sub(1),
                Draft::Refused(..) => {}
            }
            let record = Record::new(draft, newest + 1, std::mem::take(&mut hash));
            newest = newest.max(record.seq);
            let begin = text.len();
            serde_json::to_writer(&mut text, &record)?;
            hash = digest(&text[begin..]);
            text.push(b'\n');
            numbers.push(record.seq);
        }
        if let Err(error) = self.file.write_all_at(&text, self.end).and_then(|()| self.file.sync_data()) {
            // What was written of them must not stay. This also gives the reserved space back.
            let _ = self.file.set_len(self.end);
            self.reserved = 0;
            return Err(error);
        }
        self.end += text.len() as u64;
        (self.newest, self.hash, self.open) = (newest, hash, open);
        if self.end >= self.rotated_at
            && let Err(error) = self.rotate()
        {
            tracing::warn!(%error, path = %self.files.path.display(), "the audit file cannot be rotated and grows");
        }
        Ok(numbers)
    }

    /// Begins a new file, and deletes the oldest one. If this fails, the present file goes on.
    fn rotate(&mut self) -> io::Result<()> {
        let next = self.files.path.with_extension("new");
        // A killed daemon may have left it.
        let _ = fs::remove_file(&next);
        let file = create(&next)?;
        // Gives reserved space back.
        self.file.set_len(self.end)?;
        self.reserved = 0;
        let no_reader = self.files.rotation.write().unwrap_or_else(PoisonError::into_inner);
        for number in (0..KEPT).rev() {
            match fs::rename(self.files.numbered(number), self.files.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&next, &self.files.path)?;
        drop(no_reader);
        (self.file, self.end) = (file, 0);
        self.files.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

/// Opens or creates a file for its owner alone.
fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Reads the end of a file.
fn read_tail(mut file: &File, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(tail)
}

#[cfg(test)]
impl Log {
    /// Rotates files from this size on.
    pub(super) fn rotated_at(mut self, size: u64) -> Self {
        self.rotated_at = size;
        self
    }

    /// Writes to another file.
    pub(super) fn replace_file(&mut self, file: File) {
        self.file = file;
    }
}
