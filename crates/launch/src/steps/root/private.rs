//! Folders that are private to the process: `/dev`, `/proc`, `/tmp`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, chmodat, chownat, makedev, mknodat, statat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{Gid, Uid};
use taut_launch::{Device, Document, Step, Wall};

use super::INERT;
use super::tree::{attach, create_file, create_folder, create_link, new_file_system, split};
use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;
use crate::sys::calls::set_mount;

/// The folders. Without a file system of their own they are empty and read-only.
pub(super) const FOLDERS: [&str; 3] = ["dev", "proc", "tmp"];

/// Attributes of `/dev`, the only place where device nodes have effect.
const DEVICES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Adds the folders to a root. `nodes` are the host's device nodes.
pub(super) fn add(
    root: &OwnedFd,
    document: &Document,
    nodes: &[Option<OwnedFd>],
    reporter: &mut Reporter,
) -> Result<(), Failed> {
    let [dev, proc, tmp] = FOLDERS.map(|folder| {
        let created = create_folder(root.as_fd(), Path::new(folder));
        created.within(Step::Root, || format!("making /{folder}"))
    });
    add_devices(dev?, document, nodes, reporter)?;
    let (proc, tmp) = (proc?, tmp?);
    if document.root.proc {
        let mounted = new_proc(reporter)?;
        attach(mounted, proc).within(Step::Root, || "mounting /proc".to_owned())?;
    }
    if let Some(size) = document.root.tmp {
        let texts = [size.to_string(), document.uid.to_string(), document.gid.to_string()];
        let [size, uid, gid] = texts.each_ref().map(String::as_str);
        let options = [("size", size), ("mode", "700"), ("uid", uid), ("gid", gid)];
        let mounted = new_file_system("tmpfs", &options, INERT).and_then(|mounted| attach(mounted, tmp));
        mounted.within(Step::Root, || "mounting /tmp".to_owned())?;
    }
    Ok(())
}

/// Creates a `/proc` with processes only, and only those that the user may inspect.
fn new_proc(reporter: &mut Reporter) -> Result<OwnedFd, Failed> {
    let (own, processes) = (("hidepid", "2"), ("subset", "pid"));
    let error = match new_file_system("proc", &[own, processes], INERT) {
        Err(error) => error,
        created => return created.within(Step::Root, || "creating /proc".to_owned()),
    };
    reporter.lack(Step::Root, Wall::ProcSubset, format!("subset=pid: {error}"))?;
    new_file_system("proc", &[own], INERT).within(Step::Root, || "creating /proc".to_owned())
}

fn add_devices(
    place: OwnedFd,
    document: &Document,
    nodes: &[Option<OwnedFd>],
    reporter: &mut Reporter,
) -> Result<(), Failed> {
    let at = || "mounting /dev".to_owned();
    let dev = new_file_system("tmpfs", &[("size", "1m"), ("mode", "755")], DEVICES).within(Step::Root, at)?;
    attach(&dev, place).within(Step::Root, at)?;
    for (index, device) in document.root.devices.iter().enumerate() {
        let path = device.path.strip_prefix("/dev").unwrap_or(&device.path);
        let at = || format!("making {}", device.path.display());
        match make_node(&dev, path, device, document) {
            Err(Errno::PERM | Errno::ACCESS) => {
                let node = nodes.get(index).and_then(Option::as_ref);
                let node = node.ok_or(Errno::NOENT).within(Step::Root, at)?;
                let place = create_file(dev.as_fd(), path).within(Step::Root, at)?;
                attach(node, place).within(Step::Root, at)?;
                if let Some(closed) = closed(&dev, path, device, document) {
                    return Err(Failed::new(Step::Root, closed));
                }
                reporter.lack(Step::Root, Wall::DeviceNodes, bound(&dev, path, device))?;
            }
            made => made.within(Step::Root, at)?,
        }
    }
    if document.root.proc {
        // Shells and scripts know descriptors by this name.
        create_link(dev.as_fd(), Path::new("fd"), Path::new("/proc/self/fd")).within(Step::Root, at)?;
    }
    set_mount(&dev, DEVICES | MountAttrFlags::MOUNT_ATTR_RDONLY, false).within(Step::Root, at)
}

/// Makes a device node that belongs to the process's user.
fn make_node(dev: &OwnedFd, path: &Path, device: &Device, document: &Document) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(device.mode);
    let (parent, name) = split(path)?;
    let parent = create_folder(dev.as_fd(), parent)?;
    mknodat(&parent, name, FileType::CharacterDevice, mode, makedev(device.major, device.minor))?;
    let (user, group) = (Uid::from_raw(document.uid), Gid::from_raw(document.gid));
    chownat(&parent, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    // The creation mask of the caller does not matter here.
    chmodat(&parent, name, mode, AtFlags::empty())
}

/// Describes the host's node that stands in for a private one.
fn bound(dev: &OwnedFd, path: &Path, device: &Device) -> String {
    let path_shown = device.path.display();
    match statat(dev, path, AtFlags::empty()) {
        Ok(stat) => format!(
            "mknod of {path_shown} is refused; the host's node is bound, of user {}, group {}, mode {:o}",
            stat.st_uid,
            stat.st_gid,
            stat.st_mode & 0o7777
        ),
        Err(error) => format!("mknod of {path_shown} is refused; the host's node is bound ({error})"),
    }
}

/// Returns what is wrong if the process's user may not use the host's node.
fn closed(dev: &OwnedFd, path: &Path, device: &Device, document: &Document) -> Option<String> {
    let stat = statat(dev, path, AtFlags::empty()).ok()?;
    let granted = if stat.st_uid == document.uid {
        stat.st_mode >> 6
    } else if stat.st_gid == document.gid {
        stat.st_mode >> 3
    } else {
        stat.st_mode
    };
    let needed = device.mode >> 6;
    let shown = device.path.display();
    (granted & needed != needed).then(|| {
        format!(
            "{}, so user {} may not open it; give tautd the capability CAP_MKNOD, or open the node to all \
             users of the host (chmod a+rw {shown})",
            bound(dev, path, device),
            document.uid
        )
    })
}
