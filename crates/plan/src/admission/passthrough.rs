//! PCI devices of the host that a VM's file names (LS-8).

use std::collections::BTreeSet;

use taut_api::passthrough::{PciAddress, PciDevice, PciHost};
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};

use super::refusal::{conflict, invalid};
use crate::facts::Desired;

/// Admits the devices that a VM's file names. `device` finds a device of the host.
///
/// # Errors
/// When a device cannot be handed over; the message says what was found on the host.
pub fn admit_devices(
    desired: &Desired,
    name: &Name,
    spec: &VmSpec,
    host: PciHost,
    device: &dyn Fn(PciAddress) -> Option<PciDevice>,
) -> Result<(), ApiError> {
    let own: BTreeSet<String> = spec.passthrough.iter().map(|wanted| wanted.address.to_string()).collect();
    for wanted in &spec.passthrough {
        let address = wanted.address;
        let found = device(address).ok_or_else(|| {
            invalid(
                format!("VM `{name}` cannot have {address}: this host has no such PCI device"),
                "`lspci -D` lists the addresses of this host's devices",
            )
        })?;
        admit_owner(desired, name, address)?;
        admit_isolation(name, address, &found, host)?;
        admit_group(name, address, &found, &own)?;
        if !found.uses.is_empty() {
            return Err(conflict(
                format!(
                    "VM `{name}` cannot have {address} ({}): the host uses it: {}",
                    found.id,
                    found.uses.join("; ")
                ),
                "stop its use by the host, or give the VM another device or a virtual function",
            ));
        }
    }
    Ok(())
}

/// Refuses a device that another VM's file names.
fn admit_owner(desired: &Desired, name: &Name, address: PciAddress) -> Result<(), ApiError> {
    let has = |spec: &VmSpec| spec.passthrough.iter().any(|other| other.address == address);
    match desired.vms.iter().find(|(other, vm)| *other != name && has(&vm.vm)) {
        None => Ok(()),
        Some((other, _)) => Err(conflict(
            format!("VM `{name}` cannot have {address}: VM `{other}` has it"),
            "delete that VM, or give this one another device or virtual function",
        )),
    }
}

/// Refuses a device that the IOMMU cannot confine to the VM's memory, or that vfio-pci cannot take.
fn admit_isolation(
    name: &Name,
    address: PciAddress,
    found: &PciDevice,
    host: PciHost,
) -> Result<(), ApiError> {
    let refused = |why: String, hint: &str| {
        Err(conflict(format!("VM `{name}` cannot have {address} ({}): {why}", found.id), hint))
    };
    if found.bridge {
        return refused("it is a bridge".to_owned(), "name the device behind the bridge");
    }
    if host.groups == 0 {
        return refused(
            "this host has 0 IOMMU groups, so nothing would confine the device to the VM's memory".to_owned(),
            "enable VT-d or AMD-Vi in the BIOS; on Intel also boot with intel_iommu=on",
        );
    }
    if found.group.is_none() {
        return refused(
            format!(
                "it is in none of the {} IOMMU groups, so nothing would confine it to the VM's memory",
                host.groups
            ),
            "put it into another slot; it may be behind a bridge that the IOMMU does not cover",
        );
    }
    if !host.vfio {
        return refused("the kernel driver vfio-pci is not loaded".to_owned(), "load it: modprobe vfio-pci");
    }
    Ok(())
}

