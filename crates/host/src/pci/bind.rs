//! The driver of a PCI device: `vfio-pci` while a VM has it, and the one that it had before.
//!
//! What it had is in the ledger, on the disk, before it is taken away; giving it back is the same steps in any state that a killed
//! process may have left.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use taut_api::Name;
use taut_api::passthrough::PciAddress;

use super::{folder, link};
use crate::ledger::{Ledger, LedgerError};

/// The driver that hands devices over.
pub const VFIO: &str = "vfio-pci";

/// A device that was taken from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Whose it is now.
    pub vm: Name,
    /// The driver that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Its `driver_override`, the whole content.
    pub driver_override: String,
}

/// Why a device was not taken or given back.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The ledger could not be kept.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The kernel did not do it.
    #[error("{address} {what}")]
    Refused {
        /// Which device.
        address: PciAddress,
        /// What was tried.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Writes to a file of the kernel.
type Writer = fn(&Path, &str) -> io::Result<()>;

/// The devices of one host.
#[derive(Debug)]
pub struct Binder {
    root: PathBuf,
    ledger: Ledger,
    write: Writer,
}

impl Binder {
    /// Devices of the host below `root`; what is taken is in `ledger`.
    pub fn new(root: &Path, ledger: Ledger) -> Self {
        Self { root: root.to_owned(), ledger, write }
    }

    /// The same on a tree whose kernel is a function.
    #[cfg(test)]
    pub(super) fn with_kernel(root: &Path, ledger: Ledger, write: Writer) -> Self {
        Self { root: root.to_owned(), ledger, write }
    }

    /// What was taken from the host.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn taken(&self) -> Result<BTreeMap<PciAddress, Taken>, LedgerError> {
        self.ledger.devices()
    }

    /// Takes a device from the host for a VM. Taken already, it only makes sure of it.
    ///
    /// # Errors
    /// When the ledger cannot be kept, or the kernel does not do it; the device is given back then.
    pub fn take(&self, vm: &Name, address: PciAddress) -> Result<(), BindError> {
        let dir = folder(&self.root, &address.to_string());
        let mut taken = self.ledger.devices()?;
        if let Entry::Vacant(place) = taken.entry(address) {
            let before = std::fs::read_to_string(dir.join("driver_override"));
            let driver_override = before.map_err(|error| refused(address, "is not there", error))?;
            let driver = link(&dir.join("driver"));
            place.insert(Taken { vm: vm.clone(), driver, driver_override });
            self.ledger.note_devices(&taken)?;
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
            // What is wrong with the first is what the user has to know; the ledger still has it if this fails, too.
            let _ = self.give_back(address);
            refused(address, "cannot be bound to vfio-pci", error)
        })
    }

    /// Gives a device back to the driver that it had. One that was not taken is left alone.
    ///
    /// # Errors
    /// When the kernel does not do it: it stays in the ledger, and may be tried again.
    pub fn give_back(&self, address: PciAddress) -> Result<(), BindError> {
        let mut taken = self.ledger.devices()?;
        let Some(before) = taken.get(&address) else { return Ok(()) };
        let dir = folder(&self.root, &address.to_string());
        if dir.exists() {
            let now = link(&dir.join("driver"));
            // An empty line stands for none, which the kernel shows as "(null)".
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
        taken.remove(&address);
        Ok(self.ledger.note_devices(&taken)?)
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

fn refused(address: PciAddress, what: &str, source: io::Error) -> BindError {
    BindError::Refused { address, what: what.to_owned(), source }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}
