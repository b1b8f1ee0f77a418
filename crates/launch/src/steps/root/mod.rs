//! The root that the process sees: an empty file system in memory, with the files and folders that
//! the document lists.
//!
//! Everything of the host is opened before the process leaves the host's mounts, as a copy of the
//! mount that belongs to no namespace (`open_tree`), and attached later. So nothing depends on
//! names in the host's tree once the new one is being built.

mod enter;
mod private;
mod sources;
mod tree;

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::mount::MountAttrFlags;
use taut_launch::{Document, Skeleton, Step};

use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;
use crate::sys::calls::set_mount;
use sources::{Source, open_system};
use tree::{attach, create_folder, new_file_system};

pub(crate) use sources::Sources;

/// Size of the root itself. It has folders, links and empty files only.
const ROOT_SIZE: &str = "1m";

/// What a file system with data of the process must not do.
const INERT: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Builds the root of a process and enters it. `/proc` shows the pid namespace that this process is
/// in.
pub(crate) fn build(document: &Document, sources: Sources, reporter: &mut Reporter) -> Result<(), Failed> {
    let root = new_root()?;
    let mut listed = sources.listed;
    if document.root.skeleton.is_some() {
        // Now the names are those of the skeleton.
        listed.extend(open_system(&document.root.system)?);
    }
    private::add(&root, document, &sources.nodes, reporter)?;
    add(&root, listed)?;
    seal_and_enter(&root)
}

/// Builds the root of a skeleton and enters it.
pub(crate) fn build_skeleton(skeleton: &Skeleton) -> Result<(), Failed> {
    let listed = open_system(&skeleton.system)?;
    let root = new_root()?;
    for folder in private::FOLDERS {
        create_folder(root.as_fd(), folder.as_ref()).within(Step::Root, || format!("making {folder}"))?;
    }
    add(&root, listed)?;
    seal_and_enter(&root)
}

/// Creates the empty file system and attaches it where this process can reach it: over `/proc`,
/// which every host and every skeleton has, and which is not needed any more.
fn new_root() -> Result<OwnedFd, Failed> {
    let options = [("size", ROOT_SIZE), ("mode", "755")];
    let root = new_file_system("tmpfs", &options, INERT);
    let root = root.within(Step::Root, || "creating an empty file system".to_owned())?;
    let place = rustix::fs::open("/proc", tree::PATH, rustix::fs::Mode::empty());
    let attached = place.and_then(|place| attach(&root, place));
    attached.within(Step::Root, || "attaching the new root".to_owned())?;
    Ok(root)
}

/// Adds what the document lists. Parents come before what is in them.
fn add(root: &OwnedFd, mut listed: Vec<(PathBuf, Source)>) -> Result<(), Failed> {
    listed.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (path, source) in listed {
        source.place(root.as_fd(), &path).within(Step::Root, || format!("adding {}", path.display()))?;
    }
    Ok(())
}

fn seal_and_enter(root: &OwnedFd) -> Result<(), Failed> {
    set_mount(root, INERT | MountAttrFlags::MOUNT_ATTR_RDONLY, false)
        .within(Step::Root, || "making the root read-only".to_owned())?;
    enter::enter(root).within(Step::Root, || "entering the root".to_owned())
}
