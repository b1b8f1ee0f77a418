//! vCPU threads of a process, and the pCPUs that a thread may run on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::list;

/// The list of pCPUs that each thread was allowed before it was bound; `None` if it was allowed
/// all.
pub(crate) type Affinities = BTreeMap<u32, Option<String>>;

/// Finds the thread of each vCPU, by the names that QEMU (`CPU 0/KVM`) and microguests (`vcpu`)
/// give.
pub(crate) fn vcpus(root: &Path, pid: u32) -> BTreeMap<u32, u32> {
    let tasks = fs::read_dir(root.join(format!("proc/{pid}/task"))).into_iter().flatten().flatten();
    let vcpu = |task: fs::DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        Some((vcpu_of(fs::read_to_string(task.path().join("comm")).ok()?.trim())?, tid))
    };
    tasks.filter_map(vcpu).collect()
}

/// Returns the vCPU whose thread has this name; none for other threads.
pub(crate) fn vcpu_of(comm: &str) -> Option<u32> {
    if comm == "vcpu" || comm == "ALL CPUs/TCG" {
        return Some(0);
    }
    comm.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

/// Binds a thread to these pCPUs, unless it is bound already. The kernel drops those outside the
/// thread's cpuset.
pub(crate) fn bind(tid: u32, cpus: &BTreeSet<u32>) -> io::Result<()> {
    let now = of(tid)?;
    if now != *cpus {
        sched_setaffinity(Some(pid(tid)?), &set(cpus))?;
    }
    Ok(())
}

/// Returns the pCPUs that a thread may run on.
pub(crate) fn of(tid: u32) -> io::Result<BTreeSet<u32>> {
    let set = sched_getaffinity(Some(pid(tid)?))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// Restores the pCPUs that a thread was allowed before; `None` allows all of its cpuset.
pub(crate) fn release(tid: u32, before: Option<&str>) -> io::Result<()> {
    let before = before.and_then(|list| list::parse(list).ok()).filter(|cpus| !cpus.is_empty());
    let cpus = before.map_or_else(|| (0..CpuSet::MAX_CPU as u32).collect(), BTreeSet::from_iter);
    Ok(sched_setaffinity(Some(pid(tid)?), &set(&cpus))?)
}

fn set(cpus: &BTreeSet<u32>) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    set
}

/// Returns whether a thread is a vCPU. The kernel reuses thread numbers.
pub(crate) fn is_vcpu(root: &Path, tid: u32) -> bool {
    let comm = fs::read_to_string(root.join(format!("proc/{tid}/comm"))).unwrap_or_default();
    vcpu_of(comm.trim()).is_some()
}

fn pid(tid: u32) -> io::Result<Pid> {
    let raw = i32::try_from(tid).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{tid} is not a thread number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_gets_its_former_affinity_back() {
        std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let before = of(tid).unwrap();
            let last = *before.last().unwrap();
            bind(tid, &[last].into()).unwrap();
            assert_eq!(of(tid).unwrap(), BTreeSet::from([last]));
            release(tid, Some(&list::format(&before))).unwrap();
            assert_eq!(of(tid).unwrap(), before);
            release(tid, None).unwrap();
            assert!(of(tid).unwrap().is_superset(&before));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn vcpu_threads_are_found_by_their_names() {
        let root = tempfile::tempdir().unwrap();
        for (tid, comm) in
            [(7, "qemu-system-x86"), (8, "CPU 0/KVM"), (9, "CPU 11/TCG"), (10, "IO mon_iothread")]
        {
            let task = root.path().join(format!("proc/7/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("{comm}\n")).unwrap();
        }
        assert_eq!(vcpus(root.path(), 7), BTreeMap::from([(0, 8), (11, 9)]));
        assert_eq!(vcpus(root.path(), 99), BTreeMap::new());
        assert_eq!((vcpu_of("vcpu"), vcpu_of("vcpus"), vcpu_of("CPU x/KVM")), (Some(0), None, None));
    }
}
