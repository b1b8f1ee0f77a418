//! Virtual functions of a network card (SR-IOV): how many there are, and what uses them.
//! Source: `Documentation/PCI/pci-iov-howto.rst` of Linux.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::passthrough::PciAddress;
use taut_api::pnic::{ParameterFacts, PnicParameter};

use super::Parameters;
use crate::kernel::pci;

/// File with the number of virtual functions.
const NUMBER: &str = "sriov_numvfs";
/// File with the largest number that the card and its driver can have.
const MOST: &str = "sriov_totalvfs";

/// Reads how many virtual functions the card of an interface has; nothing for a card without
/// SR-IOV.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub(crate) fn parameters(root: &Path, interface: &str) -> io::Result<Parameters> {
    let folder = folder(root, interface);
    let (Some(value), Some(max)) = (number(&folder.join(NUMBER))?, number(&folder.join(MOST))?) else {
        return Ok(Parameters::new());
    };
    Ok([(PnicParameter::Vfs, ParameterFacts { value, max: Some(max) })].into())
}

/// Returns the PCI addresses of the card's virtual functions, in the order of their numbers.
pub(crate) fn addresses(root: &Path, interface: &str) -> Vec<String> {
    let folder = folder(root, interface);
    (0..).map_while(|number| pci::link(&folder.join(format!("virtfn{number}")))).collect()
}

/// Removes the card's virtual functions, and makes as many as wanted.
///
/// # Errors
/// Returns an error if a virtual function is in use, or the kernel refuses.
pub(crate) fn set(root: &Path, interface: &str, wanted: u32) -> io::Result<()> {
    let file = folder(root, interface).join(NUMBER);
    let present = number(&file)?.ok_or(io::ErrorKind::Unsupported)?;
    if present == wanted {
        return Ok(());
    }
    for address in addresses(root, interface) {
        if let Some(why) = find_use(root, &address) {
            return Err(io::Error::other(format!("virtual function {address} is in use: {why}")));
        }
    }
    // The kernel refuses to change one number to another.
    if present != 0 {
        fs::write(&file, "0")?;
    }
    if wanted != 0 {
        fs::write(&file, wanted.to_string())?;
    }
    Ok(())
}

/// Describes the use of a virtual function by a VM or the host. The kernel would wait until a VM
/// gives it up.
fn find_use(root: &Path, address: &str) -> Option<String> {
    let device = pci::device(root, address.parse::<PciAddress>().ok()?)?;
    if device.driver.as_deref() == Some(pci::VFIO) {
        return Some("a VM has it (driver vfio-pci)".to_owned());
    }
    (!device.uses.is_empty()).then(|| device.uses.join("; "))
}

fn folder(root: &Path, interface: &str) -> PathBuf {
    root.join("sys/class/net").join(interface).join("device")
}

/// Reads a number; none if there is no such file.
fn number(file: &Path) -> io::Result<Option<u32>> {
    match fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::kernel::pci::fixture::{PORT, VF, machine, write};

    /// A host whose card `ens1f0` has one virtual function, with this driver, of at most seven.
    fn card(driver: &str) -> tempfile::TempDir {
        let host = machine();
        let root = host.path();
        let device = root.join("sys/bus/pci/devices");
        let interface = fs::read_link(root.join("sys/class/net/ens1f0")).unwrap();
        symlink(device.join(PORT), interface.join("device")).unwrap();
        write(root, &format!("sys/bus/pci/devices/{PORT}/sriov_numvfs"), "1\n");
        write(root, &format!("sys/bus/pci/devices/{PORT}/sriov_totalvfs"), "7\n");
        symlink(format!("../{VF}"), device.join(PORT).join("virtfn0")).unwrap();
        fs::remove_file(device.join(VF).join("driver")).unwrap();
        symlink(root.join("sys/bus/pci/drivers").join(driver), device.join(VF).join("driver")).unwrap();
        host
    }

    fn found(host: &tempfile::TempDir) -> Option<ParameterFacts> {
        parameters(host.path(), "ens1f0").unwrap().get(&PnicParameter::Vfs).copied()
    }

    #[test]
    fn a_card_has_virtual_functions_that_are_made_and_removed() {
        let host = card("iavf");
        assert_eq!(found(&host), Some(ParameterFacts { value: 1, max: Some(7) }));
        assert_eq!(addresses(host.path(), "ens1f0"), [VF]);
        set(host.path(), "ens1f0", 3).unwrap();
        assert_eq!(found(&host), Some(ParameterFacts { value: 3, max: Some(7) }));
        set(host.path(), "ens1f0", 0).unwrap();
        assert_eq!(found(&host), Some(ParameterFacts { value: 0, max: Some(7) }));
        assert_eq!(parameters(host.path(), "ens1f1").unwrap(), Parameters::new());
        assert_eq!(set(host.path(), "ens1f1", 1).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_virtual_function_in_use_stays() {
        let host = card(pci::VFIO);
        let refused = set(host.path(), "ens1f0", 2).unwrap_err().to_string();
        assert_eq!(refused, format!("virtual function {VF} is in use: a VM has it (driver vfio-pci)"));
        let host = card("iavf");
        let routes = "Iface\tDestination\tGateway\nens1v0\t00000000\t0101A8C0\n";
        write(host.path(), "proc/net/route", routes);
        let refused = set(host.path(), "ens1f0", 0).unwrap_err().to_string();
        assert!(refused.contains("its interface ens1v0 has the host's default route"), "{refused}");
        assert_eq!(found(&host).map(|facts| facts.value), Some(1));
    }
}