/// Refuses a device whose IOMMU group has devices that the host uses. Devices of one group can
/// reach each other's memory, so the VM gets all of them or none.
fn admit_group(
    name: &Name,
    address: PciAddress,
    found: &PciDevice,
    own: &BTreeSet<String>,
) -> Result<(), ApiError> {
    let others: Vec<String> = found
        .neighbours
        .iter()
        .filter(|other| !other.bridge && !own.contains(&other.address))
        .filter_map(|other| match other.driver.as_deref() {
            // Without a driver, or with one for pass-through, the host does not use the device.
            None | Some("vfio-pci" | "pci-stub") => None,
            Some(driver) => Some(format!("{} (driver {driver})", other.address)),
        })
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(conflict(
        format!(
            "VM `{name}` cannot have {address} ({}): its IOMMU group {} has {} other devices that the host uses: {}",
            found.id,
            found.group.unwrap_or_default(),
            others.len(),
            others.join(", ")
        ),
        "give the VM all of them, unbind the others from their drivers, or use a slot or a virtual function with \
         a group of its own",
    ))
}

#[cfg(test)]
mod tests {
    use taut_api::passthrough::{Neighbour, PassthroughSpec};
    use taut_api::vm::VmDesired;

    use super::*;

    const HOST: PciHost = PciHost { groups: 40, vfio: true };

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    fn spec(addresses: &[&str]) -> VmSpec {
        let device = |text: &&str| PassthroughSpec { address: address(text), portgroup: None, shaping: None };
        VmSpec { passthrough: addresses.iter().map(device).collect(), ..VmSpec::default() }
    }

    fn card() -> PciDevice {
        PciDevice {
            id: "8086:1572".into(),
            driver: Some("i40e".into()),
            group: Some(31),
            ..PciDevice::default()
        }
    }

    fn said(host: PciHost, device: &PciDevice, desired: &Desired) -> String {
        let name = "db1".parse().unwrap();
        let admitted = admit_devices(desired, &name, &spec(&["3b:00.0"]), host, &|_| Some(device.clone()));
        admitted.map_or_else(|error| error.to_string(), |()| "admitted".to_owned())
    }

    fn neighbour(address: &str, driver: Option<&str>, bridge: bool) -> Neighbour {
        Neighbour { address: address.into(), driver: driver.map(str::to_owned), bridge }
    }

    #[test]
    fn each_refusal_names_what_was_found() {
        let nobody = Desired::default();
        let other = VmDesired { vm: spec(&["3b:00.0"]), power: taut_api::vm::Power::Off };
        let somebody = Desired { vms: [("web1".parse().unwrap(), other)].into(), ..Desired::default() };
        let shared = PciDevice {
            neighbours: vec![
                neighbour("0000:3b:00.1", Some("i40e"), false),
                neighbour("0000:3b:00.2", Some("vfio-pci"), false),
                neighbour("0000:3a:00.0", Some("pcieport"), true),
                neighbour("0000:3b:00.3", None, false),
            ],
            ..card()
        };
        let used =
            PciDevice { uses: vec!["its interface ens1f0 has the host's default route".into()], ..card() };
        let name = "db1".parse().unwrap();
        let absent =
            admit_devices(&nobody, &name, &spec(&["3b:00.0"]), HOST, &|_| None).unwrap_err().to_string();
        let all = [
            absent,
            said(HOST, &card(), &somebody),
            said(HOST, &PciDevice { bridge: true, ..card() }, &nobody),
            said(PciHost { groups: 0, vfio: true }, &card(), &nobody),
            said(HOST, &PciDevice { group: None, ..card() }, &nobody),
            said(PciHost { vfio: false, ..HOST }, &card(), &nobody),
            said(HOST, &shared, &nobody),
            said(HOST, &used, &nobody),
            said(HOST, &card(), &nobody),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_group_whose_devices_all_go_to_the_vm_is_admitted() {
        let shared = PciDevice { neighbours: vec![neighbour("0000:3b:00.1", Some("i40e"), false)], ..card() };
        let name = "db1".parse().unwrap();
        let admitted = |spec: &VmSpec| {
            admit_devices(&Desired::default(), &name, spec, HOST, &|_| Some(shared.clone())).is_ok()
        };
        assert!(!admitted(&spec(&["3b:00.0"])));
        assert!(admitted(&spec(&["3b:00.0", "3b:00.1"])));
    }
}
