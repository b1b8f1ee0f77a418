//! Starting a VM's process: the part of the reconcile loop, which waits for no file of a user.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use taut_api::enforcement::ProcessLimits;
use taut_api::error::ErrorKind;
use taut_api::host::AcceleratorKind;
use taut_api::machine::VmAccelerator;
use taut_api::vm::{NicModel, VmKind, VmSpec};
use taut_api::{ApiError, Mtu, Name};
use taut_plan::facts::{MachineSize, MemoryPlace};
use taut_plan::placement::numa::PromisedPages;
use taut_plan::resources::disk_limits::wanted_limits;
use taut_plan::resources::process_limits::{ProcessNeeds, limit_process};
use taut_vm::launch::{self, Launch, MemoryTuning, RunPaths, Tuning};

use super::added_queue_pairs::AddProgress;
use super::preparation::{Launched, Order, Outcome, Request};
use super::record::{Facts, Record};
use super::{Running, Vms, clean_up};
use crate::access::rights::Rights;
use crate::board::{HostFacts, StartStep};
use crate::confine::Devices;
use crate::process::Process;

/// Threads of the VM's user beyond the limit of its control group, which is reached first: only
/// that limit leads to an event. Where there is no such group, the user's limit holds.
const MORE_THREADS: u64 = 16;
/// Time between two looks at a process that is being launched when the daemon ends.
const LOOK: Duration = Duration::from_millis(10);

/// What is decided about a VM that starts.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// Its vCPUs will own pCPUs.
    pub(crate) exclusive: bool,
    /// The place of its memory.
    pub(crate) memory: &'a MemoryPlace,
    /// MTU that the guest is told for each card; none for a card that cannot tell it.
    pub(crate) mtus: BTreeMap<usize, Mtu>,
}

impl Vms {
    /// Has the files that a VM's description names opened with the rights of `owner`, on a thread
    /// that [`Vms::begin_starts`] starts. Returns whether the VM can be launched now.
    pub(crate) fn prepare(&mut self, name: &Name, spec: &VmSpec, owner: &Rights) -> bool {
        self.preparations.want(name, Request { spec: spec.clone(), owner: owner.clone() })
    }

    /// Starts the threads of starts for which there is room.
    pub(crate) fn begin_starts(&mut self) {
        self.preparations.begin_queued();
    }

    /// Launches the process of a VM that was prepared, on another thread. [`Vms::finish_starts`]
    /// returns the result.
    pub(crate) fn launch(
        &mut self,
        name: &Name,
        spec: &VmSpec,
        host: &HostFacts,
        place: &Place<'_>,
    ) -> Result<(), ApiError> {
        let Some(prepared) = self.preparations.prepared(name) else { return Ok(()) };
        let paths = self.paths(name);
        let failed = |what: &str, error: &io::Error| {
            let message = format!("{what} for VM `{name}` failed");
            ApiError::new(ErrorKind::Unavailable, message, "remove the cause, then start it again")
                .because(error)
        };
        let chosen = launch::accelerator(spec, &host.accelerator);
        let tuning = Tuning { memory: tuned(place.memory), ..Tuning::of(spec, &chosen, place.exclusive) };
        let disk = spec.disk.as_ref().filter(|_| spec.kind == VmKind::Qemu);
        let launch = Launch {
            name,
            spec,
            paths: &paths,
            accelerator: &host.accelerator,
            qemu: host.qemu.as_ref(),
            libexec: &self.libexec,
            tuning,
            mtus: &place.mtus,
            disk: disk.map(|_| &prepared.chain),
        };
        let start = launch.start()?;
        let accelerator = accelerator(spec.kind, chosen.kind);
        let size = MachineSize::of(spec);
        let limits = limit_process(&ProcessNeeds {
            accelerator,
            size,
            huge: place.memory.huge,
            locked: tuning.locked,
            kernel: prepared.kernel_size(),
        });
        let facts = Facts {
            kind: spec.kind,
            accelerator,
            vmci: spec.vmci.is_some(),
            queue_pairs: None,
            queue_pairs_room: spec.queue_pairs_room(),
            pending_queue_pairs: None,
            tuning,
            disk_limits: wanted_limits(spec),
            size: Some(size),
            limits: Some(limits),
            links_down: BTreeSet::new(),
            addresses: Vec::new(),
            address_orders: Vec::new(),
            mtus: place.mtus.clone().into_iter().collect(),
            ready: false,
            private_cards: private_cards(spec),
            images: prepared.images.clone(),
            user: None,
            missing_walls: Vec::new(),
            waiting: false,
        };
        make_dir(&paths).map_err(|error| failed("making the run directory", &error))?;
        remove_sockets(&paths, &listening_sockets(spec.kind, &paths));
        remove_old_logs(&paths);
        let mut users = self.preparations.users();
        users.extend(self.running.values().filter_map(|vm| vm.facts.user));
        let user = self.confiner.users().of_vm(&users)?;
        self.console.begin_output(name, &paths).map_err(|error| failed("keeping its output", &error))?;
        let order = Order {
            start,
            paths,
            user,
            devices: devices(spec, chosen.kind),
            locks_memory: tuning.locked || !spec.passthrough.is_empty(),
            threads: limits.processes + MORE_THREADS,
            facts,
        };
        self.launching_pages.extend(huge_pages(&order.facts).map(|pages| (name.clone(), pages)));
        self.preparations.launch(name, order)
    }

