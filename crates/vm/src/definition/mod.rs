//! VM files: reads them, fills in defaults and checks them.

mod buffers;
mod check;
mod file;
mod passthrough;
pub mod vmci;

use std::path::{Path, PathBuf};

use taut_api::route::{CreateVm, VmFormat};
use taut_api::vm::VmSpec;
use taut_api::{ApiError, MacAddr, Name};

use crate::error::invalid;
use crate::parsed::Parsed;
use crate::vmx;

/// Largest VM file that is accepted, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// Reads and checks a VM file.
///
/// # Errors
/// As [`read`] and [`check`].
pub fn parse(request: &CreateVm) -> Result<Parsed, ApiError> {
    let parsed = read(request)?;
    check(&parsed.spec)?;
    Ok(parsed)
}

/// Reads a VM file, fills in defaults, and makes paths absolute. Opens none of the files that it
/// names.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values and, where there is one, the line and
/// key.
pub fn read(request: &CreateVm) -> Result<Parsed, ApiError> {
    let base = PathBuf::from(&request.base_dir);
    if !base.is_absolute() {
        return Err(invalid(
            format!(
                "the directory `{}`, from which the paths in the VM file start, is not absolute",
                request.base_dir
            ),
            "give the directory of the VM file as an absolute path",
        ));
    }
    if request.text.len() > MAX_FILE {
        return Err(invalid(
            format!("the VM file has {} bytes; at most {MAX_FILE} are accepted", request.text.len()),
            "give a VM file, and name the disk image in it",
        ));
    }
    let mut parsed = match request.format {
        VmFormat::Toml => file::read(&request.text)?,
        VmFormat::Vmx => vmx::import(&request.text, request.default_portgroup.as_ref())?,
    };
    if request.name.is_some() {
        parsed.name.clone_from(&request.name);
    }
    make_absolute(&mut parsed.spec, &base);
    if let Some(name) = &parsed.name {
        derive_addresses(&mut parsed.spec, name);
    }
    Ok(parsed)
}

/// Checks all settings of a VM, and opens the files that it names.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`] for the first fault, with the values.
pub fn check(spec: &VmSpec) -> Result<(), ApiError> {
    check::check(spec)
}

/// Checks the changed document of a VM that exists: vCPUs, memory, reservations, latency
/// sensitivity, placement, accelerator, idle vCPUs and disk limits.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values.
pub fn check_changed(spec: &VmSpec) -> Result<(), ApiError> {
    check::check_changed(spec)
}

/// Checks that the memory of a micro VM has room for the rings and buffers of its devices.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`] for the first device without room, with its numbers.
pub fn check_buffers(spec: &VmSpec) -> Result<(), ApiError> {
    buffers::check(spec)
}

fn make_absolute(spec: &mut VmSpec, base: &Path) {
    // `base` is valid UTF-8, and so is a path joined to it.
    let join = |path: &mut String| *path = base.join(&*path).to_string_lossy().into_owned();
    if let Some(boot) = &mut spec.boot {
        join(&mut boot.kernel);
        boot.initrd.iter_mut().for_each(join);
    }
    if let Some(disk) = &mut spec.disk {
        join(&mut disk.path);
    }
}

fn derive_addresses(spec: &mut VmSpec, name: &Name) {
    for (index, nic) in spec.nics.iter_mut().enumerate() {
        nic.mac.get_or_insert_with(|| MacAddr::derived(name.as_str(), index));
    }
}

#[cfg(test)]
mod tests;
