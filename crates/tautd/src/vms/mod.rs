//! Processes of VMs: starting, adopting, stopping, and recording why one ended.
//!
//! A VM's run directory holds its sockets, the file `pid` with the process's identity while it
//! runs, and the file `failed` with the reason of a failure until its next start. Its logs are
//! elsewhere ([`crate::console`]).

mod added_queue_pairs;
mod budget;
mod chain;
mod copies;
mod descriptors;
mod inspector;
mod preparation;
mod queue_pairs;
mod reason;
mod record;
mod start;
mod stop;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::net::SocketAddrUnix;
use taut_api::confinement::Confinement;
use taut_api::fabric::counters::MAX_PORTS;
use taut_api::link::WantedLink;
use taut_api::machine::DiskLimits;
use taut_api::vm::VmKind;
use taut_api::{Bytes, MacAddr, Name};
use taut_host::kernel::namespace;
use taut_host::kernel::topology::huge_memory;
use taut_plan::facts::{MachineSeen, MachineSize, VmSeen};
use taut_plan::placement::numa::PromisedPages;
use taut_vm::launch::{RunPaths, private_socket};

use crate::confine::{Confiner, is_program};
use crate::console::Console;
use crate::external::{connect_now, connect_to};
use crate::inbox::Inbox;
use crate::process::{Process, write_record};
use added_queue_pairs::AddProgress;
pub(crate) use added_queue_pairs::NextStep;
use budget::Budget;
use copies::{Copies, InUse};
use preparation::{Preparations, Tools};
use reason::Ending;
use record::{Facts, Record};
pub(crate) use start::Place;
use stop::Stopping;

/// The VMs of one run directory.
#[derive(Debug)]
pub(crate) struct Vms {
    /// Folder of the VMs' run directories.
    dir: PathBuf,
    /// Folder of taut's programs.
    libexec: PathBuf,
    /// Starts their processes behind walls.
    confiner: Confiner,
    /// Keeps what they write.
    console: Console,
    /// Starts in progress.
    preparations: Preparations,
    /// Huge pages of VMs whose processes are being launched.
    launching_pages: BTreeMap<Name, PromisedPages>,
    running: BTreeMap<Name, Running>,
}

/// One running VM.
#[derive(Debug)]
struct Running {
    process: Process,
    facts: Facts,
    /// Copies of its kernel and initrd, which serve other VMs as long as it runs.
    _copies: Vec<InUse>,
    stopping: Option<Stopping>,
    adding: AddProgress,
}

/// The way in which a VM's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The daemon had asked it to end.
    Stopped,
    /// The guest shut itself down.
    ShutDown,
    /// The process ended otherwise, for this reason.
    Failed(String),
}

impl Vms {
    /// Adopts the VMs that an earlier daemon left running below `run_dir`. `libexec` has taut's
    /// programs.
    pub(crate) fn adopt(
        run_dir: &Path,
        libexec: &Path,
        confiner: Confiner,
        console: Console,
        inbox: Inbox,
    ) -> io::Result<Self> {
        let dir = run_dir.join("vms");
        fs::create_dir_all(&dir)?;
        let mut running = BTreeMap::new();
        for name in names_in(&dir)? {
            let paths = RunPaths::new(dir.join(name.as_str()));
            let Some(Record { identity, facts }) = Record::read(&paths) else { continue };
            let process = Process::adopt(identity);
            if let Some(process) = process.filter(|process| !facts.waiting || is_program(process)) {
                console.adopt(&name, &paths);
                let (copies, adding) = (Vec::new(), AddProgress::default());
                running.insert(name, Running { process, facts, _copies: copies, stopping: None, adding });
            } else if facts.waiting {
                // The daemon ended in the middle of a start, which this one begins anew.
                clean_up(&paths, None);
                console.forget(&name, &paths);
            } else {
                let ending =
                    Ending { pid: identity.pid, status: None, while_away: true, images: &facts.images };
                console.flush_output(&name, &paths);
                let log = Console::process_log(&console.logs().vm(&name), &paths);
                clean_up(&paths, Some(&reason::describe(ending, &log, |_| None)));
                console.forget(&name, &paths);
            }
        }
        let libexec = libexec.to_owned();
        let (copies, budget) = (Copies::default(), Budget::default());
        let tools = Tools { confiner: confiner.clone(), libexec: libexec.clone(), copies, budget };
        let preparations = Preparations::new(tools, inbox);
        let waited: Vec<Name> =
            running.iter().filter(|(_, vm)| vm.facts.waiting).map(|(name, _)| name.clone()).collect();
        let launching_pages = BTreeMap::new();
        let mut vms = Self { dir, libexec, confiner, console, preparations, launching_pages, running };
        for name in &waited {
            vms.record_start(name);
        }
        Ok(vms)
    }

