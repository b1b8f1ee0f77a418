//! Copies of kernels and initrds in memory, where nobody can change them, shared by VMs.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use rustix::thread::Pid;
use taut_api::Bytes;

/// Maximum size of a kernel or an initrd, in bytes.
const MOST_COPIED: u64 = 2 << 30;
/// Size of the pieces that are copied, in bytes. Each counts as progress.
pub(super) const PIECE: u64 = 16 << 20;

/// The copies in use. They belong to the daemon's own table of descriptors; threads with another
/// one open them again.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies(Arc<Mutex<BTreeMap<FileState, Shared>>>);

/// A copy and the number of its users.
#[derive(Debug)]
struct Shared {
    memory: OwnedFd,
    users: usize,
}

/// One use of a copy, for as long as a VM runs. Only threads with the daemon's table drop it.
#[derive(Debug)]
pub(super) struct InUse {
    copies: Copies,
    state: FileState,
}

/// Identity and state of a file. A copy serves another VM as long as neither has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the last change in seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileState {
    /// Reads the state of an open file.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        let (device, inode, size) = (found.dev(), found.ino(), found.size());
        Ok(Self { device, inode, size, changed: (found.ctime(), found.ctime_nsec()) })
    }

    /// Returns the size of the file.
    pub(super) const fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// Refuses a file that is too large to be copied.
    pub(super) fn check_size(&self) -> io::Result<()> {
        let size = self.size;
        if size <= MOST_COPIED {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has {size} bytes, more than the {MOST_COPIED} that are copied to memory"),
        ))
    }
}

impl Copies {
    /// Opens the copy of a file in this state for the calling thread, if there is one.
    pub(super) fn find(&self, state: FileState) -> Option<OwnedFd> {
        let copies = self.lock();
        let number = copies.get(&state)?.memory.as_raw_fd();
        // The main thread has the daemon's table.
        let path = format!("/proc/{}/fd/{number}", std::process::id());
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    /// Begins a use of the copy of a file in this state. If there is none, the one that `thread`
    /// has open at `number` becomes it.
    pub(super) fn share(&self, state: FileState, thread: Pid, number: RawFd) -> io::Result<InUse> {
        let mut copies = self.lock();
        if let Some(shared) = copies.get_mut(&state) {
            shared.users += 1;
        } else {
            let path = format!("/proc/self/task/{}/fd/{number}", thread.as_raw_nonzero());
            let memory = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            copies.insert(state, Shared { memory, users: 1 });
        }
        Ok(InUse { copies: self.clone(), state })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileState, Shared>> {
        self.0.lock().expect("no holder of the copies panics")
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut copies = self.copies.lock();
        if let Some(shared) = copies.get_mut(&self.state) {
            shared.users -= 1;
            if shared.users == 0 {
                copies.remove(&self.state);
            }
        }
    }
}

/// Copies a file to memory, where nobody can change it, up to the size in `state`. Calls `progress`
/// with the bytes of each piece; an error of it ends the copy.
pub(super) fn sealed_copy(
    file: &File,
    state: FileState,
    mut progress: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    state.check_size()?;
    let mut copy = File::from(memfd_create("taut-boot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    let mut left = state.size;
    while left > 0 {
        let copied = io::copy(&mut file.take(PIECE.min(left)), &mut copy)?;
        progress(copied)?;
        if copied == 0 {
            break;
        }
        left -= copied;
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&copy, seals)?;
    // The process opens it again, under a user of its own.
    copy.set_permissions(Permissions::from_mode(0o444))?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use rustix::thread::gettid;

    use super::*;

    fn read(copy: &OwnedFd) -> String {
        std::fs::read_to_string(format!("/proc/thread-self/fd/{}", copy.as_raw_fd())).unwrap()
    }

    #[test]
    fn a_copy_is_shared_until_its_file_changes_or_nobody_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmlinuz");
        let copies = Copies::default();
        let copy = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let file = File::open(&path).unwrap();
            let state = FileState::of(&file).unwrap();
            (state, sealed_copy(&file, state, |_| Ok(())).unwrap())
        };
        let (first, memory) = copy("one");
        assert!(copies.find(first).is_none());
        let uses = [(); 2].map(|()| copies.share(first, gettid(), memory.as_raw_fd()).unwrap());
        drop(memory);
        assert_eq!(read(&copies.find(first).unwrap()), "one");
        let (second, memory) = copy("three");
        assert!(copies.find(second).is_none(), "the file has changed");
        let other = copies.share(second, gettid(), memory.as_raw_fd()).unwrap();
        assert!(rustix::io::write(&memory, b"x").is_err(), "nobody can change it");
        assert_eq!(copies.lock().len(), 2);
        drop(other);
        let [one, another] = uses;
        drop(one);
        assert_eq!(read(&copies.find(first).unwrap()), "one");
        drop(another);
        assert!(copies.lock().is_empty());
    }

    #[test]
    fn each_piece_of_a_copy_is_progress_and_a_copy_can_be_given_up() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PIECE + 1).unwrap();
        let state = FileState::of(&file).unwrap();
        let mut pieces = 0;
        let count = |_| {
            pieces += 1;
            Ok(())
        };
        sealed_copy(&file, state, count).unwrap();
        assert!(pieces >= 3, "{pieces}");
        let file = tempfile::tempfile().unwrap();
        file.set_len(1).unwrap();
        let given_up = |_| Err(io::Error::other("given up"));
        assert!(sealed_copy(&file, state, given_up).is_err());
        let large = FileState { size: MOST_COPIED + 1, ..state };
        let error = sealed_copy(&file, large, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("2147483649 bytes"), "{error}");
    }
}
