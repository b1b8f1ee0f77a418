//! vCPU threads: where each might run before, and where it is bound now.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use taut_api::Name;

use super::{Bound, Owner, Wanted};
use crate::affinity::{self, Affinities};
use crate::list;

/// What is known of where vCPU threads might run before they were bound, and what is found of those that are still to be. `common` are the
/// pCPUs that everybody has who owns none.
pub(super) fn before(
    root: &Path,
    known: &BTreeMap<Name, Affinities>,
    wanted: &Wanted,
    common: &BTreeSet<u32>,
) -> BTreeMap<Name, Affinities> {
    let mut known = known.clone();
    let owners = wanted.owners.iter().map(|(name, owner)| (name, owner.pid, Some(&owner.cpus)));
    let bound = wanted.bound.iter().map(|(name, bound)| (name, bound.pid, None));
    for (name, pid, owned) in owners.chain(bound) {
        let threads: BTreeSet<u32> = affinity::vcpus(root, pid).into_values().collect();
        let mine = known.entry(name.clone()).or_default();
        mine.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            // One that has just ended has no affinity to come back to.
            if !mine.contains_key(&tid)
                && let Ok(before) = affinity::of(tid)
            {
                let ours = before.len() == 1
                    && owned.is_some_and(|cpus| cpus.iter().any(|cpu| before.contains(cpu)));
                // Whoever may run everywhere is to follow pCPUs that come later, or back from others.
                let everywhere = ours || before.is_superset(common);
                mine.insert(tid, (!everywhere).then(|| list::format(&before)));
            }
        }
    }
    known.retain(|_, threads| !threads.is_empty());
    known
}

/// Binds vCPUs to a pCPU each. Are all of them there?
pub(super) fn bind_each(owner: &Owner, threads: &BTreeMap<u32, u32>) -> io::Result<bool> {
    let mut bound = 0;
    for (vcpu, tid) in threads {
        if let Some(cpu) = owner.cpus.get(*vcpu as usize) {
            affinity::bind(*tid, &BTreeSet::from([*cpu]))?;
            bound += 1;
        }
    }
    Ok(bound == owner.cpus.len())
}

/// Binds all vCPUs to the same pCPUs.
///
/// # Errors
/// Why not all of them are, for users.
pub(super) fn bind_all(root: &Path, bound: &Bound) -> Result<(), String> {
    let cpus = list::format(&bound.cpus);
    let threads = affinity::vcpus(root, bound.pid);
    if threads.is_empty() {
        return Err(format!("its vCPUs are not bound to pCPUs {cpus} yet: process {} has none", bound.pid));
    }
    for (vcpu, tid) in threads {
        let tried = affinity::bind(tid, &bound.cpus);
        tried.map_err(|error| format!("its vCPU {vcpu} cannot be bound to pCPUs {cpus}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::exclusive::Exclusive;
    use crate::ledger::Ledger;

    /// A thread that plays a vCPU of process 77, on a tree of its own, as long as `f` runs.
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

    fn exclusive(root: &Path) -> Exclusive {
        Exclusive::new(root, None, Ledger::new(root, &root.join("var/lib/taut"))).unwrap()
    }

    fn bound(cpus: BTreeSet<u32>) -> Wanted {
        let bound = Bound { pid: 77, cpus };
        Wanted { bound: [("a".parse().unwrap(), bound)].into(), ..Wanted::default() }
    }

    #[test]
    fn a_bound_vcpu_follows_changes_and_is_free_again_also_by_the_next() {
        with_vcpu(|root, tid| {
            let before = affinity::of(tid).unwrap();
            let (first, last) = (*before.first().unwrap(), *before.last().unwrap());
            let mut levers = exclusive(root);
            for cpu in [first, last] {
                let outcome = levers.settle(&bound([cpu].into())).unwrap();
                assert_eq!(outcome.unbound, BTreeMap::new());
                assert_eq!(affinity::of(tid).unwrap(), [cpu].into());
            }
            // Somebody else has moved it.
            affinity::bind(tid, &[first].into()).unwrap();
            levers.settle(&bound([last].into())).unwrap();
            assert_eq!(affinity::of(tid).unwrap(), [last].into());
            // The daemon is killed, and nobody wants it bound any more.
            let mut next = exclusive(root);
            assert!(!next.is_empty());
            next.settle(&Wanted::default()).unwrap();
            assert_eq!(affinity::of(tid).unwrap(), before);
            assert!(next.is_empty() && exclusive(root).is_empty());
            assert!(!root.join("var/lib/taut/host-changes.json").exists());
        });
    }

    #[test]
    fn one_that_comes_to_own_a_pcpu_goes_back_to_where_it_was_at_first() {
        with_vcpu(|root, tid| {
            let before = affinity::of(tid).unwrap();
            let last = *before.last().unwrap();
            let mut levers = exclusive(root);
            levers.settle(&bound([*before.first().unwrap()].into())).unwrap();
            let owner = Owner { pid: 77, cpus: vec![last], idle: vec![] };
            let owns = Wanted { owners: [("a".parse().unwrap(), owner)].into(), ..Wanted::default() };
            let outcome = levers.settle(&owns).unwrap();
            assert_eq!((outcome.in_force.len(), affinity::of(tid).unwrap()), (1, [last].into()));
            levers.settle(&Wanted::default()).unwrap();
            assert_eq!(affinity::of(tid).unwrap(), before);
        });
    }

    #[test]
    fn what_cannot_be_bound_is_told() {
        with_vcpu(|root, _| {
            let outcome = exclusive(root).settle(&bound([1023].into())).unwrap();
            let why = &outcome.unbound[&"a".parse::<Name>().unwrap()];
            assert!(why.starts_with("its vCPU 0 cannot be bound to pCPUs 1023: "), "{why}");
        });
        let root = tempfile::tempdir().unwrap();
        let outcome = exclusive(root.path()).settle(&bound([0].into())).unwrap();
        assert!(outcome.unbound.values().all(|why| why.ends_with("process 77 has none")), "{outcome:?}");
    }
}
