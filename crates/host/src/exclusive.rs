//! pCPUs of VMs on the host (SPEC LS-3 to LS-6), exclusive ones above all: everything that is done for them, recorded before it is done,
//! and taken back.

mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use taut_api::Name;

use crate::affinity::Affinities;
use crate::fence::Fence;
pub use crate::irq::FixedInterrupt;
use crate::ledger::{Holder, Ledger, LedgerError, Wishes};
use crate::{affinity, halt_poll, irq, pm_qos, workqueue};

/// A VM's pCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its process.
    pub pid: u32,
    /// The pCPU of each vCPU.
    pub cpus: Vec<u32>,
    /// SMT siblings that stay idle.
    pub idle: Vec<u32>,
}

/// pCPUs of a VM that owns none: its vCPUs share them with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its process.
    pub pid: u32,
    /// The pCPUs that all of its vCPUs may run on.
    pub cpus: BTreeSet<u32>,
}

/// What VMs are to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those that own pCPUs.
    pub owners: BTreeMap<Name, Owner>,
    /// Those that own none, and are to run on some only. No VM is in both.
    pub bound: BTreeMap<Name, Bound>,
    /// How long KVM is to poll for halted vCPUs at least, in nanoseconds.
    pub poll_ns: Option<u64>,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// VMs whose vCPUs are all on their own pCPUs.
    pub in_force: BTreeSet<Name>,
    /// VMs without pCPUs of their own whose vCPUs are not bound as wanted, and why.
    pub unbound: BTreeMap<Name, String>,
    /// What could not be done, whoever it concerns.
    pub problems: Vec<String>,
    /// Interrupts that cannot be moved off exclusive pCPUs.
    pub interrupts: Vec<FixedInterrupt>,
}

/// The levers of one host.
#[derive(Debug)]
pub struct Exclusive {
    root: PathBuf,
    fence: Option<Fence>,
    ledger: Ledger,
    /// VMs with cpusets and the pCPUs that their vCPUs own, as the ledger has them.
    vms: BTreeMap<Name, Vec<u32>>,
    /// Where their vCPU threads might run before, as the ledger has it.
    affinities: BTreeMap<Name, Affinities>,
    /// Does the ledger have changes for VMs?
    changed: bool,
    /// Interrupts of devices that VMs have, and the host's pCPUs that they go to.
    interrupts: BTreeMap<u32, BTreeSet<u32>>,
    /// Files that cannot be changed, and why: interrupts that the hardware binds, for one.
    refused: BTreeMap<PathBuf, String>,
}

