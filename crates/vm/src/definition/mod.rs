//! VM files: reading, filling in defaults, checking.

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

/// Largest VM file that is read, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// Reads and checks a VM file.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values and, where there is one, the line and key.
pub fn parse(request: &CreateVm) -> Result<Parsed, ApiError> {
    let base = PathBuf::from(&request.base_dir);
    if !base.is_absolute() {
        return Err(invalid(
            format!(
                "the directory `{}` that the VM file's paths start from is not absolute",
                request.base_dir
            ),
            "give the directory of the VM file as an absolute path",
        ));
    }
    if request.text.len() > MAX_FILE {
        return Err(invalid(
            format!("the VM file has {} bytes, more than the {MAX_FILE} that are read", request.text.len()),
            "is this a VM file? Disk images are named in it, not given instead of it",
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
    check::check(&parsed.spec)?;
    Ok(parsed)
}

/// Checks reservations and latency sensitivity that were changed.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values.
pub fn check_reservations(spec: &VmSpec) -> Result<(), ApiError> {
    check::reservations(spec)
}

/// Checks what was changed of a VM's process.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`], with the values.
pub fn check_machine(spec: &VmSpec) -> Result<(), ApiError> {
    check::machine(spec)
}

fn make_absolute(spec: &mut VmSpec, base: &Path) {
    // `base` came as text, so joining text to it stays text.
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
