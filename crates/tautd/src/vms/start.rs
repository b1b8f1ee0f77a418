//! Starting a VM's process.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use taut_api::error::ErrorKind;
use taut_api::host::AcceleratorKind;
use taut_api::machine::VmAccelerator;
use taut_api::vm::{VmKind, VmSpec};
use taut_api::{ApiError, Name};
use taut_plan::facts::{MachineSize, MemoryPlace};
use taut_plan::resources::disk_limits::wanted_limits;
use taut_vm::launch::{self, Launch, MemoryTuning, RunPaths, Tuning};

use super::{Record, Running, Vms};
use crate::board::HostFacts;
use crate::process::{OomScore, Process, write_record};

/// Time limit for the end of a process that was killed right after its start.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

impl Vms {
    /// Starts a VM's process. `exclusive` tells whether its vCPUs will own pCPUs. The sockets of
    /// its vNICs appear some time later.
    pub(crate) fn start(
        &mut self,
        name: &Name,
        spec: &VmSpec,
        host: &HostFacts,
        exclusive: bool,
        memory: &MemoryPlace,
    ) -> Result<u32, ApiError> {
        let paths = self.paths(name);
        let failed = |what: &str, error: &io::Error| {
            ApiError::new(
                ErrorKind::Unavailable,
                format!("{what} for VM `{name}` failed"),
                "remove the cause, then start it again",
            )
            .because(error)
        };
        let chosen = launch::accelerator(spec, &host.accelerator);
        let tuning = Tuning { memory: tuned(memory), ..Tuning::of(spec, &chosen, exclusive) };
        let launch = Launch {
            name,
            spec,
            paths: &paths,
            accelerator: &host.accelerator,
            qemu: host.qemu.as_ref(),
            libexec: &self.libexec,
            tuning,
        };
        let mut command = launch.command()?;
        make_dir(&paths).map_err(|error| failed("making the run directory", &error))?;
        remove_sockets(&paths, &listening_sockets(spec.kind, &paths));
        let log = File::create(paths.log()).map_err(|error| failed("making the log", &error))?;
        let errors = log.try_clone().map_err(|error| failed("making the log", &error))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir(paths.dir());
        let program = command.get_program().to_string_lossy().into_owned();
        let process = Process::spawn(&mut command, &[], OomScore::VM)
            .map_err(|error| failed(&format!("starting `{program}`"), &error))?;
        let record = Record {
            identity: process.identity(),
            kind: spec.kind,
            accelerator: accelerator(spec.kind, chosen.kind),
            vmci: spec.vmci.is_some(),
            tuning,
            disk_limits: wanted_limits(spec),
            size: Some(MachineSize::of(spec)),
            links_down: BTreeSet::new(),
            ready: false,
        };
        if let Err(error) = write_record(&paths.pid(), &record) {
            // Without its record no daemon could adopt it.
            process.kill(KILLED_WITHIN);
            return Err(failed("recording the process", &error));
        }
        let pid = process.pid();
        self.running.insert(name.clone(), Running::new(process, record));
        Ok(pid)
    }

    /// Removes the sockets on which the daemon listens for a VM's VMCI device.
    pub(crate) fn remove_vsock_sockets(&self, name: &Name) {
        let paths = self.paths(name);
        let kind = self.running.get(name).map_or(VmKind::Qemu, |vm| vm.kind);
        for path in listening_sockets(kind, &paths) {
            // The file may not exist; any other error shows at the next attempt.
            let _ = fs::remove_file(path);
        }
    }

    /// Makes a VM's run directory and returns the paths of its files.
    pub(crate) fn made_paths(&self, name: &Name) -> io::Result<RunPaths> {
        let paths = self.paths(name);
        make_dir(&paths)?;
        Ok(paths)
    }
}

/// The accelerator of a VM of this kind.
const fn accelerator(kind: VmKind, host: AcceleratorKind) -> VmAccelerator {
    match (kind, host) {
        (VmKind::Micro, _) => VmAccelerator::Native,
        (VmKind::Qemu, AcceleratorKind::Kvm) => VmAccelerator::Kvm,
        (VmKind::Qemu, AcceleratorKind::Tcg) => VmAccelerator::Tcg,
    }
}

/// Converts a place of memory to the form of the process's command line.
fn tuned(place: &MemoryPlace) -> MemoryTuning {
    let virtual_nodes = place.nodes.len() as u8;
    let mut tuning = MemoryTuning { huge: place.huge, virtual_nodes, ..MemoryTuning::default() };
    for (mask, nodes) in tuning.host_nodes.iter_mut().zip(&place.nodes) {
        // Nodes from 64 on cannot be bound.
        *mask = nodes.iter().filter(|node| **node < 64).fold(0, |mask, node| mask | 1 << node);
    }
    tuning
}

/// Converts the form of the command line back to a place of memory.
pub(super) fn seen(tuning: &MemoryTuning) -> MemoryPlace {
    let of = |mask: &u64| (0..64).filter(|node| mask >> node & 1 == 1).collect();
    let nodes = tuning.host_nodes.iter().take(usize::from(tuning.virtual_nodes).max(1)).map(of).collect();
    MemoryPlace { nodes, huge: tuning.huge }
}

fn make_dir(paths: &RunPaths) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(paths.dir())
}

/// Returns the sockets on which the fabric listens for the VM before the VM is started.
fn listening_sockets(kind: VmKind, paths: &RunPaths) -> Vec<PathBuf> {
    let front = (kind == VmKind::Qemu).then(|| paths.vmci_front());
    front.into_iter().chain([paths.vmci()]).collect()
}

/// Removes the sockets of an earlier process, which would be mistaken for those of the new one.
pub(super) fn remove_sockets(paths: &RunPaths, except: &[PathBuf]) {
    let Ok(entries) = fs::read_dir(paths.dir()) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "sock") && !except.contains(&path) {
            // If this fails, the new process reports that the address is in use.
            let _ = fs::remove_file(path);
        }
    }
}
