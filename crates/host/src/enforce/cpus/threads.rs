//! vCPU threads: recording the pCPUs that they may run on, and binding them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use taut_api::Name;
use taut_api::enforcement::{CpuShare, HostPlan};

use crate::kernel::affinity::{self, Affinities};
use crate::kernel::list;

/// Adds to `known` the pCPUs that vCPU threads may run on before the plan binds them.
///
/// `common` are the pCPUs of all tasks that own none. A thread that may run on all of them is
/// recorded as allowed everywhere, so that it can use pCPUs that come on line or become free later.
pub(super) fn allowed_before(
    root: &Path,
    known: &BTreeMap<Name, Affinities>,
    plan: &HostPlan,
    common: &BTreeSet<u32>,
) -> BTreeMap<Name, Affinities> {
    let mut known = known.clone();
    for (name, vm) in plan.vms.iter().filter(|(_, vm)| vm.cpus != CpuShare::Any) {
        let threads: BTreeSet<u32> = affinity::vcpus(root, vm.pid).into_values().collect();
        let recorded = known.entry(name.clone()).or_default();
        recorded.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            // A thread that has just ended has no affinity to return to.
            if !recorded.contains_key(&tid)
                && let Ok(before) = affinity::of(tid)
            {
                let bound_by_us = match &vm.cpus {
                    CpuShare::Exclusive { cpus, .. } => {
                        before.len() == 1 && cpus.iter().any(|cpu| before.contains(cpu))
                    }
                    CpuShare::Any | CpuShare::Bound(_) => false,
                };
                let everywhere = bound_by_us || before.is_superset(common);
                recorded.insert(tid, (!everywhere).then(|| list::format(&before)));
            }
        }
    }
    known.retain(|_, threads| !threads.is_empty());
    known
}

/// Binds each vCPU's thread to its pCPU. Returns whether all threads exist.
pub(super) fn bind_each(cpus: &[u32], threads: &BTreeMap<u32, u32>) -> io::Result<bool> {
    let mut bound = 0;
    for (vcpu, tid) in threads {
        if let Some(cpu) = cpus.get(*vcpu as usize) {
            affinity::bind(*tid, &BTreeSet::from([*cpu]))?;
            bound += 1;
        }
    }
    Ok(bound == cpus.len())
}

