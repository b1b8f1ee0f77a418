//! The folder of a process's threads, `/proc/PID/task`: whether the process still exists, and how
//! many threads it has.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::kernel::cached_file::{CachedFile, OpenFileBudget};

/// Links of a folder of threads without a thread. Each thread is a folder, which has a link to it.
const LINKS_OF_NONE: u64 = 2;

/// The folder of a process's threads.
#[derive(Debug, Default)]
pub(super) struct TaskFolder {
    /// Its inode; 0 before the first look. The kernel uses numbers of processes again, but with
    /// another inode.
    inode: u64,
    /// Number of threads, if the kernel tells.
    count: Option<usize>,
    /// The folder itself, which may be open.
    file: CachedFile,
}

impl TaskFolder {
    /// Looks at the folder `task` of a process, whose own folder is `process`. Returns its inode.
    /// Fails if there is no such process any more.
    pub(super) fn look(&mut self, process: &Path) -> io::Result<u64> {
        let open = self.file.metadata().and_then(Result::ok);
        // An open folder outlives its process. Then it has no thread in `/proc`, and no link at all
        // in other file systems. Another process may have the number.
        let open = open.filter(|open| open.nlink() > 0 && open.nlink() != LINKS_OF_NONE);
        let folder = if let Some(open) = open {
            open
        } else {
            self.close();
            fs::metadata(process.join("task"))?
        };
        self.inode = folder.ino();
        // Some file systems of captured hosts count no links.
        self.count = folder.nlink().checked_sub(LINKS_OF_NONE).and_then(|count| count.try_into().ok());
        Ok(self.inode)
    }

    /// Takes back the last look: the next one finds the inode before it, and may ask again whether
    /// the process is the same.
    pub(super) fn set_inode_back(&mut self, before: u64) {
        self.inode = before;
    }

    /// Opens the folder if there is room, so that later looks need not look up its path.
    pub(super) fn keep_open(&mut self, process: &Path, files: &OpenFileBudget) {
        if self.file.is_open() || self.file.keep_open(|| process.join("task"), files).is_err() {
            return;
        }
        let opened = self.file.metadata().and_then(Result::ok);
        // Another process may have got the number since the last look.
        if opened.is_some_and(|opened| opened.ino() != self.inode) {
            self.close();
        }
    }

    /// Closes the folder.
    pub(super) fn close(&mut self) {
        self.file = CachedFile::default();
    }

    /// Returns its inode at the last look; 0 before the first one.
    pub(super) const fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the number of threads at the last look, if the kernel tells.
    pub(super) const fn count(&self) -> Option<usize> {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_open_folder_tells_of_the_threads_of_its_process_and_of_its_end() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Path::new("/proc").join(child.id().to_string());
        let (mut folder, files) = (TaskFolder::default(), OpenFileBudget::of_this_process());
        let inode = folder.look(&process).unwrap();
        folder.keep_open(&process, &files);
        assert!(folder.file.is_open());
        assert_eq!((folder.look(&process).unwrap(), folder.count()), (inode, Some(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(folder.look(&process).is_err());
        assert!(!folder.file.is_open(), "nothing is left of it");
    }
}
