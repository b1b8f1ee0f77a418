//! Guest images for direct boot: turns a Debian kernel package and a static binary into `vmlinuz`
//! and `initrd`.
//!
//! The initial RAM file system contains only the binary as `/init`, the uncompressed modules that a
//! guest of taut may need, and their load order in `/modules/order`; those for an NVDIMM are in
//! `/modules/order-nvdimm`. It has no shell and no library.

mod initrd;
mod modules;
mod package;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use package::PackageError;

/// The sources of an image, written to `info.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageInfo {
    /// Kernel release, as in the guest's `uname -r`.
    pub kernel: String,
    /// File name of the kernel package.
    pub package: String,
    /// Modules in load order.
    pub modules: Vec<String>,
}

/// Reason why an image could not be made.
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
        /// Reason.
        source: io::Error,
    },
}

/// Makes `out/vmlinuz`, `out/initrd` and `out/info.json` from a Debian kernel package and a static
/// `init` binary.
///
/// `info.json` is written last, so an image that has it is complete.
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