/// Binds all vCPU threads of a process to the same pCPUs.
///
/// # Errors
/// Returns why a thread is not bound, in words for users.
pub(super) fn bind_all(root: &Path, pid: u32, cpus: &BTreeSet<u32>) -> Result<(), String> {
    let list = list::format(cpus);
    let threads = affinity::vcpus(root, pid);
    if threads.is_empty() {
        return Err(format!("its vCPUs are not bound to pCPUs {list} yet: process {pid} has none"));
    }
    for (vcpu, tid) in threads {
        let tried = affinity::bind(tid, cpus);
        tried.map_err(|error| format!("its vCPU {vcpu} cannot be bound to pCPUs {list}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;

    use taut_api::enforcement::{HostReport, VmShare};

    use super::super::Cpus;
    use super::*;
    use crate::ledger::Ledger;

    /// Runs `f` with a fake tree and a thread that stands in for a vCPU of process 77.
    fn with_vcpu(f: impl FnOnce(&Path, u32)) {
        let root = tempfile::tempdir().unwrap();
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ended.recv();
        });
        let tid = told.recv().unwrap();
        for task in [format!("proc/77/task/{tid}"), format!("proc/{tid}")] {
            fs::create_dir_all(root.path().join(&task)).unwrap();
            fs::write(root.path().join(task).join("comm"), "CPU 0/KVM\n").unwrap();
        }
        let cpu = root.path().join("sys/devices/system/cpu");
        fs::create_dir_all(&cpu).unwrap();
        fs::write(cpu.join("online"), list::format(&affinity::of(tid).unwrap())).unwrap();
        f(root.path(), tid);
        drop(end);
        thread.join().unwrap();
    }

    fn cpus(root: &Path) -> Cpus {
        Cpus::new(root, None, Ledger::new(root, &root.join("var/lib/taut"))).unwrap()
    }

    fn plan(cpus: CpuShare) -> HostPlan {
        let vm = VmShare { pid: 77, cpus, ..VmShare::default() };
        HostPlan { vms: [("a".parse().unwrap(), vm)].into(), ..HostPlan::default() }
    }

    fn bound(cpus: BTreeSet<u32>) -> HostPlan {
        plan(CpuShare::Bound(cpus))
    }

    /// Settles, and returns whether the VM's vCPUs are bound to pCPUs of its own, and why they are
    /// not bound to shared ones.
    fn settle(cpus: &mut Cpus, plan: &HostPlan) -> (bool, Option<String>) {
        let mut report = HostReport::default();
        cpus.settle(plan, &BTreeMap::new(), &mut report).unwrap();
        let vm = report.vms.into_values().next().unwrap_or_default();
        (vm.bound, vm.unbound)
    }

    #[test]
    fn a_bound_vcpu_follows_changes_and_the_next_process_releases_it() {
        with_vcpu(|root, tid| {
            let before = affinity::of(tid).unwrap();
            let (first, last) = (*before.first().unwrap(), *before.last().unwrap());
            let mut first_process = cpus(root);
            for cpu in [first, last] {
                assert_eq!(settle(&mut first_process, &bound([cpu].into())), (false, None));
                assert_eq!(affinity::of(tid).unwrap(), [cpu].into());
            }
            // Another program has moved it.
            affinity::bind(tid, &[first].into()).unwrap();
            settle(&mut first_process, &bound([last].into()));
            assert_eq!(affinity::of(tid).unwrap(), [last].into());
            // The daemon is killed, and the next plan does not bind the VM.
            let mut next = cpus(root);
            assert!(!next.is_idle());
            settle(&mut next, &HostPlan::default());
            assert_eq!(affinity::of(tid).unwrap(), before);
            assert!(next.is_idle() && cpus(root).is_idle());
            assert!(!root.join("var/lib/taut/host-changes.json").exists());
        });
    }

    #[test]
    fn a_bound_vcpu_that_comes_to_own_a_pcpu_returns_to_its_first_affinity() {
        with_vcpu(|root, tid| {
            let before = affinity::of(tid).unwrap();
            let last = *before.last().unwrap();
            let mut first_process = cpus(root);
            settle(&mut first_process, &bound([*before.first().unwrap()].into()));
            let owns = plan(CpuShare::Exclusive { cpus: vec![last], idle: vec![] });
            assert_eq!(settle(&mut first_process, &owns), (true, None));
            assert_eq!(affinity::of(tid).unwrap(), [last].into());
            settle(&mut first_process, &HostPlan::default());
            assert_eq!(affinity::of(tid).unwrap(), before);
        });
    }

    #[test]
    fn a_bound_vcpu_has_its_pcpu_exclusively_only_if_other_tasks_are_kept_off() {
        with_vcpu(|root, tid| {
            let cpu = *affinity::of(tid).unwrap().last().unwrap();
            let owns = plan(CpuShare::Exclusive { cpus: vec![cpu], idle: vec![] });
            let mut report = HostReport::default();
            cpus(root).settle(&owns, &BTreeMap::new(), &mut report).unwrap();
            let told = |report: &HostReport| report.cpu_problems.iter().any(|it| it.contains("other tasks"));
            assert!(told(&report), "{report:?}");
            let vm = report.vms.values().next().unwrap();
            assert!(vm.bound && !vm.exclusive, "{vm:?}");

            let cpuset = root.join("sys/fs/cgroup/cpuset");
            fs::create_dir_all(&cpuset).unwrap();
            fs::copy(root.join("sys/devices/system/cpu/online"), cpuset.join("cpuset.cpus")).unwrap();
            fs::write(cpuset.join("cpuset.mems"), "0\n").unwrap();
            let mut report = HostReport::default();
            cpus(root).settle(&owns, &BTreeMap::new(), &mut report).unwrap();
            assert!(!told(&report), "{report:?}");
            let vm = report.vms.values().next().unwrap();
            assert!(vm.bound && vm.exclusive, "{vm:?}");
        });
    }

    #[test]
    fn the_reason_is_reported_if_a_vcpu_cannot_be_bound() {
        with_vcpu(|root, _| {
            let why = settle(&mut cpus(root), &bound([1023].into())).1.unwrap();
            assert!(why.starts_with("its vCPU 0 cannot be bound to pCPUs 1023: "), "{why}");
        });
        let root = tempfile::tempdir().unwrap();
        let why = settle(&mut cpus(root.path()), &bound([0].into())).1.unwrap();
        assert!(why.ends_with("process 77 has none"), "{why}");
    }
}
