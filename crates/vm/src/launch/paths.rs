//! Paths of a running VM's sockets and logs.

use std::path::{Path, PathBuf};

use taut_api::ApiError;
use taut_api::vm::VmSpec;

use crate::error::invalid;

/// Longest path of a Unix socket in bytes: `sun_path` without its terminating zero.
const MOST_SOCKET_PATH: usize = 107;

/// The run directory of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    dir: PathBuf,
}

impl RunPaths {
    /// The paths of the VM with the run directory `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Socket of QEMU's monitor (QMP). QEMU listens.
    pub fn qmp(&self) -> PathBuf {
        self.dir.join("qmp.sock")
    }

    /// Socket of QEMU's second monitor, for one client that stays and waits for events. QEMU
    /// listens.
    pub fn events(&self) -> PathBuf {
        self.dir.join("events.sock")
    }

    /// Socket of the channel to the agent inside the VM. The VM listens.
    pub fn agent(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    /// Socket of the guest's serial port. QEMU serves one client at a time: the console process.
    pub fn serial(&self) -> PathBuf {
        self.dir.join("serial.sock")
    }

    /// Socket of the serial console for people. The console process listens.
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.sock")
    }

    /// FIFO that the VM's process has as standard output and error.
    pub fn pipe(&self) -> PathBuf {
        self.dir.join("vm.pipe")
    }

    /// Log of the serial console's output, of a VM that version 0.1 started. Others have it in the
    /// directory of logs.
    pub fn console_log(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// Log of the output of the VM's process, likewise.
    pub fn log(&self) -> PathBuf {
        self.dir.join("vm.log")
    }

    /// File with process ID and start time.
    pub fn pid(&self) -> PathBuf {
        self.dir.join("pid")
    }

    /// Socket of a card. The VM listens. The protocol is vhost-user for virtio, QEMU's stream
    /// protocol for emulated models.
    pub fn nic(&self, index: usize) -> PathBuf {
        self.dir.join(format!("nic{index}.sock"))
    }

    /// Socket between the front end of the VMCI device and the fabric. tautd listens for QEMU; a
    /// microguest listens itself.
    pub fn vmci_front(&self) -> PathBuf {
        self.dir.join("vmci.front.sock")
    }

    /// Socket through which programs of the host connect to the guest's VMCI sockets. taut listens.
    /// When the guest connects to a port of the host, taut connects to this path with `_<port>`
    /// appended.
    pub fn vmci(&self) -> PathBuf {
        self.dir.join("vmci.sock")
    }

    /// Socket on which a program of the host listens for the guest's connections to `port`.
    pub fn vmci_of_host(&self, port: u32) -> PathBuf {
        self.dir.join(format!("vmci.sock_{port}"))
    }

    /// Checks that all paths in this directory are valid for sockets and command-line options.
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
        // Options of QEMU and of microguests are separated by commas.
        if shown.to_string().contains(',') {
            return Err(invalid(format!("the path of the run directory `{shown}` contains a comma"), hint));
        }
        Ok(())
    }
}
