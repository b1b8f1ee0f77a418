//! The mounts of this host, by which starts are told apart that wait for the same file system.

use std::fs;
use std::path::{Path, PathBuf};

/// Index of the mount's place in a line of `/proc/self/mountinfo`.
const PLACE: usize = 4;

/// The places at which file systems are mounted.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<PathBuf>);

impl Mounts {
    /// Reads the mounts of now. This waits for none of the file systems.
    pub(super) fn read() -> Self {
        // Without the list all starts count as being on the root's file system.
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    pub(super) fn parse(list: &str) -> Self {
        let place = |line: &str| Some(PathBuf::from(unescape(line.split(' ').nth(PLACE)?)));
        Self(list.lines().filter_map(place).collect())
    }

    /// Returns the mount that a path is on; `None` for that of the root, from which symbolic links
    /// lead to other ones. They are not followed, because that may wait for a file system.
    pub(super) fn of(&self, path: &Path) -> Option<&Path> {
        let mounts = self.0.iter().filter(|mount| path.starts_with(mount));
        let mount = mounts.max_by_key(|mount| mount.as_os_str().len())?;
        (mount != Path::new("/")).then_some(mount)
    }
}

/// Replaces the octal numbers by which the kernel writes white space and backslashes.
fn unescape(place: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(place.to_owned(), |place, (code, text)| place.replace(code, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_mount_with_the_longest_matching_place() {
        let mounts = Mounts::parse(
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
             40 22 0:35 / /srv rw shared:2 - nfs4 server:/a rw\n\
             41 40 0:36 / /srv/two\\040words rw shared:3 - nfs4 server:/b rw\n\
             nonsense\n",
        );
        let of = |path: &str| mounts.of(Path::new(path)).map(|mount| mount.to_str().unwrap());
        assert_eq!(of("/srv/a.img"), Some("/srv"));
        assert_eq!(of("/srv/two words/a.img"), Some("/srv/two words"));
        assert_eq!(of("/srv2/a.img"), None);
        assert_eq!(Mounts::read().of(Path::new("/proc/self/status")), Some(Path::new("/proc")));
    }
}
