//! A Debian kernel package, unpacked into a folder that is removed with it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reason why a kernel package could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A program could not be started or failed.
    #[error("`{program}` failed on {path}: {what}")]
    Program {
        /// The program.
        program: &'static str,
        /// File that it worked on.
        path: PathBuf,
        /// Its error output.
        what: String,
    },
    /// The package holds no kernel with modules.
    #[error("{0} holds no kernel: expected boot/vmlinuz-RELEASE and lib/modules/RELEASE")]
    NoKernel(PathBuf),
}

/// An unpacked kernel package.
#[derive(Debug)]
pub(super) struct Package {
    folder: PathBuf,
    release: String,
}

impl Package {
    /// The kernel image.
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// The kernel's release.
    pub(super) fn release(&self) -> &str {
        &self.release
    }

    /// The folder that holds `modules.dep`.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // Files that are left over only cost space, and the next run replaces them.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Unpacks `deb` into `folder` and computes the dependencies of its modules.
pub(super) fn unpack(deb: &Path, folder: &Path) -> Result<Package, PackageError> {
    let _ = fs::remove_dir_all(folder);
    run("dpkg-deb", &[OsStr::new("-x"), deb.as_os_str(), folder.as_os_str()], deb)?;
    // From here on the folder is removed, whatever happens.
    let mut package = Package { folder: folder.to_owned(), release: String::new() };
    let release = fs::read_dir(folder.join("boot")).ok().and_then(|mut entries| {
        entries.find_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_prefix("vmlinuz-")?.to_owned()))
    });
    package.release = release.ok_or_else(|| PackageError::NoKernel(deb.to_owned()))?;
    // Newer packages keep their modules below /usr.
    if folder.join("usr/lib/modules").exists() && !folder.join("lib").exists() {
        let _ = std::os::unix::fs::symlink("usr/lib", folder.join("lib"));
    }
    if !package.modules().is_dir() {
        return Err(PackageError::NoKernel(deb.to_owned()));
    }
    run("depmod", &[OsStr::new("-b"), folder.as_os_str(), OsStr::new(&package.release)], deb)?;
    Ok(package)
}

/// Runs a program to its end. Returns its standard output.
pub(super) fn run(program: &'static str, args: &[&OsStr], path: &Path) -> Result<Vec<u8>, PackageError> {
    let failed = |what: String| PackageError::Program { program, path: path.to_owned(), what };
    // depmod is in a folder that is not on users' PATH.
    let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output =
        Command::new(program).args(args).env("PATH", search).output().map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound => failed("it is not installed".to_owned()),
                _ => failed(error.to_string()),
            }
        })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if said.is_empty() { output.status.to_string() } else { said }))
}