impl Exclusive {
    /// The host whose file system starts at `root`. `scope` is the cpuset (cgroup v1) whose tasks make room, or the control group
    /// (cgroup v2) that has the VMs' groups, if it is not the whole host's; `ledger` has what an earlier one did.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn new(root: &Path, scope: Option<&Path>, ledger: Ledger) -> Result<Self, LedgerError> {
        let fence = Fence::find(root, scope);
        let ((vms, affinities), changed) = (ledger.vms()?, ledger.owes(Holder::Daemon)?);
        Ok(Self {
            root: root.to_owned(),
            fence,
            ledger,
            vms,
            affinities,
            changed,
            interrupts: BTreeMap::new(),
            refused: BTreeMap::new(),
        })
    }

    /// VMs with pCPUs of their own: in force, or begun.
    pub const fn vms(&self) -> &BTreeMap<Name, Vec<u32>> {
        &self.vms
    }

    /// Says which interrupts go to which pCPUs of the host, from the next [`Exclusive::settle`] on; all others go by the rule.
    pub fn place_interrupts(&mut self, interrupts: BTreeMap<u32, BTreeSet<u32>>) {
        self.interrupts = interrupts;
    }

    /// Is the host as it was?
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty() && self.affinities.is_empty() && !self.changed
    }

    /// Makes the host as wanted. The ledger has what is replaced before anything is changed; nothing is changed when it cannot be kept.
    ///
    /// # Errors
    /// When the ledger cannot be kept.
    pub fn settle(&mut self, all_wanted: &Wanted) -> Result<Outcome, LedgerError> {
        let Wanted { owners: wanted, bound, poll_ns } = all_wanted;
        let mut outcome = Outcome::default();
        if *all_wanted == Wanted::default() && self.is_empty() {
            return Ok(outcome);
        }
        let exclusive: BTreeSet<u32> =
            wanted.values().flat_map(|owner| owner.cpus.iter().chain(&owner.idle)).copied().collect();
        let all = self.online();
        let host: BTreeSet<u32> = all.difference(&exclusive).copied().collect();
        let fence = self.fence.clone();
        let mut wishes = self.wishes(wanted, &exclusive, &host, fence.as_ref());
        if !wanted.is_empty() {
            irq::placed(&self.root, &self.interrupts, &mut wishes);
        }
        if let Some(ns) = poll_ns {
            halt_poll::wishes(&self.root, *ns, &mut wishes);
        }
        let owned: BTreeMap<_, _> =
            wanted.iter().map(|(name, owner)| (name.clone(), owner.cpus.clone())).collect();
        if owned != self.vms {
            // Something else is wished of them now.
            self.refused.clear();
        }
        let had_owners = !self.vms.is_empty();
        // Those that go are in it until they have gone.
        let common = fence.as_ref().and_then(Fence::common).unwrap_or(all);
        let affinities = threads::before(&self.root, &self.affinities, all_wanted, &common);
        self.note(self.vms.clone().into_iter().chain(owned.clone()).collect(), affinities)?;
        self.changed = true;
        let mut remaining = self.release_others(all_wanted, &mut outcome);
        let settled = self.ledger.settle(Holder::Daemon, &wishes, &mut self.refused)?;
        self.changed = self.ledger.owes(Holder::Daemon)?;
        // An interrupt that cannot be moved is nobody's fault.
        let interrupts = self.root.join("proc/irq");
        outcome.interrupts = irq::fixed(&interrupts, &self.refused, &exclusive);
        let refused = self.refused.iter().filter(|(path, _)| !path.starts_with(&interrupts));
        outcome.problems.extend(refused.map(|(_, why)| why.clone()));
        let stuck =
            settled.failed.iter().filter(|(path, _)| !self.refused.contains_key(&self.root.join(path)));
        outcome.problems.extend(stuck.map(|(path, why)| format!("/{path} {why}")));
        drop(wishes);
        if let Some(fence) = &fence
            && !wanted.is_empty()
            && let Err(error) = fence.clear(&exclusive)
        {
            outcome.problems.push(format!("other tasks cannot be moved away: {error}"));
        }
        if fence.is_none() && !wanted.is_empty() {
            outcome.problems.push(
                "other tasks are not moved away: this host has neither cpusets of cgroup v1 nor the cpuset controller of cgroup v2"
                    .to_owned(),
            );
        }
        for (name, owner) in wanted {
            let threads = affinity::vcpus(&self.root, owner.pid);
            // Bound they are better off in any case.
            if let Some(fence) = &fence
                && let Err(error) = fence.enclose(name, owner, threads.values().copied())
            {
                outcome.problems.push(format!("others are not kept off the pCPUs of VM `{name}`: {error}"));
            }
            match threads::bind_each(owner, &threads) {
                Ok(true) => drop(outcome.in_force.insert(name.clone())),
                Ok(false) => {}
                Err(error) => outcome.problems.push(format!("vCPUs of VM `{name}` cannot be bound: {error}")),
            }
        }
        for (name, bound) in bound {
            if let Err(why) = threads::bind_all(&self.root, bound) {
                outcome.unbound.insert(name.clone(), why);
            }
        }
        // What another daemon has made stays.
        if wanted.is_empty()
            && had_owners
            && let Some(fence) = &fence
            && let Err(error) = fence.dissolve()
        {
            outcome.problems.push(format!("the cpuset of other tasks cannot be removed yet: {error}"));
            // Noted as theirs, so that it is tried again, by the next daemon if need be.
            remaining.clone_from(&self.vms);
        }
        let is_wanted = |name: &Name| wanted.contains_key(name) || bound.contains_key(name);
        let affinities = self.affinities.clone().into_iter().filter(|(name, _)| is_wanted(name)).collect();
        self.note(owned.into_iter().chain(remaining).collect(), affinities)?;
        Ok(outcome)
    }

    fn note(
        &mut self,
        vms: BTreeMap<Name, Vec<u32>>,
        affinities: BTreeMap<Name, Affinities>,
    ) -> Result<(), LedgerError> {
        if vms != self.vms || affinities != self.affinities {
            let both = (vms, affinities);
            self.ledger.note_vms(&both)?;
            (self.vms, self.affinities) = both;
        }
        Ok(())
    }

    fn online(&self) -> BTreeSet<u32> {
        let text =
            std::fs::read_to_string(self.root.join("sys/devices/system/cpu/online")).unwrap_or_default();
        crate::list::parse(&text).unwrap_or_default().into_iter().collect()
    }

    fn wishes<'a>(
        &self,
        wanted: &BTreeMap<Name, Owner>,
        exclusive: &'a BTreeSet<u32>,
        host: &'a BTreeSet<u32>,
        fence: Option<&Fence>,
    ) -> Wishes<'a> {
        let mut wishes = Wishes::new();
        if wanted.is_empty() {
            return wishes;
        }
        irq::wishes(&self.root, exclusive, host, &mut wishes);
        workqueue::wishes(&self.root, exclusive, &mut wishes);
        pm_qos::wishes(&self.root, wanted.values().flat_map(|owner| owner.cpus.iter().copied()), &mut wishes);
        if let Some(fence) = fence {
            fence.wishes(exclusive, &mut wishes);
        }
        wishes
    }

    /// Gives back what VMs have that are not wanted any more, or not on these pCPUs. Returns those that still have some of it.
    fn release_others(&self, wanted: &Wanted, outcome: &mut Outcome) -> BTreeMap<Name, Vec<u32>> {
        let mut stuck = BTreeMap::new();
        for (name, cpus) in self.vms.iter().filter(|(name, _)| !wanted.owners.contains_key(*name)) {
            if let Some(fence) = &self.fence
                && let Err(error) = fence.open(name)
            {
                outcome.problems.push(format!("the cpuset of VM `{name}` cannot be removed yet: {error}"));
                stuck.insert(name.clone(), cpus.clone());
            }
        }
        let goes = |name: &Name| !wanted.owners.contains_key(name) && !wanted.bound.contains_key(name);
        for (tid, before) in self.affinities.iter().filter(|(name, _)| goes(name)).flat_map(|(_, tids)| tids)
        {
            if affinity::is_vcpu(&self.root, *tid) {
                // It has just ended, or it is free.
                let _ = affinity::release(*tid, before.as_deref());
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests;