    /// Returns the handle of the process that keeps what VMs write.
    pub(crate) fn console(&self) -> &Console {
        &self.console
    }

    /// Returns the paths of one VM's files.
    pub(crate) fn paths(&self, name: &Name) -> RunPaths {
        RunPaths::new(self.dir.join(name.as_str()))
    }

    /// Observes every VM that has a run directory, logs or a process.
    pub(crate) fn seen(&self) -> BTreeMap<Name, VmSeen> {
        let names = names_in(&self.dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "the VMs' run directory cannot be read");
            Vec::new()
        });
        let names = names.into_iter().chain(self.console.logs().vms());
        let all: BTreeSet<Name> = names.chain(self.running.keys().cloned()).collect();
        all.into_iter().map(|name| (name.clone(), self.observe(&name))).collect()
    }

    fn observe(&self, name: &Name) -> VmSeen {
        let paths = self.paths(name);
        let process = self.running.get(name).map(|vm| vm.observe(&paths));
        let failure = process.is_none().then(|| fs::read_to_string(failed(&paths)).ok()).flatten();
        let (vmci_socket, host_socket) = (paths.vmci_front().exists(), paths.vmci().exists());
        VmSeen { process, failure, vmci_socket, host_socket }
    }

    /// Records the limits that a running VM's disk has now.
    pub(crate) fn record_disk_limits(&mut self, name: &Name, limits: DiskLimits) {
        let message = "the limits of its disk cannot be recorded: the next daemon sets them again";
        self.record_change(name, message, |vm| vm.facts.disk_limits = limits);
    }

    /// Records the link that QEMU shows the guest on one of its cards.
    pub(crate) fn record_link(&mut self, name: &Name, index: usize, link: WantedLink) {
        let message = "the link of its card cannot be recorded: the next daemon sets it again";
        self.record_change(name, message, |vm| match link {
            WantedLink::Up => drop(vm.facts.links_down.remove(&index)),
            WantedLink::Down => drop(vm.facts.links_down.insert(index)),
        });
    }

    /// Records the addresses that the guest's drivers have set for the cards of process `pid`, and
    /// returns those before. `None` if the VM has another process now.
    pub(crate) fn record_addresses(
        &mut self,
        name: &Name,
        pid: u32,
        addresses: &[Option<MacAddr>],
    ) -> Option<Vec<Option<MacAddr>>> {
        self.running.get(name).filter(|vm| vm.process.pid() == pid)?;
        let message = "the addresses of its cards cannot be recorded: the next daemon asks QEMU again";
        let orders = self.running.values().flat_map(|vm| &vm.facts.address_orders);
        let place = orders.max().map_or(1, |last| last + 1);
        let mut before = Vec::new();
        self.record_change(name, message, |vm| before = vm.facts.set_addresses(addresses, place));
        Some(before)
    }

    /// Records that a VM's process has become its program.
    fn record_start(&mut self, name: &Name) {
        let message = "its start cannot be recorded: if it ends while no daemon runs, it is started again";
        self.record_change(name, message, |vm| vm.facts.waiting = false);
    }

    /// Records that QEMU has finished starting; `pid` is its process.
    pub(crate) fn record_ready(&mut self, name: &Name, pid: u32) {
        if self.running.get(name).is_some_and(|vm| vm.process.pid() == pid) {
            let message = "the end of its start cannot be recorded: the next daemon asks QEMU again";
            self.record_change(name, message, |vm| vm.facts.ready = true);
        }
    }

    /// Records the sizes of VMs that a daemon without such records has started. A size cannot have
    /// changed since their start.
    pub(crate) fn record_missing_sizes(&mut self, size: impl Fn(&Name) -> Option<MachineSize>) {
        let unknown = self.running.iter().filter(|(_, vm)| vm.facts.size.is_none());
        let found = unknown.filter_map(|(name, _)| Some((name.clone(), size(name)?)));
        for (name, size) in found.collect::<Vec<_>>() {
            let message = "its size cannot be recorded: a change of it is not noticed by the next daemon";
            self.record_change(&name, message, |vm| vm.facts.size = Some(size));
        }
    }

    /// Changes what is known of a running VM, and its record for the next daemon.
    fn record_change(&mut self, name: &Name, unrecorded: &str, change: impl FnOnce(&mut Running)) {
        let path = self.paths(name).pid();
        let Some(vm) = self.running.get_mut(name) else { return };
        change(vm);
        if let Err(error) = write_record(&path, &vm.record()) {
            tracing::warn!(%error, vm = %name, "{unrecorded}");
        }
    }

    /// Opens the memory for queue pairs of a running VM; `None` if it has none.
    pub(crate) fn queue_pair_memory(&self, name: &Name) -> Option<io::Result<OwnedFd>> {
        let vm = self.running.get(name)?;
        Some(vm.facts.queue_pairs?.open(vm.process.pid()))
    }

    /// Connects to the socket of a VM's card without blocking. QEMU listens some time after its
    /// start.
    pub(crate) fn connect_nic(&self, name: &Name, index: usize) -> io::Result<OwnedFd> {
        match self.running.get(name).filter(|vm| vm.facts.private_cards.contains(&index)) {
            Some(vm) => {
                let socket = SocketAddrUnix::new_abstract_name(private_socket(index).as_bytes())?;
                namespace::within_process(vm.process.watch()?.as_fd(), || connect_to(&socket))
            }
            None => connect_now(&self.paths(name).nic(index)),
        }
    }

    /// Returns a descriptor for each VM that becomes readable when its process ends.
    pub(crate) fn watches(&self) -> Vec<(Name, OwnedFd)> {
        let watch = |(name, vm): (&Name, &Running)| Some((name.clone(), vm.process.watch().ok()?));
        self.running.iter().filter_map(watch).collect()
    }

    /// Returns each QEMU that has not finished starting, with its process and a descriptor that
    /// becomes readable when that ends.
    pub(crate) fn starting(&self) -> Vec<(Name, u32, io::Result<OwnedFd>)> {
        let starts = self.running.iter().filter(|(_, vm)| vm.facts.kind == VmKind::Qemu && !vm.facts.ready);
        starts.map(|(name, vm)| (name.clone(), vm.process.pid(), vm.process.watch())).collect()
    }

    /// Returns huge pages that starting VMs have not taken yet.
    pub(crate) fn promised_pages(&self) -> Vec<PromisedPages> {
        // A start that was given up takes none, although its thread may take long to end.
        let is_present = |(name, _): &(&Name, &PromisedPages)| self.preparations.is_present(name);
        let launching = self.launching_pages.iter().filter(is_present).map(|(_, pages)| pages.clone());
        let starts = self.running.values().filter(|vm| vm.facts.kind == VmKind::Qemu && !vm.facts.ready);
        let not_taken = |vm: &Running| {
            let PromisedPages { nodes, size } = start::huge_pages(&vm.facts)?;
            let taken = huge_memory(Path::new("/"), vm.process.pid());
            Some(PromisedPages { nodes, size: Bytes(size.0.saturating_sub(taken.0)) })
        };
        launching.chain(starts.filter_map(not_taken)).collect()
    }

    /// Cleans up after a VM's process and returns how it ended; `None` while it runs. The thread of
    /// a start reports the end of a process that has not become its program.
    pub(crate) fn ended(&mut self, name: &Name) -> Option<End> {
        let vm = self.running.get(name).filter(|vm| !vm.facts.waiting)?;
        if !vm.process.has_ended(std::time::Duration::ZERO) {
            return None;
        }
        let vm = self.running.remove(name)?;
        let paths = self.paths(name);
        let end = match vm.process.status() {
            _ if vm.stopping.is_some() => End::Stopped,
            Some(status) if status.success() => End::ShutDown,
            status => {
                let images = &vm.facts.images;
                let ending = Ending { pid: vm.process.pid(), status, while_away: false, images };
                let holder = |name: &str| self.holder(images.iter().find(|image| image.name == name)?.file?);
                self.console.flush_output(name, &paths);
                let log = Console::process_log(&self.console.logs().vm(name), &paths);
                End::Failed(reason::describe(ending, &log, holder))
            }
        };
        self.console.forget(name, &paths);
        clean_up(&paths, if let End::Failed(reason) = &end { Some(reason) } else { None });
        Some(end)
    }

    /// Returns the running VM whose disk has this file as an image.
    fn holder(&self, file: (u64, u64)) -> Option<Name> {
        let holds =
            |(_, vm): &(&Name, &Running)| vm.facts.images.iter().any(|image| image.file == Some(file));
        self.running.iter().find(holds).map(|(name, _)| name.clone())
    }

    /// Records why a VM does not run, until [`Vms::clear_failure`].
    pub(crate) fn fail(&self, name: &Name, reason: &str) {
        clean_up(&self.paths(name), Some(reason));
    }

    /// Removes the record of a VM's failure: its user starts it again, or deletes it.
    pub(crate) fn clear_failure(run_dir: &Path, name: &Name) {
        let path = failed(&RunPaths::new(run_dir.join("vms").join(name.as_str())));
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, vm = %name, "the record of its failure cannot be removed");
        }
    }

    /// Removes the run directory and the logs of a VM without a process.
    pub(crate) fn remove_dir(&self, name: &Name) {
        if let Err(error) = fs::remove_dir_all(self.dir.join(name.as_str()))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, vm = %name, "its run directory cannot be removed");
        }
        if let Err(error) = self.console.logs().vm(name).remove() {
            tracing::warn!(%error, vm = %name, "its logs cannot be removed");
        }
    }

    /// Returns whether any VM has a process.
    pub(crate) fn any_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Returns whether any VM was asked to stop and still runs.
    pub(crate) fn any_stopping(&self) -> bool {
        self.running.values().any(|vm| vm.stopping.is_some())
    }

    /// Returns the names of the VMs that have a process.
    pub(crate) fn running(&self) -> Vec<Name> {
        self.running.keys().cloned().collect()
    }
}

