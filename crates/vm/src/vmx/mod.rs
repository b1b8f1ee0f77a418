//! VMware's `.vmx` files: converts the settings of a VM from ESX and reports what became of each
//! line.
//!
//! Reading has three steps:
//!
//! 1. [`syntax`] splits the text into keys and values.
//! 2. [`machine`], [`shares`], [`placement`], [`cards`], [`disks`], [`vmci`] and [`idle`] take the
//!    keys that they understand.
//! 3. [`known`] has notes for the remaining keys that taut knows.

mod cards;
mod disks;
mod file;
mod idle;
mod known;
mod machine;
mod placement;
mod shares;
mod syntax;
mod vmci;

use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};

use crate::parsed::Parsed;

use file::VmxFile;

/// Reads a `.vmx`. Paths stay as written. Cards whose network has no usable name get
/// `default_portgroup`.
///
/// # Errors
/// When the text is not a `.vmx`, a value that matters cannot be read, or there is no hard disk.
pub(crate) fn import(text: &str, default_portgroup: Option<&Name>) -> Result<Parsed, ApiError> {
    let mut file = VmxFile::read(text)?;
    let mut spec = VmSpec::default();
    let name = machine::name(&mut file);
    machine::read(&mut file, &mut spec)?;
    shares::read(&mut file, &mut spec)?;
    placement::read(&mut file, &mut spec)?;
    spec.disk = Some(disks::read(&mut file)?);
    spec.nics = cards::read(&mut file, default_portgroup)?;
    spec.vmci = vmci::read(&mut file)?;
    idle::read(&mut file, &mut spec)?;
    Ok(Parsed { name, spec, imported: file.into_report() })
}

#[cfg(test)]
mod tests;
