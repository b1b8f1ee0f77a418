//! Devices of the host that VMs have: taken before a VM starts, given back when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::passthrough::PciAddress;
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};
use taut_host::pci::{self, bind::BindError};
use taut_plan::Desired;
use taut_plan::admission::passthrough::admit_devices;

use super::Reconciler;

/// May the VM have its devices, as this host is now?
pub(crate) fn admit(desired: &Desired, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    if spec.passthrough.is_empty() {
        return Ok(());
    }
    let root = Path::new("/");
    admit_devices(desired, name, spec, pci::host(root), &|address| pci::device(root, address))
}

impl Reconciler {
    /// Takes the VM's devices from the host.
    pub(super) fn take_devices(&mut self, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
        if spec.passthrough.is_empty() {
            return Ok(());
        }
        admit(&self.store.state().desired, name, spec)?;
        for device in &spec.passthrough {
            // Whatever comes of it, it is in the ledger from here on.
            self.devices.insert(device.address, name.clone());
            self.binder.take(name, device.address).map_err(|error| failed(&error))?;
            let message = format!("{} is taken from the host for it", device.address);
            self.store.event(Level::Info, &format!("vm/{name}"), "passthrough.taken", &message);
        }
        Ok(())
    }

    /// Gives back the devices of VMs that have no process.
    pub(super) fn give_devices_back(&mut self) {
        let running: BTreeSet<Name> = self.vms.running().into_iter().collect();
        let idle: Vec<(PciAddress, Name)> = self
            .devices
            .iter()
            .filter(|(_, vm)| !running.contains(*vm))
            .map(|(address, vm)| (*address, vm.clone()))
            .collect();
        for (address, vm) in idle {
            match self.binder.give_back(address) {
                Ok(()) => {
                    self.devices.remove(&address);
                    let message = format!("{address} is the host's again");
                    self.store.event(Level::Info, &format!("vm/{vm}"), "passthrough.given-back", &message);
                }
                // It is tried again with the next look.
                Err(error) => tracing::warn!(%error, %address, "the device is not given back yet"),
            }
        }
    }

    /// Where the interrupts of VMs' devices go, by their numbers.
    pub(super) fn interrupts_of_devices(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut placed = BTreeMap::new();
        for (address, vm) in &self.devices {
            if let Some(share) = self.host_plan.vms.get(vm).filter(|share| !share.interrupts.is_empty()) {
                let numbers = pci::interrupts(Path::new("/"), *address);
                placed.extend(numbers.into_iter().map(|number| (number, share.interrupts.clone())));
            }
        }
        placed
    }
}

fn failed(error: &BindError) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the device is not taken from the host",
        "see the kernel's messages (dmesg), remove the cause, then start the VM again",
    )
    .because(error)
}
