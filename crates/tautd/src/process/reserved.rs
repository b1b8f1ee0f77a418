//! Records of processes that can be written when the file system is full.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use super::{Identity, Process};

/// Size of a record in bytes: a page, which is what a file system gives out.
const RECORD: usize = 4096;

/// The file that tells later daemons which process runs. Its place is reserved beforehand: without
/// a record the process could not be found, or not be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservedRecord(PathBuf);

impl ReservedRecord {
    /// The record in this file.
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Makes room, unless there is a record.
    pub(crate) fn reserve(&self) -> io::Result<()> {
        if self.0.exists() {
            return Ok(());
        }
        fs::write(&self.0, [b' '; RECORD])
    }

    /// Records a process. Whoever reads meanwhile finds the old or the new record: both are in one
    /// page, written by one call.
    pub(crate) fn write(&self, process: &Process) -> io::Result<()> {
        let mut text = serde_json::to_vec(&process.identity())?;
        text.resize(RECORD, b' ');
        let mut options = File::options();
        options.create(true).write(true).truncate(false).mode(0o600).open(&self.0)?.write_all_at(&text, 0)
    }

    /// Returns the recorded process, if it runs.
    pub(crate) fn adopt(&self) -> Option<Process> {
        let identity: Identity = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        Process::adopt(identity)
    }

    /// Removes the file.
    pub(crate) fn remove(&self) {
        // The file may be absent; other errors appear at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_record_replaces_another_one_in_the_room_that_was_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fabric.pid");
        let record = ReservedRecord::new(path.clone());
        record.reserve().unwrap();
        assert!(record.adopt().is_none());
        let process = Process::spawn(Command::new("sleep").arg("60"), &[]).unwrap();
        for _ in 0..2 {
            record.write(&process).unwrap();
            record.reserve().unwrap();
            assert_eq!(path.metadata().unwrap().len(), RECORD as u64);
            assert_eq!(record.adopt().unwrap().identity(), process.identity());
        }
        process.kill(std::time::Duration::from_secs(10));
        assert!(record.adopt().is_none());
        record.remove();
        assert!(!path.exists());
    }
}
