//! The folder of logs, which is apart from the run directory: what a guest writes must not fill
//! that.
//!
//! It has `fabric.log`, and `console.log` and `vm.log` for each VM in `vms/NAME`.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use taut_api::Name;

/// The folder of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogFolder(PathBuf);

/// The logs of one VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VmLogs(PathBuf);

impl LogFolder {
    /// The logs in this folder.
    pub(crate) fn at(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// Makes the folder, unless there is one.
    pub(crate) fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The log of the fabric.
    pub(crate) fn fabric(&self) -> PathBuf {
        self.0.join("fabric.log")
    }

    /// What the console process itself says. It begins anew with each process.
    pub(super) fn console_process(&self) -> PathBuf {
        self.0.join("taut-console.log")
    }

    /// The logs of a VM.
    pub(crate) fn vm(&self, name: &Name) -> VmLogs {
        VmLogs(self.0.join("vms").join(name.as_str()))
    }

    /// Returns the names of VMs that have logs.
    pub(crate) fn vms(&self) -> Vec<Name> {
        let Ok(entries) = fs::read_dir(self.0.join("vms")) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }
}

impl VmLogs {
    /// What the guest wrote to its serial console.
    pub(crate) fn console(&self) -> PathBuf {
        self.0.join("console.log")
    }

    /// What the VM's process wrote since its start.
    pub(crate) fn process(&self) -> PathBuf {
        self.0.join("vm.log")
    }

    /// Removes the logs, and the folder if nobody else has put anything there.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        gone(fs::remove_file(self.console()))?;
        gone(fs::remove_file(self.process()))?;
        gone(fs::remove_dir(&self.0))
    }
}

/// Opens a log for the console process, and makes it if need be. `anew` removes what it has.
pub(super) fn open(path: &Path, anew: bool) -> io::Result<OwnedFd> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // A FIFO in its place would block without the last flag. The console process refuses it.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    let log =
        options.read(true).write(true).create(true).truncate(anew).mode(0o600).custom_flags(flags).open(path);
    let log = log.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(log.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogFolder::at(dir.path().join("log"));
        let name: Name = "db1".parse().unwrap();
        let vm = logs.vm(&name);
        vm.remove().unwrap();
        open(&vm.console(), false).unwrap();
        fs::write(vm.process(), "said").unwrap();
        assert_eq!(logs.vms(), [name]);
        open(&vm.process(), true).unwrap();
        assert_eq!(vm.process().metadata().unwrap().len(), 0);
        let notes = dir.path().join("log/vms/db1/notes");
        fs::write(&notes, "a user's").unwrap();
        assert!(vm.remove().is_err());
        assert!(notes.exists() && !vm.console().exists());
        fs::remove_file(notes).unwrap();
        vm.remove().unwrap();
        assert!(logs.vms().is_empty());
    }

    #[test]
    fn a_link_in_the_place_of_a_log_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("vm.log"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(open(&link, true).unwrap_err().to_string().contains("vm.log"));
        assert_eq!(fs::read(&target).unwrap(), b"precious");
    }
}
