//! The devices of queue pairs, which a rule of udev has given to a group.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use super::place::Owner;

/// Permissions of a device as the kernel makes it.
const OWN: u32 = 0o600;

/// Takes DAX devices in a folder back from a group: only `owner` may open them then, as without the
/// rule. Other DAX devices stay as they are. Returns those that have changed.
pub(super) fn take_back_devices(devices: &Path, group: u32, owner: Owner) -> io::Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    for entry in fs::read_dir(devices)? {
        let entry = entry?;
        let (path, found) = (entry.path(), fs::symlink_metadata(entry.path())?);
        let is_dax = entry.file_name().to_str().is_some_and(|name| name.starts_with("dax"));
        if !is_dax || found.is_symlink() || found.is_dir() || found.gid() != group {
            continue;
        }
        // First the permissions: the group must not be able to open the device in between.
        fs::set_permissions(&path, Permissions::from_mode(OWN))?;
        chown(&path, Some(owner.user), Some(owner.group))?;
        changed.push(path);
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_group_become_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["dax0.0", "dax1.0", "sda"] {
            fs::write(folder.path().join(name), "").unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o660)).unwrap();
        }
        let own = fs::metadata(folder.path().join("sda")).unwrap();
        let owner = Owner { user: own.uid(), group: own.gid() };
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode() & 0o7777;
        assert!(take_back_devices(folder.path(), own.gid() + 1, owner).unwrap().is_empty());
        assert_eq!(mode("dax0.0"), 0o660, "the device of another group");
        let mut changed = take_back_devices(folder.path(), own.gid(), owner).unwrap();
        changed.sort();
        assert_eq!(changed, ["dax0.0", "dax1.0"].map(|name| folder.path().join(name)));
        assert_eq!(["dax0.0", "dax1.0", "sda"].map(mode), [0o600, 0o600, 0o660]);
    }
}
