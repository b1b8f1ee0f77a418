//! VMware's `.vmx` files: what a VM moved from ESX said about itself, and what became of each line.
//!
//! Reading has three steps: [`syntax`] splits the text into keys and values, the modules for the [`machine`], its
//! [`shares`] and [`placement`], [`cards`], its [`disks`], its VMCI device ([`vmci`]) and its [`idle`] vCPUs take what they understand, and [`known`] says of the rest whether taut knows it.

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

/// Reads a `.vmx`. Paths stay as written; `default_portgroup` is for cards whose network has no usable name.
///
/// # Errors
/// When the text is no `.vmx`, a value that matters cannot be read, or there is no hard disk.
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
