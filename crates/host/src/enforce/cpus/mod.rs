//! pCPUs of VMs (LS-3 to LS-6): those that vCPUs own, and those that vCPUs share.
//!
//! For pCPUs that a VM owns, other tasks, interrupts and kernel work are moved off, sleep states
//! with a wake-up latency are forbidden, and each vCPU is bound.

mod fence;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use taut_api::Name;
use taut_api::enforcement::{CpuShare, HostPlan, HostReport};

use crate::kernel::adjust::Adjustments;
use crate::kernel::affinity::{self, Affinities};
use crate::kernel::{halt_poll, irq, list, pm_qos, workqueue};
use crate::ledger::{Holder, Ledger, LedgerError};
use fence::Fence;

/// The part of enforcement that gives VMs their pCPUs.
#[derive(Debug)]
pub(super) struct Cpus {
    root: PathBuf,
    fence: Option<Fence>,
    ledger: Ledger,
    /// VMs with cpusets or partitions, and the pCPUs that their vCPUs own, as in the ledger.
    vms: BTreeMap<Name, Vec<u32>>,
    /// pCPUs that their vCPU threads were allowed before, as in the ledger.
    affinities: BTreeMap<Name, Affinities>,
    /// True if the ledger has files changed for VMs.
    changed: bool,
    /// Files that cannot be changed, such as interrupts that the hardware binds, and why.
    refused: BTreeMap<PathBuf, String>,
}

/// A VM whose vCPUs own pCPUs.
struct Owner<'a> {
    name: &'a Name,
    pid: u32,
    /// The pCPU of each vCPU.
    cpus: &'a [u32],
    /// SMT siblings that stay idle.
    idle: &'a [u32],
}

/// Returns the VMs whose vCPUs own pCPUs.
fn owners(plan: &HostPlan) -> Vec<Owner<'_>> {
    plan.vms
        .iter()
        .filter_map(|(name, vm)| match &vm.cpus {
            CpuShare::Exclusive { cpus, idle } => Some(Owner { name, pid: vm.pid, cpus, idle }),
            CpuShare::Any | CpuShare::Bound(_) => None,
        })
        .collect()
}

/// Returns whether the plan gives the VM pCPUs, of its own or shared.
fn has_cpus(plan: &HostPlan, name: &Name) -> bool {
    plan.vms.get(name).is_some_and(|vm| vm.cpus != CpuShare::Any)
}

impl Cpus {
    /// Reads from the ledger what an earlier process did. See [`super::Enforcer::new`].
    pub(super) fn new(root: &Path, scope: Option<&Path>, ledger: Ledger) -> Result<Self, LedgerError> {
        let fence = Fence::find(root, scope);
        let (book, changed) = (ledger.book()?, ledger.has_changes(Holder::Daemon)?);
        Ok(Self {
            root: root.to_owned(),
            fence,
            ledger,
            vms: book.vms,
            affinities: book.affinities,
            changed,
            refused: BTreeMap::new(),
        })
    }

    /// Returns the VMs with pCPUs of their own, in force or begun.
    pub(super) const fn owned(&self) -> &BTreeMap<Name, Vec<u32>> {
        &self.vms
    }

    /// Returns whether nothing on the host is changed.
    pub(super) fn is_idle(&self) -> bool {
        self.vms.is_empty() && self.affinities.is_empty() && !self.changed
    }

    /// Gives VMs the pCPUs of the plan. `interrupts` are those of VMs' devices, with their pCPUs.
    pub(super) fn settle(
        &mut self,
        plan: &HostPlan,
        interrupts: &BTreeMap<u32, BTreeSet<u32>>,
        report: &mut HostReport,
    ) -> Result<(), LedgerError> {
        report.cpu_problems.clear();
        report.fixed_interrupts.clear();
        for vm in report.vms.values_mut() {
            (vm.bound, vm.exclusive, vm.unbound) = (false, false, None);
        }
        let wants_nothing = plan.poll_ns.is_none() && !plan.vms.keys().any(|name| has_cpus(plan, name));
        if wants_nothing && self.is_idle() {
            return Ok(());
        }
        let owners = owners(plan);
        let owned: BTreeMap<Name, Vec<u32>> =
            owners.iter().map(|owner| (owner.name.clone(), owner.cpus.to_vec())).collect();
        if owned != self.vms {
            // Refused files may be wanted otherwise now.
            self.refused.clear();
        }
        let had_owners = !self.vms.is_empty();
        self.record_before(plan, &owned)?;
        let mut remaining = self.release_former_owners(plan, report);
        let shrunk = self.change_files(plan, &owners, interrupts, report)?;
        let alone = self.evict_other_tasks(plan, &owners, report) && shrunk;
        for owner in &owners {
            let threads = affinity::vcpus(&self.root, owner.pid);
            // Binding helps the VM even without a fence.
            let enclosed = self.enclose(owner, &threads, report);
            bind(owner, &threads, alone && enclosed, report);
        }
        self.bind_shared(plan, report);
        // Only what this ledger has made is removed; another daemon's cpuset stays.
        if owners.is_empty()
            && had_owners
            && let Some(fence) = &self.fence
            && let Err(error) = fence.readmit_tasks()
        {
            let problem = format!("the cpuset of other tasks cannot be removed yet: {error}");
            report.cpu_problems.push(problem);
            // Recorded as theirs, so that this or the next process tries again.
            remaining.clone_from(&self.vms);
        }
        let mut affinities = self.affinities.clone();
        affinities.retain(|name, _| has_cpus(plan, name));
        self.record(owned.into_iter().chain(remaining).collect(), affinities)
    }

