//! Folders in which groups of users have the host's sockets of VMCI devices.
//!
//! `vmci/NAME` in the run directory belongs to root and to the group that the device of VM `NAME`
//! names. Members of the group connect to `vmci.sock` in it, and listen at `vmci.sock_PORT`. The
//! VM's own run directory stays closed to them.
//!
//! - The folder is sticky: a member cannot remove or rename what belongs to root or to another one.
//! - `vmci.sock` is a hard link to the socket in the VM's run directory. Before the VM's first
//!   start a socket that no program serves keeps members from taking the name.
//! - Folders are made, and emptied, under names that no member can open.
//! - Files in a folder are not trusted: see [`GroupFolders::connect`].

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat};
use rustix::net::SocketAddrUnix;
use taut_api::Name;
use taut_vm::named_file::NamedFile;

use crate::external::connect_to;

/// Mode of a folder: a group's, and sticky.
const SHARED: u32 = 0o1770;
/// Name of the socket by which members reach the guest.
const SOCKET: &str = "vmci.sock";

/// All folders of one run directory.
#[derive(Debug, Clone)]
pub(crate) struct GroupFolders(PathBuf);

impl GroupFolders {
    /// The folders of this run directory.
    pub(crate) fn at(run_dir: &Path) -> Self {
        Self(run_dir.join("vmci"))
    }

    /// Returns the socket by which members of a group reach a VM.
    pub(crate) fn socket(&self, vm: &Name) -> PathBuf {
        self.folder(vm).join(SOCKET)
    }

    /// Returns the VMs that have a folder.
    pub(crate) fn vms(&self) -> Vec<Name> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        // Names of other folders begin with a dot, which no VM's name does.
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// Gives a group the folder of a VM, and in it the VM's socket, if there is one. Takes it back
    /// from another group first.
    pub(crate) fn give(&self, vm: &Name, group: u32, socket: &Path) -> io::Result<()> {
        let folder = self.folder(vm);
        match fs::symlink_metadata(&folder) {
            Ok(found) if found.gid() == group => {
                if found.mode() & 0o7777 != SHARED {
                    fs::set_permissions(&folder, Permissions::from_mode(SHARED))?;
                }
            }
            Ok(_) => {
                self.take_back(vm, socket)?;
                self.make(vm, group)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make(vm, group)?,
            Err(error) => return Err(error),
        }
        self.link(vm, group, socket)
    }

    /// Takes the folder of a VM from its group, with all that is in it. Connections go on.
    pub(crate) fn take_back(&self, vm: &Name, socket: &Path) -> io::Result<()> {
        // The VM may be off.
        if socket.exists() {
            set_access(socket, 0, 0o600)?;
        }
        let folder = self.folder(vm);
        let aside = self.hidden("old", &fs::symlink_metadata(&folder)?.ino().to_string());
        fs::rename(folder, &aside)?;
        fs::set_permissions(&aside, Permissions::from_mode(0o700))?;
        chown(&aside, Some(0), Some(0))?;
        remove_apart(aside)
    }

    /// Closes the folder of a VM to its group, until [`GroupFolders::give`] opens it to the same
    /// group again. What members have in it stays.
    pub(crate) fn close(&self, vm: &Name) -> io::Result<()> {
        match fs::set_permissions(self.folder(vm), Permissions::from_mode(0o700)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes what an earlier daemon has not finished to make or to remove. What it has begun to
    /// make is gone when this returns, because it is about to be made anew under the same names.
    pub(crate) fn remove_hidden(&self) -> io::Result<()> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(b".old-") {
                remove_apart(entry.path())?;
            } else if name.starts_with(b".") {
                // No member has reached it, so it is small.
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Connects to what listens for a guest's connections to `port` in the folder of a VM.
    ///
    /// A member can put anything there. A symbolic link is not followed, and neither a file that is
    /// no socket nor one with a second name is taken: it may be a hard link to a socket that is
    /// closed to the member.
    pub(crate) fn connect(&self, vm: &Name, port: u32) -> io::Result<OwnedFd> {
        let found = NamedFile::find_below(&self.folder(vm), &format!("{SOCKET}_{port}"))?;
        let file = fstat(&found)?;
        if FileType::from_raw_mode(file.st_mode) != FileType::Socket || file.st_nlink != 1 {
            let message = "it is not a socket with one name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
        connect_to(&SocketAddrUnix::new(path)?)
    }

    fn folder(&self, vm: &Name) -> PathBuf {
        self.0.join(vm.as_str())
    }

    /// Returns the path of a file or folder that is being made or removed.
    fn hidden(&self, purpose: &str, name: &str) -> PathBuf {
        self.0.join(format!(".{purpose}-{name}"))
    }

    fn make(&self, vm: &Name, group: u32) -> io::Result<()> {
        fs::create_dir_all(&self.0)?;
        // Others may pass through, to a folder of theirs, and cannot list it.
        fs::set_permissions(&self.0, Permissions::from_mode(0o711))?;
        let new = self.hidden("new", vm.as_str());
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        fs::create_dir(&new)?;
        drop(UnixListener::bind(new.join(SOCKET))?);
        chown(&new, Some(0), Some(group))?;
        fs::set_permissions(&new, Permissions::from_mode(SHARED))?;
        fs::rename(new, self.folder(vm))
    }

    /// Links a VM's socket into the folder, unless it is there.
    fn link(&self, vm: &Name, group: u32, socket: &Path) -> io::Result<()> {
        let wanted = match fs::symlink_metadata(socket) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let link = self.socket(vm);
        if wanted.gid() == group && fs::symlink_metadata(&link).is_ok_and(|found| found.ino() == wanted.ino())
        {
            return Ok(());
        }
        set_access(socket, group, 0o660)?;
        let new = self.hidden("link", vm.as_str());
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::hard_link(socket, &new)?;
        fs::rename(new, link)
    }
}

/// Sets group and mode of a socket in a directory that root alone can change.
fn set_access(socket: &Path, group: u32, mode: u32) -> io::Result<()> {
    lchown(socket, Some(0), Some(group))?;
    fs::set_permissions(socket, Permissions::from_mode(mode))
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Removes a folder on a thread of its own: members may have filled it.
fn remove_apart(path: PathBuf) -> io::Result<()> {
    let remove = move || {
        if let Err(error) = remove(&path) {
            tracing::warn!(%error, path = %path.display(), "a group's folder is closed, but not removed");
        }
    };
    std::thread::Builder::new().name("vmci-folder".into()).spawn(remove).map(drop)
}

#[cfg(test)]
mod tests;
