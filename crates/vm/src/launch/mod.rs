//! Builds the command line that runs a VM.
//!
//! For virtio cards the VM is the vhost-user *socket server*: its start waits until the socket of
//! every card has a peer. For its VMCI device QEMU is the client; its start waits until a server
//! answers. All sockets of a VM are in its run directory ([`RunPaths`]).
//!
//! A VM's process opens neither sockets nor images: it inherits them ([`Source`]).

pub mod address;
mod disk;
mod inherit;
pub mod link;
mod memory;
mod micro;
mod paths;
mod qemu;
pub(crate) mod queue_pairs;
pub mod throttle;
mod tuning;
pub(crate) mod vmci;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use taut_api::error::ErrorKind;
use taut_api::host::{Accelerator, QemuInfo};
use taut_api::vm::{VmKind, VmSpec};
use taut_api::{ApiError, Mtu, Name};

pub use disk::{DiskChain, DiskImage};
pub use inherit::{FIRST, Source};
pub use memory::MemoryTuning;
pub use paths::RunPaths;
pub use qemu::private_socket;
pub use tuning::{Tuning, accelerator};

/// First major version of QEMU that supports MSI-X of vhost-user devices under emulation. Older
/// ones crash when the guest starts such a device.
pub(crate) const MSIX_WORKS_FROM: u64 = 8;

/// The parameters of a VM's start.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Name of the VM.
    pub name: &'a Name,
    /// The VM.
    pub spec: &'a VmSpec,
    /// Its sockets and logs.
    pub paths: &'a RunPaths,
    /// The accelerator of the host. The VM may choose another one ([`accelerator()`]).
    pub accelerator: &'a Accelerator,
    /// The QEMU of the host, if there is one.
    pub qemu: Option<&'a QemuInfo>,
    /// Folder of taut's own programs.
    pub libexec: &'a Path,
    /// Settings that are decided at the start.
    pub tuning: Tuning,
    /// MTU that the guest is told for each card; none for a card that cannot tell it.
    pub mtus: &'a BTreeMap<usize, Mtu>,
    /// The images of the VM's disk, if it has one.
    pub disk: Option<&'a DiskChain>,
}

/// What is needed to start a VM's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub args: Vec<String>,
    /// Its descriptors from [`FIRST`] on.
    pub sources: Vec<Source>,
}

impl Launch<'_> {
    /// Returns the program that runs the VM, its arguments and its descriptors.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the VM needs QEMU and the host has none;
    /// [`ErrorKind::Invalid`] when the path of the run directory is too long for Unix sockets.
    pub fn start(&self) -> Result<Start, ApiError> {
        self.paths.check(self.spec)?;
        match self.spec.kind {
            VmKind::Micro => Ok(micro::start(self)),
            VmKind::Qemu => {
                let qemu = self.qemu.ok_or_else(|| {
                    ApiError::new(
                        ErrorKind::Unavailable,
                        format!("this host has no QEMU to run `{}`", self.name),
                        "install qemu-system-x86 (10.0 preferred, 7.2 works)",
                    )
                })?;
                Ok(qemu::start(self, qemu))
            }
        }
    }
}

#[cfg(test)]
mod tests;
