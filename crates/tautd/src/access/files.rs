//! The files that a VM's description names, opened with the rights of a user.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::vm::VmSpec;
use taut_vm::named_file::NamedFile;

use super::rights::{LendError, Rights};

/// Longest time that a file system may take to open all files of a VM.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A file that a VM's description names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its purpose: `kernel`, `initrd` or `disk`.
    pub(crate) purpose: &'static str,
    /// Its path.
    pub(crate) path: PathBuf,
    /// True if the VM writes to it.
    pub(crate) written: bool,
    /// True if it may be a block device.
    pub(crate) may_be_device: bool,
}

impl Named {
    /// Opens the file. One of another type is not opened, because that may block (a FIFO) or have
    /// an effect (a watchdog device).
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        let access = if self.written { OFlags::RDWR } else { OFlags::RDONLY };
        let fits =
            |kind| kind == FileType::RegularFile || (self.may_be_device && kind == FileType::BlockDevice);
        NamedFile::find(&self.path)?.open(access, fits)
    }
}

/// Returns the files that a VM's description names.
pub(crate) fn named(spec: &VmSpec) -> Vec<Named> {
    let read = |purpose, path: &String| Named {
        purpose,
        path: Path::new(path).to_owned(),
        written: false,
        may_be_device: false,
    };
    let boot = spec.boot.iter().flat_map(|boot| {
        let initrd = boot.initrd.iter().map(move |initrd| read("initrd", initrd));
        std::iter::once(read("kernel", &boot.kernel)).chain(initrd)
    });
    let disk = spec.disk.iter().map(|disk| Named {
        written: !disk.snapshot,
        may_be_device: true,
        ..read("disk", &disk.path)
    });
    boot.chain(disk).collect()
}

/// Refuses a VM that names files which the user may not open as the VM does.
pub(crate) fn check(rights: &Rights, spec: &VmSpec) -> Result<(), ApiError> {
    if rights.are_roots() {
        return Ok(());
    }
    let (files, uid) = (named(spec), rights.uid);
    let opened = rights.lend(PATIENCE, move || {
        // The descriptors are closed at once.
        files.into_iter().try_for_each(|file| match file.open() {
            Ok(_) => Ok(()),
            Err(error) => Err((file, error)),
        })
    });
    opened.map_err(|error| not_lent(uid, &error))?.map_err(|(file, error)| refused(uid, &file, &error))
}

/// Refuses to start a VM with this file if its owner may no longer open it. Waits for the file
/// system as long as it takes.
pub(crate) fn check_owner(owner: &Rights, file: &Named) -> Result<(), ApiError> {
    let opened = owner.run_as(|| file.open().map(drop));
    opened.map_err(|error| {
        let refused = refused(owner.uid, file, &error);
        ApiError { message: format!("its owner's rights do not suffice: {}", refused.message), ..refused }
    })
}

fn refused(uid: u32, file: &Named, error: &io::Error) -> ApiError {
    let Named { purpose, path, written, .. } = file;
    let access = if *written { "read and write" } else { "read" };
    let hint = if *written {
        "give that user permission for the file, or use the disk without writing to it (snapshot = true)"
    } else {
        "give that user permission for the file and for all folders that lead to it"
    };
    ApiError::new(
        ErrorKind::Forbidden,
        format!("user {uid} may not {access} the {purpose} `{}`", path.display()),
        hint,
    )
    .because(error)
}

/// Returns the error for files that could not be looked at with a user's rights.
pub(crate) fn not_lent(uid: u32, error: &LendError) -> ApiError {
    let hint = match error {
        LendError::Slow(_) | LendError::Busy(..) => {
            "see whether the file systems of the VM's files answer, then try again"
        }
        LendError::NotAllowed(..) => "give tautd the capabilities CAP_SETUID and CAP_SETGID",
        LendError::NoThread(_) => "raise the limit of the daemon's threads",
        LendError::Panicked => "report this fault",
    };
    let message = format!("the VM's files cannot be checked with the rights of user {uid}");
    ApiError::new(ErrorKind::Unavailable, message, hint).because(error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use taut_tests::{Prerequisite, require};

    use super::*;

    fn spec(text: &str) -> VmSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_disk_is_written_unless_its_writes_are_discarded() {
        let vm =
            spec(r#"{"boot": {"kernel": "/k", "initrd": "/i"}, "disk": {"path": "/d", "snapshot": true}}"#);
        let files: Vec<_> = named(&vm).into_iter().map(|file| (file.purpose, file.written)).collect();
        assert_eq!(files, [("kernel", false), ("initrd", false), ("disk", false)]);
        assert!(named(&spec(r#"{"disk": {"path": "/d"}}"#))[0].written);
        assert!(named(&spec(r#"{"kind": "micro"}"#)).is_empty());
    }

    #[test]
    fn files_are_opened_with_the_users_rights() {
        if !require(Prerequisite::Root) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let disk = dir.path().join("disk");
        fs::write(&disk, "x").unwrap();
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o640)).unwrap();
        chown(&disk, Some(0), Some(4711)).unwrap();
        let with = |snapshot: bool| {
            let disk = disk.to_str().unwrap();
            spec(&serde_json::json!({ "disk": { "path": disk, "snapshot": snapshot } }).to_string())
        };
        let user = |groups: &[u32]| Rights { uid: 65_534, gid: 65_534, groups: groups.to_vec() };
        let text = |rights: &Rights, snapshot| check(rights, &with(snapshot)).unwrap_err().to_string();

        let error = text(&user(&[]), true);
        for word in ["user 65534 may not read the disk", "disk`", "Permission denied", "hint: give that user"]
        {
            assert!(error.contains(word), "{error}");
        }
        check(&user(&[4711]), &with(true)).unwrap();
        let error = text(&user(&[4711]), false);
        assert!(error.contains("may not read and write") && error.contains("snapshot = true"), "{error}");
        check(&Rights::root(), &with(false)).unwrap();
        let error = check_owner(&user(&[]), &named(&with(true))[0]).unwrap_err();
        assert!(error.message.starts_with("its owner's rights do not suffice: user 65534"), "{error}");

        // A folder that nobody may enter hides what is in it.
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(text(&user(&[]), true).contains("Permission denied"));
    }

    #[test]
    fn a_fifo_is_refused_and_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let fifo = Named { purpose: "disk", path, written: false, may_be_device: true };
        assert_eq!(fifo.open().unwrap_err().to_string(), "it is a Fifo");
    }
}
