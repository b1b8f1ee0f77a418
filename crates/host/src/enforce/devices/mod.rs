//! PCI devices of VMs: bound to `vfio-pci` while a VM has them, and to their own driver before and
//! after.
//!
//! The former driver is in the ledger before it is taken away. Giving a device back works from any
//! state that a killed process may have left.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use taut_api::Name;
use taut_api::enforcement::{HostPlan, HostReport};
use taut_api::passthrough::PciAddress;

use crate::kernel::pci::{self, VFIO, folder, link};
use crate::ledger::record::TakenDevice;
use crate::ledger::{Ledger, LedgerError};

/// Error in taking or giving back a PCI device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The ledger could not be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The kernel refused.
    #[error("{address} {what}")]
    Refused {
        /// The device's address.
        address: PciAddress,
        /// The operation that failed.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Writes to a file of the kernel.
type Writer = fn(&Path, &str) -> io::Result<()>;

/// The part of enforcement that takes PCI devices from the host.
#[derive(Debug)]
pub(super) struct Devices {
    root: PathBuf,
    ledger: Ledger,
    /// Devices that were taken, or begun to be, as in the ledger.
    taken: BTreeMap<PciAddress, TakenDevice>,
    write: Writer,
}

impl Devices {
    /// Reads from the ledger what an earlier process took. See [`super::Enforcer::new`].
    pub(super) fn new(root: &Path, ledger: Ledger) -> Result<Self, LedgerError> {
        Ok(Self { root: root.to_owned(), taken: ledger.book()?.devices, ledger, write })
    }

    /// Does the same with a function that stands in for the kernel.
    #[cfg(test)]
    fn with_kernel(root: &Path, ledger: Ledger, write: Writer) -> Self {
        Self { write, ..Self::new(root, ledger).unwrap() }
    }

    /// Returns whether the host has all its devices.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.is_empty()
    }

    /// Returns the devices taken from the host, and the VM that has each.
    pub(super) fn taken(&self) -> BTreeMap<PciAddress, Name> {
        self.taken.iter().map(|(address, taken)| (*address, taken.vm.clone())).collect()
    }

    /// Returns the interrupts of VMs' devices, and the pCPUs that the plan has for them.
    pub(super) fn interrupts(&self, plan: &HostPlan) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut placed = BTreeMap::new();
        for (address, taken) in &self.taken {
            if let Some(vm) = plan.vms.get(&taken.vm).filter(|vm| !vm.interrupts.is_empty()) {
                let numbers = pci::interrupts(&self.root, *address);
                placed.extend(numbers.into_iter().map(|number| (number, vm.interrupts.clone())));
            }
        }
        placed
    }

    /// Gives back the devices of VMs that neither have a process nor are being started.
    pub(super) fn give_back_unused(&mut self, plan: &HostPlan, report: &mut HostReport) {
        report.device_problems.clear();
        let has_vm = |name| plan.vms.contains_key(name) || plan.starting.contains(name);
        let unused = self.taken.iter().filter(|(_, taken)| !has_vm(&taken.vm));
        for address in unused.map(|(address, _)| *address).collect::<Vec<_>>() {
            if let Err(error) = self.give_back(address) {
                report.device_problems.push(super::causes(&error).join(": "));
            }
        }
    }

    /// Takes a device from the host for a VM. If it is taken already, makes sure of its driver.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be written, or the kernel refuses. The device is given
    /// back then.
    pub(super) fn take(&mut self, vm: &Name, address: PciAddress) -> Result<(), DeviceError> {
        let dir = folder(&self.root, &address.to_string());
        let mut taken = self.taken.clone();
        if let Entry::Vacant(place) = taken.entry(address) {
            let before = std::fs::read_to_string(dir.join("driver_override"));
            let driver_override = before.map_err(|error| refused(address, "is not there", error))?;
            let driver = link(&dir.join("driver"));
            place.insert(TakenDevice { vm: vm.clone(), driver, driver_override });
            self.keep(taken)?;
        }
        if link(&dir.join("driver")).as_deref() == Some(VFIO) {
            return Ok(());
        }
        let bound = (self.write)(&dir.join("driver_override"), VFIO)
            .and_then(|()| self.unbind(&dir, address))
            .and_then(|()| self.probe(address))
            .and_then(|()| match link(&dir.join("driver")) {
                Some(driver) if driver == VFIO => Ok(()),
                other => {
                    Err(io::Error::other(format!("its driver is {}", other.as_deref().unwrap_or("none"))))
                }
            });
        bound.map_err(|error| {
            // The first error is the one to report. If this fails, too, the ledger still has the
            // device.
            let _ = self.give_back(address);
            refused(address, "cannot be bound to vfio-pci", error)
        })
    }

    /// Gives a device back to its former driver. A device that was not taken is left alone.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses. The device stays in the ledger for the next attempt.
    pub(super) fn give_back(&mut self, address: PciAddress) -> Result<(), DeviceError> {
        let Some(before) = self.taken.get(&address) else { return Ok(()) };
        let dir = folder(&self.root, &address.to_string());
        if dir.exists() {
            let now = link(&dir.join("driver"));
            // The kernel shows "(null)" for no override; writing an empty line sets it so.
            let value = before.driver_override.trim();
            let value = if value == "(null)" { "\n" } else { value };
            let mut done = (self.write)(&dir.join("driver_override"), value);
            if now != before.driver {
                done = done.and_then(|()| self.unbind(&dir, address));
                if let Some(driver) = &before.driver {
                    let file = self.root.join("sys/bus/pci/drivers").join(driver).join("bind");
                    done = done.and_then(|()| (self.write)(&file, &address.to_string()));
                }
            }
            let name = before.driver.as_deref().unwrap_or("no driver").to_owned();
            done.map_err(|error| refused(address, &format!("cannot be given back to {name}"), error))?;
        }
        let mut left = self.taken.clone();
        left.remove(&address);
        Ok(self.keep(left)?)
    }

    /// Writes the devices to the ledger.
    fn keep(&mut self, taken: BTreeMap<PciAddress, TakenDevice>) -> Result<(), LedgerError> {
        self.ledger.record(|book| book.devices.clone_from(&taken))?;
        self.taken = taken;
        Ok(())
    }

    fn unbind(&self, dir: &Path, address: PciAddress) -> io::Result<()> {
        if link(&dir.join("driver")).is_none() {
            return Ok(());
        }
        (self.write)(&dir.join("driver/unbind"), &address.to_string())
    }

    fn probe(&self, address: PciAddress) -> io::Result<()> {
        (self.write)(&self.root.join("sys/bus/pci/drivers_probe"), &address.to_string())
    }
}

fn refused(address: PciAddress, what: &str, source: io::Error) -> DeviceError {
    DeviceError::Refused { address, what: what.to_owned(), source }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
