//! `vmci0.*`: the VMCI device. ESX has one for each VM.

use taut_api::ApiError;
use taut_api::vmci::{Cid, VmciSpec};

use super::file::VmxFile;
use super::machine::usable_name;

const PRESENT: &str = "vmci0.present";
const ID: &str = "vmci0.id";
const UNRESTRICTED: &str = "vmci0.unrestricted";
const DOMAIN: &str = "vmci0.domain";

/// Reads the VMCI device, if it is present.
pub(super) fn read(file: &mut VmxFile) -> Result<Option<VmciSpec>, ApiError> {
    for number in file.numbers("vmci").into_iter().filter(|&number| number != 0) {
        file.report_all(&format!("vmci{number}."), "a VM has one VMCI device, vmci0");
    }
    if !file.is_true(PRESENT) {
        file.report_all("vmci0.", "the VMCI device is not present");
        return Ok(None);
    }
    file.understood(PRESENT, "vmci");
    let unrestricted = file.is_true(UNRESTRICTED);
    file.understood(UNRESTRICTED, "vmci.unrestricted");
    Ok(Some(VmciSpec { cid: cid(file)?, domains: domain(file), unrestricted, ..VmciSpec::default() }))
}

/// Reads the context ID, whose 32 bits ESX writes as a signed number.
fn cid(file: &mut VmxFile) -> Result<Option<Cid>, ApiError> {
    let Some(written) = file.parsed::<i64>(ID, "a context ID of 32 bits")? else { return Ok(None) };
    let bits = i32::try_from(written).map(i32::cast_unsigned).or_else(|_| u32::try_from(written));
    let cid = bits.ok().map(Cid).filter(|cid| cid.is_a_vms());
    match cid {
        Some(cid) if i64::from(cid.0) == written => file.understood(ID, "vmci.cid"),
        Some(cid) => file.mapped(ID, "vmci.cid", format!("{cid}: the same 32 bits without a sign")),
        None => file.reported(ID, "this context ID is reserved: taut assigns another one"),
    }
    Ok(cid)
}

fn domain(file: &mut VmxFile) -> Vec<taut_api::Name> {
    let Some(written) = file.get(DOMAIN).map(str::to_owned).filter(|name| !name.is_empty()) else {
        file.reported(DOMAIN, "the name of the domain is empty");
        return Vec::new();
    };
    let name = usable_name(&written);
    match &name {
        Some(name) if name.as_str() == written => file.understood(DOMAIN, "vmci.domains"),
        Some(name) => {
            let note = format!("{name}: names consist of letters, digits, `-`, `_` and `.`");
            file.mapped(DOMAIN, "vmci.domains", note);
        }
        None => file.reported(DOMAIN, "no character in it can be part of a name: the VM is in no domain"),
    }
    name.into_iter().collect()
}
