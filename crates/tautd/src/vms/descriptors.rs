//! Opens what a VM's process inherits, because it may open almost nothing itself.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::{FileType, MemfdFlags, OFlags, SealFlags, fcntl_add_seals, memfd_create};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_vm::launch::Source;
use taut_vm::named_file::NamedFile;

use crate::access::rights::Rights;
use crate::external::connect_now;

/// Folder of files without a name that take the discarded writes to disks, as of QEMU's own.
pub(super) const OVERLAYS: &str = "/var/tmp";
/// Maximum size of a kernel or an initrd, in bytes.
const MOST_COPIED: u64 = 2 << 30;

/// Copies of files in memory, each kept as long as a VM uses it.
#[derive(Debug, Default)]
pub(super) struct Copies(BTreeMap<FileState, Weak<OwnedFd>>);

/// Identity and state of a file. A copy serves another VM as long as neither has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the last change in seconds and nanoseconds.
    changed: (i64, i64),
}

/// A descriptor for a VM's process.
#[derive(Debug)]
pub(super) enum Opened {
    /// The process alone has it.
    Own(OwnedFd),
    /// Several processes may have it.
    Shared(Arc<OwnedFd>),
}

impl Opened {
    /// Returns the descriptor if several processes may have it.
    pub(super) fn shared(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(fd) => Some(fd.clone()),
        }
    }
}

impl std::os::fd::AsFd for Opened {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Shared(fd) => fd.as_fd(),
        }
    }
}

/// Opens each source, in their order. `images` are the images of the disk's chain.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with the path and the kernel's reason.
pub(super) fn open_all(
    sources: &[Source],
    owner: &Rights,
    images: Vec<OwnedFd>,
    copies: &mut Copies,
) -> Result<Vec<Opened>, ApiError> {
    let mut images: Vec<_> = images.into_iter().map(Some).collect();
    sources.iter().map(|source| open_one(source, owner, &mut images, copies)).collect()
}

fn open_one(
    source: &Source,
    owner: &Rights,
    images: &mut [Option<OwnedFd>],
    copies: &mut Copies,
) -> Result<Opened, ApiError> {
    let failed = |what: &str, hint: &str| {
        let (what, hint) = (what.to_owned(), hint.to_owned());
        move |error: io::Error| ApiError::new(ErrorKind::Unavailable, what, hint).because(&error)
    };
    match source {
        Source::Listener(path) => {
            let what = format!("the socket {} cannot be made", path.display());
            let listener = UnixListener::bind(path);
            Ok(Opened::Own(
                listener.map_err(failed(&what, "see whether the run directory exists and has room"))?.into(),
            ))
        }
        Source::Connection(path) => {
            let what = format!("the fabric does not answer at {}", path.display());
            Ok(Opened::Own(connect_now(path).map_err(failed(&what, "start the VM again"))?))
        }
        Source::Image(level) => {
            let image = images.get_mut(*level).and_then(Option::take);
            let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no image {level}"));
            let image = image.ok_or_else(missing);
            Ok(Opened::Own(image.map_err(failed("its disk has too few images", "report this fault"))?))
        }
        Source::Copy(path) => {
            let what = format!("{} cannot be read", path.display());
            let copy =
                copies.of(owner, path).map_err(failed(&what, "check the path in the VM's description"))?;
            Ok(Opened::Shared(copy))
        }
        Source::Overlay(size) => {
            let what = format!("no file can be made in {OVERLAYS} for writes that are discarded");
            let hint = "make room there, or write to the disk itself (snapshot = false)";
            Ok(Opened::Own(overlay(*size).map_err(failed(&what, hint))?))
        }
    }
}

impl Copies {
    /// Returns a sealed copy of a file.
    fn of(&mut self, owner: &Rights, path: &Path) -> io::Result<Arc<OwnedFd>> {
        self.0.retain(|_, copy| copy.strong_count() > 0);
        let name = path.to_owned();
        let open = move || NamedFile::find(&name)?.open(OFlags::RDONLY, |kind| kind == FileType::RegularFile);
        let file = File::from(owner.open(open)?);
        let found = file.metadata()?;
        let (device, inode, size) = (found.dev(), found.ino(), found.size());
        let state = FileState { device, inode, size, changed: (found.ctime(), found.ctime_nsec()) };
        if let Some(copy) = self.0.get(&state).and_then(Weak::upgrade) {
            return Ok(copy);
        }
        if size > MOST_COPIED {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it has {size} bytes, more than the {MOST_COPIED} that are copied to memory"),
            ));
        }
        let copy = Arc::new(sealed_copy(file)?);
        self.0.insert(state, Arc::downgrade(&copy));
        Ok(copy)
    }
}

/// Copies a file to memory, where nobody can change it.
fn sealed_copy(file: File) -> io::Result<OwnedFd> {
    let mut copy = File::from(memfd_create("taut-boot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    io::copy(&mut io::Read::take(file, MOST_COPIED), &mut copy)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&copy, seals)?;
    // The process opens it again, under a user of its own.
    copy.set_permissions(Permissions::from_mode(0o444))?;
    Ok(copy.into())
}

/// Makes a file without a name, with an empty qcow2 image of this virtual size.
fn overlay(virtual_size: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let mut file = File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(OVERLAYS)?;
    let image = taut_inspect::overlay::empty_qcow2(virtual_size).map_err(io::Error::other)?;
    io::Write::write_all(&mut file, &image)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use rustix::fs::Mode;

    use super::*;

    #[test]
    fn a_copy_is_shared_until_its_file_changes_or_nobody_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmlinuz");
        std::fs::write(&path, "one").unwrap();
        let mut copies = Copies::default();
        let first = copies.of(&Rights::root(), &path).unwrap();
        assert!(Arc::ptr_eq(&first, &copies.of(&Rights::root(), &path).unwrap()));
        std::fs::write(&path, "three").unwrap();
        let second = copies.of(&Rights::root(), &path).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        let read =
            |copy: &OwnedFd| std::fs::read_to_string(format!("/proc/self/fd/{}", copy.as_raw_fd())).unwrap();
        assert_eq!((read(&first), read(&second)), ("one".to_owned(), "three".to_owned()));
        assert!(rustix::io::write(first.as_fd(), b"x").is_err(), "nobody can change it");
        drop((first, second));
        copies.of(&Rights::root(), &path).unwrap();
        assert_eq!(copies.0.len(), 1);
    }

    #[test]
    fn a_file_of_another_type_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [fifo, "/dev/null".into(), dir.path().to_owned(), dir.path().join("missing")] {
            let source = Source::Copy(path.clone());
            let error =
                open_one(&source, &Rights::root(), &mut [], &mut Copies::default()).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains("hint: "), "{error}");
        }
    }

    #[test]
    fn a_listener_is_there_when_the_process_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let sources = [Source::Listener(path.clone()), Source::Connection(path.clone())];
        let opened = open_all(&sources, &Rights::root(), Vec::new(), &mut Copies::default()).unwrap();
        assert_eq!(opened.len(), 2);
        drop(opened);
        let error = open_all(&sources[1..], &Rights::root(), Vec::new(), &mut Copies::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("agent.sock"), "{error}");
    }
}
