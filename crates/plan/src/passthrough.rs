//! Devices of the host handed to VMs (SPEC LS-8): who may have which, and where their interrupts go.

use std::collections::BTreeSet;

use taut_api::host::Cpu;
use taut_api::passthrough::{PciAddress, PciDevice, PciHost};
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};

use crate::Desired;
use crate::admission::{conflict, invalid};

/// May the VM have the devices that its file names? `device` looks at the host.
///
/// # Errors
/// Each with what is found there.
pub fn admit(
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
                format!("VM `{name}` is to have {address}, and this host has no such PCI device"),
                "lspci -D shows the addresses of this host's devices",
            )
        })?;
        taken(desired, name, address)?;
        possible(name, address, &found, host)?;
        alone(name, address, &found, &own)?;
        if !found.uses.is_empty() {
            return Err(conflict(
                format!(
                    "VM `{name}` cannot have {address} ({}): the host uses it: {}",
                    found.id,
                    found.uses.join("; ")
                ),
                "take it out of use first, or give the VM another device or a virtual function",
            ));
        }
    }
    Ok(())
}

fn taken(desired: &Desired, name: &Name, address: PciAddress) -> Result<(), ApiError> {
    let has = |spec: &VmSpec| spec.passthrough.iter().any(|other| other.address == address);
    match desired.vms.iter().find(|(other, vm)| *other != name && has(&vm.vm)) {
        None => Ok(()),
        Some((other, _)) => Err(conflict(
            format!("VM `{name}` cannot have {address}: VM `{other}` has it"),
            "delete that VM, or give this one another virtual function",
        )),
    }
}

/// Can it be handed over at all?
fn possible(name: &Name, address: PciAddress, found: &PciDevice, host: PciHost) -> Result<(), ApiError> {
    let refused = |why: String, hint: &str| {
        Err(conflict(format!("VM `{name}` cannot have {address} ({}): {why}", found.id), hint))
    };
    if found.bridge {
        return refused("it is a bridge".to_owned(), "hand over the device behind it");
    }
    if host.groups == 0 {
        return refused(
            "this host has no IOMMU that would keep the device inside the VM's memory: 0 groups of devices"
                .to_owned(),
            "switch VT-d or AMD-Vi on in the BIOS, and boot with intel_iommu=on (AMD: nothing more)",
        );
    }
    if found.group.is_none() {
        return refused(
            format!(
                "none of the IOMMU's {} groups has it: nothing would keep it inside the VM's memory",
                host.groups
            ),
            "it may be in another slot, or behind a bridge without IOMMU",
        );
    }
    if !host.vfio {
        return refused("the kernel's driver vfio-pci is not there".to_owned(), "modprobe vfio-pci");
    }
    Ok(())
}

/// A group goes as a whole: whoever has one device of it can reach the others' memory.
fn alone(
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
            // Without a driver, or with one that hands devices over, nobody uses it.
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
        "hand all of them to the VM, unbind the others, or use a slot (or a virtual function) with a group of its own",
    ))
}

/// Where the interrupts of a VM's devices go: pCPUs of the host (never exclusive ones) that share a cache with the VM's, or a node,
/// or any.
pub fn near(cpus: &[Cpu], exclusive: &BTreeSet<u32>, own: &[u32]) -> BTreeSet<u32> {
    let own: Vec<&Cpu> = cpus.iter().filter(|cpu| own.contains(&cpu.id)).collect();
    let of_host = |near: &dyn Fn(&Cpu) -> bool| -> BTreeSet<u32> {
        cpus.iter().filter(|cpu| !exclusive.contains(&cpu.id) && near(cpu)).map(|cpu| cpu.id).collect()
    };
    let cache = of_host(&|cpu| own.iter().any(|own| own.llc == cpu.llc));
    if !cache.is_empty() {
        return cache;
    }
    let node = of_host(&|cpu| own.iter().any(|own| own.node == cpu.node));
    if node.is_empty() { of_host(&|_| true) } else { node }
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
        let admitted = admit(desired, &name, &spec(&["3b:00.0"]), host, &|_| Some(device.clone()));
        admitted.map_or_else(|error| error.to_string(), |()| "admitted".to_owned())
    }

    fn neighbour(address: &str, driver: Option<&str>, bridge: bool) -> Neighbour {
        Neighbour { address: address.into(), driver: driver.map(str::to_owned), bridge }
    }

    #[test]
    fn refusals() {
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
        let absent = admit(&nobody, &name, &spec(&["3b:00.0"]), HOST, &|_| None).unwrap_err().to_string();
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
    fn a_group_that_goes_as_a_whole_is_admitted() {
        let shared = PciDevice { neighbours: vec![neighbour("0000:3b:00.1", Some("i40e"), false)], ..card() };
        let name = "db1".parse().unwrap();
        let admitted =
            |spec: &VmSpec| admit(&Desired::default(), &name, spec, HOST, &|_| Some(shared.clone())).is_ok();
        assert!(!admitted(&spec(&["3b:00.0"])));
        assert!(admitted(&spec(&["3b:00.0", "3b:00.1"])));
    }

    #[test]
    fn interrupts_come_near_the_vms_pcpus_and_never_on_exclusive_ones() {
        let cpu = |id, node, llc| Cpu { id, package: node, core: id, node, llc };
        let cpus: Vec<Cpu> = (0..8).map(|id| cpu(id, id / 4, id / 2)).collect();
        let near = |exclusive: &[u32], own: &[u32]| -> Vec<u32> {
            super::near(&cpus, &exclusive.iter().copied().collect(), own).into_iter().collect()
        };
        assert_eq!(near(&[5], &[5]), [4], "the same cache");
        assert_eq!(near(&[4, 5], &[4, 5]), [6, 7], "the same node");
        assert_eq!(near(&[4, 5, 6, 7], &[4, 5]), [0, 1, 2, 3], "any of the host's");
    }
}