    /// Records the VMs that are about to own pCPUs, and where their vCPUs may run before.
    fn record_before(
        &mut self,
        plan: &HostPlan,
        owned: &BTreeMap<Name, Vec<u32>>,
    ) -> Result<(), LedgerError> {
        let common = self.fence.as_ref().and_then(Fence::common).unwrap_or_else(|| self.online());
        let affinities = threads::allowed_before(&self.root, &self.affinities, plan, &common);
        // VMs that lose their pCPUs stay in the ledger until they have lost them.
        self.record(self.vms.clone().into_iter().chain(owned.clone()).collect(), affinities)?;
        self.changed = true;
        Ok(())
    }

    fn record(
        &mut self,
        vms: BTreeMap<Name, Vec<u32>>,
        affinities: BTreeMap<Name, Affinities>,
    ) -> Result<(), LedgerError> {
        if vms != self.vms || affinities != self.affinities {
            self.ledger.record(|book| {
                book.vms.clone_from(&vms);
                book.affinities.clone_from(&affinities);
            })?;
            (self.vms, self.affinities) = (vms, affinities);
        }
        Ok(())
    }

    /// Takes pCPUs back from VMs that the plan no longer gives them to. Returns those VMs of which
    /// something is left to be undone.
    fn release_former_owners(&self, plan: &HostPlan, report: &mut HostReport) -> BTreeMap<Name, Vec<u32>> {
        let mut stuck = BTreeMap::new();
        let is_owner =
            |name: &Name| plan.vms.get(name).is_some_and(|vm| matches!(vm.cpus, CpuShare::Exclusive { .. }));
        for (name, cpus) in self.vms.iter().filter(|(name, _)| !is_owner(name)) {
            if let Some(fence) = &self.fence
                && let Err(error) = fence.release(name)
            {
                let problem = format!("the cpuset of VM `{name}` cannot be removed yet: {error}");
                report.cpu_problems.push(problem);
                stuck.insert(name.clone(), cpus.clone());
            }
        }
        let released = self.affinities.iter().filter(|(name, _)| !has_cpus(plan, name));
        for (tid, before) in released.flat_map(|(_, threads)| threads) {
            if affinity::is_vcpu(&self.root, *tid) {
                // An error means that the thread has just ended.
                let _ = affinity::release(*tid, before.as_deref());
            }
        }
        stuck
    }

