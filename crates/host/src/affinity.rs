//! vCPU threads: which they are, and the pCPU that each is bound to.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Thread of each vCPU of a process, by the names that QEMU (`CPU 0/KVM`) and microguests (`vcpu`) give them.
pub(crate) fn vcpus(root: &Path, pid: u32) -> BTreeMap<u32, u32> {
    let tasks = fs::read_dir(root.join(format!("proc/{pid}/task"))).into_iter().flatten().flatten();
    let vcpu = |task: fs::DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        Some((number(fs::read_to_string(task.path().join("comm")).ok()?.trim())?, tid))
    };
    tasks.filter_map(vcpu).collect()
}

fn number(comm: &str) -> Option<u32> {
    if comm == "vcpu" || comm == "ALL CPUs/TCG" {
        return Some(0);
    }
    comm.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

/// Binds a thread to one pCPU, unless it is.
pub(crate) fn bind(tid: u32, cpu: u32) -> io::Result<()> {
    let pid = pid(tid)?;
    let mut wanted = CpuSet::new();
    wanted.set(cpu as usize);
    if sched_getaffinity(Some(pid))? != wanted {
        sched_setaffinity(Some(pid), &wanted)?;
    }
    Ok(())
}

/// Lets a thread run wherever its cpuset does.
pub(crate) fn release(tid: u32) -> io::Result<()> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    Ok(sched_setaffinity(Some(pid(tid)?), &all)?)
}

fn pid(tid: u32) -> io::Result<Pid> {
    let raw = i32::try_from(tid).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{tid} is no thread")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_are_known_by_their_names() {
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
        assert_eq!((number("vcpu"), number("vcpus"), number("CPU x/KVM")), (Some(0), None, None));
    }
}
