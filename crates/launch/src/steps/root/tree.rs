//! Mounts that are attached by descriptor, and places for them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen, move_mount,
};

/// Flags for a descriptor that only stands for a place.
pub(super) const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Permissions of folders in the root, which belongs to the host's root.
const FOLDER: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// Creates a file system that is not attached.
pub(super) fn new_file_system(kind: &str, options: &[(&str, &str)], set: MountAttrFlags) -> Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, set)
}

/// Attaches a mount at the place of a descriptor.
pub(super) fn attach(mount: impl AsFd, place: impl AsFd) -> Result<()> {
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", place, "", by_descriptor)
}

/// Returns the place of a path below `root`. Links are followed inside the root, never out of it.
fn find(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat2(root, path, PATH, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// Returns the folder at this path below `root`, and creates what is missing of it.
pub(super) fn create_folder(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    match find(root, path) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let (parent, name) = split(path)?;
    let parent = create_folder(root, parent)?;
    mkdirat(&parent, name, FOLDER)?;
    // The creation mask of the caller does not matter here.
    rustix::fs::chmodat(&parent, name, FOLDER, rustix::fs::AtFlags::empty())?;
    find(root, path)
}

/// Returns the file at this path below `root`. If it is missing, creates an empty one, on which a
/// file can be mounted.
pub(super) fn create_file(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    match find(root, path) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let (parent, name) = split(path)?;
    let parent = create_folder(root, parent)?;
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(&parent, name, new, Mode::RUSR)?;
    find(root, path)
}

/// Creates a symbolic link at this path below `root`.
pub(super) fn create_link(root: BorrowedFd<'_>, path: &Path, target: &Path) -> Result<()> {
    let (parent, name) = split(path)?;
    let parent = create_folder(root, parent)?;
    rustix::fs::symlinkat(target, &parent, name)
}

/// Returns the folder of a path and the name in it.
pub(super) fn split(path: &Path) -> Result<(&Path, &Path)> {
    path.parent().zip(path.file_name().map(Path::new)).ok_or(Errno::INVAL)
}