    /// Confirms processes that wait, and returns the process of each VM that was started since the
    /// last call, or why it was not. `limit` puts a process into its control groups before its
    /// program runs.
    pub(crate) fn finish_starts(
        &mut self,
        mut limit: impl FnMut(&Name, u32, &ProcessLimits),
    ) -> Vec<(Name, Result<u32, ApiError>)> {
        let mut finished = Vec::new();
        for (name, outcome) in self.preparations.outcomes() {
            // From here on its process tells which it has taken, or there is none.
            self.launching_pages.remove(&name);
            match outcome {
                Outcome::Waiting(launched) => self.confirm(&name, launched, &mut limit),
                Outcome::Started => finished.extend(self.started(&name).map(|pid| (name, Ok(pid)))),
                Outcome::Failed(error) => {
                    self.forget_start(&name);
                    finished.push((name, Err(error)));
                }
                Outcome::GivenUp => self.forget_start(&name),
            }
        }
        finished
    }

    /// Watches and limits a process that waits, and lets its program run.
    fn confirm(
        &mut self,
        name: &Name,
        launched: Launched,
        limit: &mut impl FnMut(&Name, u32, &ProcessLimits),
    ) {
        let Launched { record, copies, confirm } = launched;
        let Record { identity, facts } = *record;
        let watched = Process::of_child(identity.pid).map(|process| {
            let vm =
                Running { process, facts, _copies: copies, stopping: None, adding: AddProgress::default() };
            // The next plan has the same limits.
            if let Some(limits) = &vm.facts.limits {
                limit(name, identity.pid, limits);
            }
            self.running.insert(name.clone(), vm);
        });
        // Fails only for a thread that has panicked, and the report of its end tells that.
        let _ = confirm.send(watched);
    }

    /// Takes note of a program that runs, and returns its process.
    fn started(&mut self, name: &Name) -> Option<u32> {
        self.record_start(name);
        let vm = self.running.get(name)?;
        if vm.facts.kind == VmKind::Qemu {
            self.console.connect_serial(name, &self.paths(name));
        }
        Some(vm.process.pid())
    }

    /// Removes what a start has left that came to nothing.
    fn forget_start(&mut self, name: &Name) {
        if let Some(vm) = self.running.remove(name) {
            // Its thread has ended it, unless that has panicked.
            vm.process.kill(Duration::ZERO);
        }
        let paths = self.paths(name);
        self.console.forget(name, &paths);
        clean_up(&paths, None);
    }

    /// Ends the start of a VM that could not be launched.
    pub(crate) fn abort_start(&mut self, name: &Name) {
        self.launching_pages.remove(name);
        self.preparations.give_up(name);
        self.console.forget(name, &self.paths(name));
    }

    /// Gives up the starts of VMs that are not wanted.
    pub(crate) fn give_up_starts_unless(&mut self, is_wanted: impl Fn(&Name) -> bool) {
        self.preparations.give_up_unless(is_wanted);
    }

    /// Gives up all starts, and waits at most `patience` for processes that are being launched.
    pub(crate) fn end_starts(&mut self, patience: Duration) {
        self.preparations.give_up_unless(|_| false);
        // No further process is confirmed.
        let no_limit = |_: &Name, _: u32, _: &ProcessLimits| {};
        let end = Instant::now() + patience;
        while !self.preparations.users().is_empty() && Instant::now() < end {
            self.finish_starts(no_limit);
            std::thread::sleep(LOOK);
        }
        self.finish_starts(no_limit);
    }

    /// Returns what the start of each VM without a process does.
    pub(crate) fn start_steps(&self) -> BTreeMap<Name, StartStep> {
        self.preparations.steps()
    }

    /// Removes the sockets on which the daemon listens for a VM's VMCI device.
    pub(crate) fn remove_vsock_sockets(&self, name: &Name) {
        let paths = self.paths(name);
        let kind = self.running.get(name).map_or(VmKind::Qemu, |vm| vm.facts.kind);
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

/// Returns the huge pages that a VM takes when it starts; `None` if it takes none.
pub(super) fn huge_pages(facts: &Facts) -> Option<PromisedPages> {
    let place = seen(&facts.tuning.memory);
    let size = facts.size.filter(|_| place.huge)?.memory;
    Some(PromisedPages { nodes: place.nodes.into_iter().flatten().collect(), size })
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
