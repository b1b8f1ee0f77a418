//! Starting a VM's process.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use taut_api::error::ErrorKind;
use taut_api::host::AcceleratorKind;
use taut_api::machine::VmAccelerator;
use taut_api::vm::{NicModel, VmKind, VmSpec};
use taut_api::{ApiError, Name};
use taut_plan::facts::{MachineSize, MemoryPlace};
use taut_plan::resources::disk_limits::wanted_limits;
use taut_vm::launch::{self, Launch, MemoryTuning, RunPaths, Tuning};

use super::chain::{OpenChain, open_chain};
use super::descriptors::{OVERLAYS, Opened, open_all};
use super::inspector::Inspectors;
use super::{Record, Running, Vms};
use crate::access::rights::Rights;
use crate::board::HostFacts;
use crate::confine::{self, Devices, Program, Walls};
use crate::process::{OomScore, write_record};

/// Threads of a VM's process besides its vCPUs: QEMU reads and writes disks with up to 64.
const HELPER_THREADS: u64 = 96;
/// Time limit for the end of a process that was killed right after its start.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

impl Vms {
    /// Starts a VM's process. Its files are opened with the rights of `owner`. `exclusive` tells
    /// whether its vCPUs will own pCPUs. QEMU listens for its virtio cards some time later.
    pub(crate) fn start(
        &mut self,
        name: &Name,
        spec: &VmSpec,
        owner: &Rights,
        host: &HostFacts,
        exclusive: bool,
        memory: &MemoryPlace,
    ) -> Result<u32, ApiError> {
        let paths = self.paths(name);
        let failed = |what: &str, error: &io::Error| {
            ApiError::new(
                ErrorKind::Unavailable,
                format!("{what} for VM `{name}` failed"),
                confine::hint(error).unwrap_or("remove the cause, then start it again"),
            )
            .because(error)
        };
        let chosen = launch::accelerator(spec, &host.accelerator);
        let tuning = Tuning { memory: tuned(memory), ..Tuning::of(spec, &chosen, exclusive) };
        let disk = spec.disk.as_ref().filter(|_| spec.kind == VmKind::Qemu);
        let inspectors = Inspectors { confiner: &self.confiner, libexec: &self.libexec };
        let OpenChain { chain, files, mut names } =
            disk.map(|disk| open_chain(disk, owner, &inspectors)).transpose()?.unwrap_or_default();
        if disk.is_some_and(|disk| disk.snapshot) {
            names.push(format!("the file for discarded writes in {OVERLAYS}"));
        }
        let launch = Launch {
            name,
            spec,
            paths: &paths,
            accelerator: &host.accelerator,
            qemu: host.qemu.as_ref(),
            libexec: &self.libexec,
            tuning,
            disk: disk.map(|_| &chain),
        };
        let start = launch.start()?;
        make_dir(&paths).map_err(|error| failed("making the run directory", &error))?;
        remove_sockets(&paths, &listening_sockets(spec.kind, &paths));
        remove_old_logs(&paths);
        let descriptors = open_all(&start.sources, owner, files, &mut self.copies)?;
        let user = self.confiner.users().of_vm(&self.running.values().filter_map(|vm| vm.user).collect())?;
        let output = self.console.begin_output(name, &paths);
        let output = output.map_err(|error| failed("keeping its output", &error))?;
        let started = self.confiner.start(&Program {
            path: &start.program,
            args: &start.args,
            descriptors: descriptors.iter().zip(launch::FIRST..).map(|(fd, at)| (fd.as_fd(), at)).collect(),
            input: None,
            output: &output,
            errors: &output,
            user,
            oom: OomScore::VM,
            devices: devices(spec, chosen.kind),
            locks_memory: tuning.locked || !spec.passthrough.is_empty(),
            threads: u64::from(spec.vcpus) + HELPER_THREADS,
            walls: Walls::Vm,
            run_dir: paths.dir(),
        });
        let copies = descriptors.iter().filter_map(Opened::shared).collect();
        // The process alone keeps locks on images, and sockets that listen.
        drop((descriptors, output));
        if started.is_err() {
            self.console.forget(name, &paths);
        }
        let started =
            started.map_err(|error| failed(&format!("starting `{}`", start.program.display()), &error))?;
        let record = Record {
            identity: started.process.identity(),
            kind: spec.kind,
            accelerator: accelerator(spec.kind, chosen.kind),
            vmci: spec.vmci.is_some(),
            tuning,
            disk_limits: wanted_limits(spec),
            size: Some(MachineSize::of(spec)),
            links_down: BTreeSet::new(),
            ready: false,
            private_cards: private_cards(spec),
            images: names,
            user: started.user,
            missing_walls: started.missing,
        };
        if let Err(error) = write_record(&paths.pid(), &record) {
            // Without its record no daemon could adopt it.
            started.process.kill(KILLED_WITHIN);
            self.console.forget(name, &paths);
            return Err(failed("recording the process", &error));
        }
        if spec.kind == VmKind::Qemu {
            self.console.connect_serial(name, &paths);
        }
        let pid = started.process.pid();
        self.running
            .insert(name.clone(), Running { _copies: copies, ..Running::new(started.process, record) });
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

/// Returns the cards for which QEMU listens in its own network namespace.
fn private_cards(spec: &VmSpec) -> BTreeSet<usize> {
    let cards = spec.nics.iter().enumerate().filter(|(_, card)| card.model == NicModel::Virtio);
    cards.map(|(index, _)| index).filter(|_| spec.kind == VmKind::Qemu).collect()
}

/// Returns the devices of the host that a VM's process uses.
fn devices(spec: &VmSpec, accelerator: AcceleratorKind) -> Devices {
    Devices {
        kvm: spec.kind == VmKind::Qemu && accelerator == AcceleratorKind::Kvm,
        passed: spec.passthrough.iter().map(|device| device.address).collect(),
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

/// Removes the logs that version 0.1 left in the run directory.
fn remove_old_logs(paths: &RunPaths) {
    for path in [paths.log(), paths.console_log()] {
        // They rarely exist.
        let _ = fs::remove_file(path);
    }
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
