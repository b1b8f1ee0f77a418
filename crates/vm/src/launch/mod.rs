//! From a VM's spec to the command that runs it.
//!
//! For virtio cards the VM is the vhost-user *socket server*: it waits at its start until every card's socket has a
//! peer. For its VMCI device QEMU is the client, and waits until somebody listens and answers. All sockets of a VM lie in its run directory ([`RunPaths`]).

mod memory;
mod micro;
mod paths;
mod qemu;
pub mod throttle;
mod tuning;
pub(crate) mod vmci;

use std::path::Path;
use std::process::Command;

use taut_api::error::ErrorKind;
use taut_api::host::{Accelerator, QemuInfo};
use taut_api::vm::{VmKind, VmSpec};
use taut_api::{ApiError, Name};

pub use memory::MemoryTuning;
pub use paths::RunPaths;
pub use tuning::{Tuning, accelerator};

/// An older QEMU crashes when a guest under emulation starts a vhost-user device that has MSI-X.
pub(crate) const MSIX_WORKS_FROM: u64 = 8;

/// The command that runs a VM. Standard streams, session and working directory are the caller's to set.
///
/// `accelerator` is the host's; the VM may have its own choice ([`accelerator()`]). `qemu` is the QEMU found on this host, if any; `libexec` the folder of taut's own programs.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when there is no QEMU and the VM needs it; [`ErrorKind::Invalid`] when the run directory's
/// path is too long for Unix sockets.
pub fn command(
    name: &Name,
    spec: &VmSpec,
    paths: &RunPaths,
    accelerator: &Accelerator,
    qemu: Option<&QemuInfo>,
    libexec: &Path,
    tuning: Tuning,
) -> Result<Command, ApiError> {
    paths.check(spec)?;
    match spec.kind {
        VmKind::Micro => Ok(micro::command(name, spec, paths, libexec)),
        VmKind::Qemu => {
            let qemu = qemu.ok_or_else(|| {
                ApiError::new(
                    ErrorKind::Unavailable,
                    format!("there is no QEMU on this host to run `{name}`"),
                    "install qemu-system-x86 (10.0 preferred, 7.2 works)",
                )
            })?;
            Ok(qemu::command(name, spec, paths, accelerator, qemu, tuning))
        }
    }
}

#[cfg(test)]
mod tests;
