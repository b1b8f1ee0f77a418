//! Where a running VM's sockets and logs are.

use std::path::{Path, PathBuf};

use taut_api::ApiError;
use taut_api::vm::VmSpec;

use crate::error::invalid;

/// Longest path of a Unix socket: `sun_path` without its terminating zero.
const MOST_SOCKET_PATH: usize = 107;

/// A VM's run directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    dir: PathBuf,
}

impl RunPaths {
    /// The files of the VM whose run directory is `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// QEMU's monitor (QMP); QEMU listens.
    pub fn qmp(&self) -> PathBuf {
        self.dir.join("qmp.sock")
    }

    /// The channel to the agent inside the VM; the VM listens.
    pub fn agent(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    /// The serial console; QEMU listens.
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.sock")
    }

    /// Everything that the serial console printed.
    pub fn console_log(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// What the VM's process itself prints.
    pub fn log(&self) -> PathBuf {
        self.dir.join("vm.log")
    }

    /// Process number and start time.
    pub fn pid(&self) -> PathBuf {
        self.dir.join("pid")
    }

    /// The socket of a card; the VM listens. vhost-user for virtio, QEMU's stream protocol for emulated models.
    pub fn nic(&self, index: usize) -> PathBuf {
        self.dir.join(format!("nic{index}.sock"))
    }

    /// Between the front end of the VMCI device and the fabric. taut listens for QEMU; a microguest listens itself.
    pub fn vmci_front(&self) -> PathBuf {
        self.dir.join("vmci.front.sock")
    }

    /// Where programs of the host reach the guest's VMCI sockets; taut listens. What the guest connects to at the host is a
    /// socket of this name with `_<port>` appended.
    pub fn vmci(&self) -> PathBuf {
        self.dir.join("vmci.sock")
    }

    /// Where a program of the host listens whom the guest reaches by connecting to this port of the host.
    pub fn vmci_of_host(&self, port: u32) -> PathBuf {
        self.dir.join(format!("vmci.sock_{port}"))
    }

    /// Can sockets and options name everything in this directory?
    pub(super) fn check(&self, spec: &VmSpec) -> Result<(), ApiError> {
        let shown = self.dir.display();
        let hint = "use another run directory";
        let vmci = spec.vmci.as_ref().map(|_| self.vmci_of_host(u32::MAX));
        let paths = [self.console(), self.nic(spec.nics.len())].into_iter().chain(vmci);
        let longest = paths.map(|path| path.as_os_str().len()).max();
        if let Some(length) = longest.filter(|length| *length > MOST_SOCKET_PATH) {
            return Err(invalid(
                format!(
                    "socket paths in `{shown}` would have {length} bytes; Unix sockets allow {MOST_SOCKET_PATH}"
                ),
                hint,
            ));
        }
        // Options of QEMU and of microguests separate their parts by commas.
        if shown.to_string().contains(',') {
            return Err(invalid(format!("the run directory `{shown}` has a comma in its path"), hint));
        }
        Ok(())
    }
}
