//! Guest images for direct boot: a Debian kernel package and one static binary become `vmlinuz` and `initrd`.
//!
//! The initial RAM file system holds the binary as `/init` and the modules that a guest of taut may need, uncompressed,
//! with their load order in `/modules/order`. Nothing else: no shell, no library.

mod initrd;
mod modules;
mod package;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use package::PackageError;

/// What an image was made of; `info.json` beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageInfo {
    /// Kernel release, as `uname -r` says it in the guest.
    pub kernel: String,
    /// File name of the package that it came from.
    pub package: String,
    /// Modules in load order.
    pub modules: Vec<String>,
}

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The kernel package could not be used.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes `out/vmlinuz`, `out/initrd` and `out/info.json` from a Debian kernel package and a static `init` binary.
///
/// `info.json` is written last: an image with it is complete.
pub fn build(kernel_deb: &Path, init: &Path, out: &Path) -> Result<ImageInfo, ImageError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ImageError::File { path, source }
    };
    fs::create_dir_all(out).map_err(at(out))?;
    let info_file = out.join("info.json");
    let _ = fs::remove_file(&info_file);
    let package = package::unpack(kernel_deb, &out.join("unpacked"))?;
    let modules = modules::in_load_order(&package)?;

    let vmlinuz = out.join("vmlinuz");
    fs::copy(package.kernel(), &vmlinuz).map_err(at(&vmlinuz))?;
    let initrd_file = out.join("initrd");
    initrd::write(init, &modules, &initrd_file).map_err(at(&initrd_file))?;

    let info = ImageInfo {
        kernel: package.release().to_owned(),
        package: kernel_deb.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        modules: modules.into_iter().map(|module| module.name).collect(),
    };
    let text = serde_json::to_string_pretty(&info).map_err(io::Error::from).map_err(at(&info_file))?;
    fs::write(&info_file, text).map_err(at(&info_file))?;
    Ok(info)
}
