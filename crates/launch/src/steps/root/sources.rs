//! What the root is made of.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, fstat, readlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use taut_launch::{Root, Step, Wall};

use super::tree::{attach, create_file, create_folder, create_link};
use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;
use crate::sys::calls::set_mount;

/// One entry of the root.
#[derive(Debug)]
pub(super) enum Source {
    /// A symbolic link to this target.
    Link(PathBuf),
    /// A folder.
    Folder(OwnedFd),
    /// A file.
    File(OwnedFd),
}

/// All that the document lists of the host.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Entries of the root with their paths. With a skeleton, without the system's folders.
    pub(super) listed: Vec<(PathBuf, Source)>,
    /// The host's device nodes, in the order of the document, for containers that cannot make any.
    /// `None` for those that the host lacks.
    pub(super) nodes: Vec<Option<OwnedFd>>,
}

impl Sources {
    /// Opens what a root is made of, while the process sees the host's files. Returns `None` if the
    /// process may not copy mounts, and may go on without a root of its own.
    pub(crate) fn open(root: &Root, reporter: &mut Reporter) -> Result<Option<Self>, Failed> {
        let copy = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        // Privileges come before everything else in this call.
        if let Err(error @ (Errno::PERM | Errno::NOSYS)) = open_tree(CWD, "/", copy) {
            let reason = format!("copying a mount: {error}");
            return reporter.lack(Step::Sources, Wall::MountNamespace, reason).map(|()| None);
        }
        let mut listed = Vec::new();
        if root.skeleton.is_none() {
            listed.extend(open_system(&root.system)?);
        }
        let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY;
        let data = MountAttrFlags::MOUNT_ATTR_NOEXEC;
        for (paths, set) in [(&root.read_only, read_only), (&root.writable, data)] {
            for path in paths {
                let source = Source::open(path, set).within(Step::Sources, || path.display().to_string())?;
                listed.push((path.clone(), source));
            }
        }
        let nodes = root.devices.iter().map(|device| open_node(&device.path).ok()).collect();
        Ok(Some(Self { listed, nodes }))
    }
}

/// Opens folders of the system under the names that they have now: those of the host or, later, of
/// the skeleton.
pub(super) fn open_system(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Source)>, Failed> {
    let open = |path: &PathBuf| {
        let source = match readlinkat(CWD, path, Vec::<u8>::new()) {
            Ok(target) => Ok(Source::Link(OsStr::from_bytes(target.as_bytes()).into())),
            // Something else than a link.
            Err(Errno::INVAL) => Source::open(path, MountAttrFlags::MOUNT_ATTR_RDONLY),
            Err(error) => Err(error.into()),
        };
        Ok((path.clone(), source.within(Step::Sources, || path.display().to_string())?))
    };
    paths.iter().map(open).collect()
}

/// Opens a device node of the host. Devices have effect in this mount only.
fn open_node(path: &Path) -> io::Result<OwnedFd> {
    let tree = open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let set = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    set_mount(&tree, set, false)?;
    Ok(tree)
}

impl Source {
    /// Copies the mount of a file or folder, and those below a folder, with these attributes
    /// besides.
    fn open(path: &Path, set: MountAttrFlags) -> io::Result<Self> {
        let copy = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, path, copy | OpenTreeFlags::AT_RECURSIVE)?;
        let inert = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        set_mount(&tree, set | inert, true)?;
        match FileType::from_raw_mode(fstat(&tree)?.st_mode) {
            FileType::Directory => Ok(Self::Folder(tree)),
            _ => Ok(Self::File(tree)),
        }
    }

    /// Adds the entry to the root.
    pub(super) fn place(self, root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<()> {
        match self {
            Self::Link(target) => create_link(root, path, &target),
            Self::Folder(tree) => attach(tree, create_folder(root, path)?),
            Self::File(tree) => attach(tree, create_file(root, path)?),
        }
    }
}
