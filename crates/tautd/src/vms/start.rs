//! Starting a VM's process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use taut_api::error::ErrorKind;
use taut_api::host::AcceleratorKind;
use taut_api::vm::{VmKind, VmSpec};
use taut_api::{ApiError, Name};
use taut_plan::facts::MemoryPlace;
use taut_vm::launch::{self, MemoryTuning, RunPaths, Tuning};

use super::{Record, Running, Vms};
use crate::board::HostFacts;
use crate::fabric::write_record;
use crate::process::Process;

impl Vms {
    /// Starts a VM, whose vCPUs get `exclusive` pCPUs or not, and whose memory lies as said. Its cards' sockets appear some time later.
    pub(crate) fn start(
        &mut self,
        name: &Name,
        spec: &VmSpec,
        host: &HostFacts,
        libexec: &Path,
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
        let mut command =
            launch::command(name, spec, &paths, &host.accelerator, host.qemu.as_ref(), libexec, tuning)?;
        make_dir(&paths).map_err(|error| failed("making the run directory", &error))?;
        remove_sockets(&paths, &ours(spec.kind, &paths));
        let log = File::create(paths.log()).map_err(|error| failed("making the log", &error))?;
        let errors = log.try_clone().map_err(|error| failed("making the log", &error))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir(paths.dir());
        let program = command.get_program().to_string_lossy().into_owned();
        let process = Process::spawn(&mut command, &[])
            .map_err(|error| failed(&format!("starting `{program}`"), &error))?;
        let record = Record {
            identity: process.identity(),
            kind: spec.kind,
            accelerator: accelerator(spec.kind, chosen.kind).to_owned(),
            vmci: spec.vmci.is_some(),
            tuning,
            disk_limits: taut_plan::resources::disk_limits::wanted_limits(spec),
        };
        if let Err(error) = write_record(&paths.pid(), &record) {
            // Without its record nobody would find it again.
            process.signal(rustix::process::Signal::KILL);
            return Err(failed("noting its process", &error));
        }
        let pid = process.pid();
        let Record { kind, accelerator, vmci, tuning, disk_limits, .. } = record;
        let running = Running { process, kind, accelerator, vmci, tuning, disk_limits, stopping: None };
        self.running.insert(name.clone(), running);
        Ok(pid)
    }

    /// Removes the sockets on which the daemon listened for a VM's VMCI device.
    pub(crate) fn remove_vmci_sockets(&self, name: &Name) {
        let paths = self.paths(name);
        let kind = self.running.get(name).map_or(VmKind::Qemu, |vm| vm.kind);
        for path in ours(kind, &paths) {
            // One that is not there is what is wanted; anything else is tried again.
            let _ = fs::remove_file(path);
        }
    }

    /// The files of one VM, their directory there.
    pub(crate) fn made_paths(&self, name: &Name) -> io::Result<RunPaths> {
        let paths = self.paths(name);
        make_dir(&paths)?;
        Ok(paths)
    }
}

/// As [`taut_api::vm::VmStatus::accelerator`] calls it.
const fn accelerator(kind: VmKind, host: AcceleratorKind) -> &'static str {
    match (kind, host) {
        (VmKind::Micro, _) => "native",
        (VmKind::Qemu, AcceleratorKind::Kvm) => "kvm",
        (VmKind::Qemu, AcceleratorKind::Tcg) => "tcg",
    }
}

/// As the process is told it.
fn tuned(place: &MemoryPlace) -> MemoryTuning {
    let virtual_nodes = place.nodes.len() as u8;
    let mut tuning = MemoryTuning { huge: place.huge, virtual_nodes, ..MemoryTuning::default() };
    for (mask, nodes) in tuning.host_nodes.iter_mut().zip(&place.nodes) {
        // Hosts with more nodes than that bind nothing.
        *mask = nodes.iter().filter(|node| **node < 64).fold(0, |mask, node| mask | 1 << node);
    }
    tuning
}

/// As the plan sees it.
pub(super) fn seen(tuning: &MemoryTuning) -> MemoryPlace {
    let of = |mask: &u64| (0..64).filter(|node| mask >> node & 1 == 1).collect();
    let nodes = tuning.host_nodes.iter().take(usize::from(tuning.virtual_nodes).max(1)).map(of).collect();
    MemoryPlace { nodes, huge: tuning.huge }
}

fn make_dir(paths: &RunPaths) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(paths.dir())
}

/// The sockets on which the fabric listens for the VM, before the VM is started.
fn ours(kind: VmKind, paths: &RunPaths) -> Vec<PathBuf> {
    let front = (kind == VmKind::Qemu).then(|| paths.vmci_front());
    front.into_iter().chain([paths.vmci()]).collect()
}

/// Sockets of an earlier process would be taken for the new one's.
pub(super) fn remove_sockets(paths: &RunPaths, except: &[PathBuf]) {
    let Ok(entries) = fs::read_dir(paths.dir()) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "sock") && !except.contains(&path) {
            // If it stays, the new process says that its address is in use.
            let _ = fs::remove_file(path);
        }
    }
}
