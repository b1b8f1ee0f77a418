//! PCI devices of the host that VMs have: admission, and taking them before a VM starts.

use std::path::Path;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};
use taut_host::enforce::DeviceError;
use taut_host::kernel::pci;
use taut_plan::Desired;
use taut_plan::admission::passthrough;

use super::Reconciler;

/// Decides whether a VM may have its devices, as the host is now.
pub(crate) fn admit_devices(desired: &Desired, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    if spec.passthrough.is_empty() {
        return Ok(());
    }
    let root = Path::new("/");
    passthrough::admit_devices(desired, name, spec, pci::host(root), &|address| pci::device(root, address))
}

impl Reconciler {
    /// Takes a VM's devices from the host. They are given back when the VM has no process.
    pub(super) fn take_devices(&mut self, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
        if spec.passthrough.is_empty() {
            return Ok(());
        }
        admit_devices(&self.store.state().desired, name, spec)?;
        for device in &spec.passthrough {
            self.enforcer.take_device(name, device.address).map_err(|error| not_taken(&error))?;
            let message = format!("{} is taken from the host for it", device.address);
            self.store.event(Level::Info, &format!("vm/{name}"), "passthrough.taken", &message);
        }
        Ok(())
    }
}

fn not_taken(error: &DeviceError) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the device cannot be taken from the host",
        "see the kernel's messages (dmesg), remove the cause, then start the VM again",
    )
    .because(error)
}