    /// Changes the kernel's files for exclusive pCPUs and for halt polling, or puts them back.
    /// Returns whether all cpusets of others could be changed.
    ///
    /// The calls here only collect what is wanted, so their order is not that of the writes. (But
    /// `irq::place` replaces what `irq::move_off` wanted for the same interrupt.) The ledger writes
    /// files that it knows already, then new ones in reverse order of their paths: halt polling
    /// (`/sys/module`), cpusets (`/sys/fs/cgroup`), kernel work (`/sys/devices/virtual`), C-states
    /// (`/sys/devices/system/cpu`), interrupts (`/proc/irq`).
    fn change_files(
        &mut self,
        plan: &HostPlan,
        owners: &[Owner<'_>],
        interrupts: &BTreeMap<u32, BTreeSet<u32>>,
        report: &mut HostReport,
    ) -> Result<bool, LedgerError> {
        let exclusive = exclusive(plan);
        let host: BTreeSet<u32> = self.online().difference(&exclusive).copied().collect();
        let mut adjustments = Adjustments::new();
        if !owners.is_empty() {
            irq::move_off(&self.root, &exclusive, &host, &mut adjustments);
            workqueue::move_off(&self.root, &exclusive, &mut adjustments);
            let owned = owners.iter().flat_map(|owner| owner.cpus.iter().copied());
            pm_qos::tolerate_none(&self.root, owned, &mut adjustments);
            if let Some(fence) = &self.fence {
                fence.shrink_sets(&exclusive, &mut adjustments);
            }
            irq::place(&self.root, interrupts, &mut adjustments);
        }
        if let Some(ns) = plan.poll_ns {
            halt_poll::poll_at_least(&self.root, ns, &mut adjustments);
        }
        let settled = self.ledger.settle(Holder::Daemon, &adjustments, &mut self.refused)?;
        self.changed = self.ledger.has_changes(Holder::Daemon)?;
        // An interrupt that cannot be moved is reported as such, not as a problem.
        let irqs = self.root.join("proc/irq");
        report.fixed_interrupts = irq::fixed(&irqs, &self.refused, &exclusive);
        let refused = self.refused.iter().filter(|(path, _)| !path.starts_with(&irqs));
        report.cpu_problems.extend(refused.map(|(_, why)| why.clone()));
        let is_refused = |path: &String| self.refused.contains_key(&self.root.join(path));
        let failed = settled.failed.iter().filter(|(path, _)| !is_refused(path));
        report.cpu_problems.extend(failed.map(|(path, why)| format!("/{path} {why}")));
        let groups = self.root.join("sys/fs/cgroup");
        Ok(!self.refused.keys().any(|path| path.starts_with(&groups))
            && !settled.failed.iter().any(|(path, _)| path.starts_with("sys/fs/cgroup/")))
    }

    /// Moves other tasks off exclusive pCPUs. With cgroup v2 this does nothing: they leave when
    /// [`Self::enclose`] makes the VM's partition. Returns whether nothing has failed.
    fn evict_other_tasks(&self, plan: &HostPlan, owners: &[Owner<'_>], report: &mut HostReport) -> bool {
        if owners.is_empty() {
            return true;
        }
        let problem = match &self.fence {
            Some(fence) => match fence.evict_tasks(&exclusive(plan)) {
                Ok(()) => return true,
                Err(error) => format!("other tasks cannot be moved away: {error}"),
            },
            None => "other tasks are not moved away: this host has neither cpusets of cgroup v1 nor the \
                     cpuset controller of cgroup v2"
                .to_owned(),
        };
        report.cpu_problems.push(problem);
        false
    }

    /// Makes the fence around a VM's pCPUs and puts its vCPU threads behind it. `threads` has the
    /// thread of each vCPU. Returns whether the fence stands.
    fn enclose(&self, owner: &Owner<'_>, threads: &BTreeMap<u32, u32>, report: &mut HostReport) -> bool {
        let Some(fence) = &self.fence else { return false };
        let enclosed = fence.enclose(owner, threads.values().copied());
        if let Err(error) = &enclosed {
            let name = owner.name;
            let problem = format!("other tasks are not kept off the pCPUs of VM `{name}`: {error}");
            report.cpu_problems.push(problem);
        }
        enclosed.is_ok()
    }

    /// Binds the vCPUs of VMs that share pCPUs.
    fn bind_shared(&self, plan: &HostPlan, report: &mut HostReport) {
        for (name, vm) in &plan.vms {
            if let CpuShare::Bound(cpus) = &vm.cpus
                && let Err(why) = threads::bind_all(&self.root, vm.pid, cpus)
            {
                report.vms.entry(name.clone()).or_default().unbound = Some(why);
            }
        }
    }

    fn online(&self) -> BTreeSet<u32> {
        let path = self.root.join("sys/devices/system/cpu/online");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        list::parse(&text).unwrap_or_default().into_iter().collect()
    }
}

/// Binds each vCPU of a VM to the pCPU that it owns. `threads` has the thread of each vCPU, `alone`
/// says whether all other tasks are kept off.
fn bind(owner: &Owner<'_>, threads: &BTreeMap<u32, u32>, alone: bool, report: &mut HostReport) {
    let name = owner.name;
    match threads::bind_each(owner.cpus, threads) {
        Ok(true) => {
            let vm = report.vms.entry(name.clone()).or_default();
            vm.bound = true;
            vm.exclusive = alone;
        }
        Ok(false) => {}
        Err(error) => {
            report.cpu_problems.push(format!("vCPUs of VM `{name}` cannot be bound: {error}"));
        }
    }
}

/// Returns the pCPUs that VMs own, with idle siblings.
fn exclusive(plan: &HostPlan) -> BTreeSet<u32> {
    plan.vms.values().flat_map(|vm| vm.cpus.exclusive()).collect()
}

#[cfg(test)]
mod tests;