impl Running {
    fn record(&self) -> Record {
        Record { identity: self.process.identity(), facts: self.facts.clone() }
    }

    fn observe(&self, paths: &RunPaths) -> taut_plan::facts::Process {
        let facts = &self.facts;
        taut_plan::facts::Process {
            pid: self.process.pid(),
            kind: facts.kind,
            accelerator: facts.accelerator,
            stopping: self.stopping.is_some(),
            // A microguest has its sockets from the start, and needs no time for anything else.
            ready: facts.ready || facts.kind == VmKind::Micro,
            sockets: (0..MAX_PORTS)
                .take_while(|index| facts.private_cards.contains(index) || paths.nic(*index).exists())
                .collect(),
            vmci: facts.vmci,
            queue_pairs: facts.queue_pairs.map(|file| file.memory),
            queue_pairs_room: facts.queue_pairs_room,
            adds_queue_pairs: facts.pending_queue_pairs.is_some(),
            locked: facts.tuning.locked,
            limits: facts.limits,
            machine: MachineSeen {
                memory: start::seen(&facts.tuning.memory),
                cpu_pm: facts.tuning.cpu_pm,
                hint_dedicated: facts.tuning.hint_dedicated,
                poll_control: facts.tuning.poll_control,
                disk_limits: facts.disk_limits,
                size: facts.size,
                links_down: facts.links_down.clone(),
                addresses: facts.set_by_drivers(),
                mtus: facts.mtus.iter().copied().collect(),
            },
            confinement: facts.user.map(|user| Confinement {
                user,
                missing: facts.missing_walls.clone(),
                ..Confinement::default()
            }),
        }
    }
}

fn failed(paths: &RunPaths) -> PathBuf {
    paths.dir().join("failed")
}

fn names_in(dir: &Path) -> io::Result<Vec<Name>> {
    let entries = fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(entries.collect())
}

/// Removes the files that an ended process left, and records the reason if it failed.
fn clean_up(paths: &RunPaths, reason: Option<&str>) {
    start::remove_sockets(paths, &[]);
    // A process that was never started has no such file.
    let _ = fs::remove_file(paths.pid());
    if let Some(reason) = reason
        && let Err(error) = fs::create_dir_all(paths.dir()).and_then(|()| fs::write(failed(paths), reason))
    {
        tracing::warn!(%error, reason, "the reason of a failure cannot be recorded");
    }
}

#[cfg(test)]
mod tests;
