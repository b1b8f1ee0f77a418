//! A cpuset for a test and everything that it starts: other processes are not affected, and it is
//! removed afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taut_tests::{Controller, Prerequisite, require};

const CPUSET: &str = "/sys/fs/cgroup/cpuset";
/// Serialises tests, because interrupts and C-states belong to the whole host.
static ALONE: Mutex<()> = Mutex::new(());

/// The cpuset. Dropping it moves all tasks out, removes it, and restores what a failed test left
/// changed.
pub(crate) struct Scope {
    dir: PathBuf,
    before: BTreeMap<PathBuf, String>,
    _alone: MutexGuard<'static, ()>,
}

impl Scope {
    /// Moves the test into a cpuset of its own. Returns `None` if the test may leave itself out on
    /// a host with one pCPU or without cpusets of cgroup v1.
    pub(crate) fn enter() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !require(Prerequisite::TwoPcpus) || !require(Prerequisite::CgroupV1(Controller::Cpuset)) {
            return None;
        }
        // Processes in left-over cpusets are ended first.
        taut_tests::clear_away();
        for entry in fs::read_dir(CPUSET).unwrap().flatten() {
            if taut_tests::is_left_over(&entry.file_name()) {
                remove(&entry.path());
            }
        }
        let dir = Path::new(CPUSET).join(format!("taut-test-{}", taut_tests::owner()));
        let scope = Self { dir, before: host_files(), _alone: alone };
        make(&scope.dir);
        fs::write(scope.dir.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        Some(scope)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a cpuset of another owner inside.
    pub(crate) fn make_other(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        make(&dir);
        dir
    }

    /// Returns every file that may be changed, with its content, and every cpuset.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut files = host_files();
        for dir in folders(&self.dir) {
            let path = dir.join("cpuset.cpus");
            files.insert(path.clone(), fs::read_to_string(&path).unwrap_or_default());
        }
        files
    }

    /// Returns the threads inside that may run on a pCPU.
    pub(crate) fn may_run_on(&self, cpu: u64) -> Vec<u32> {
        let allowed = |tid: &u32| {
            let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("");
            list.trim().split(',').filter(|part| !part.is_empty()).any(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                (first.parse::<u64>().unwrap()..=last.parse().unwrap()).contains(&cpu)
            })
        };
        folders(&self.dir).iter().flat_map(|dir| tasks(dir)).filter(allowed).collect()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        remove(&self.dir);
        for (path, content) in &self.before {
            if fs::read_to_string(path).ok().as_ref() != Some(content) {
                eprintln!("{} was left changed", path.display());
                let _ = fs::write(path, content);
            }
        }
    }
}

/// Moves all tasks out of a cpuset and the cpusets below it, and removes them.
fn remove(dir: &Path) {
    let mut inner = folders(dir);
    inner.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    for dir in &inner {
        for _ in 0..100 {
            for tid in tasks(dir) {
                // The task may have ended.
                let _ = fs::write(Path::new(CPUSET).join("tasks"), tid.to_string());
            }
            if fs::remove_dir(dir).is_ok() || !dir.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn make(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for file in ["cpuset.cpus", "cpuset.mems"] {
        fs::write(dir.join(file), fs::read_to_string(Path::new(CPUSET).join(file)).unwrap()).unwrap();
    }
}

fn host_files() -> BTreeMap<PathBuf, String> {
    let mut paths: Vec<PathBuf> =
        ["/proc/irq/default_smp_affinity", "/sys/devices/virtual/workqueue/cpumask"]
            .map(PathBuf::from)
            .into();
    for entry in fs::read_dir("/proc/irq").unwrap().flatten() {
        paths.push(entry.path().join("smp_affinity"));
    }
    for entry in fs::read_dir("/sys/devices/system/cpu").unwrap().flatten() {
        paths.push(entry.path().join("power/pm_qos_resume_latency_us"));
    }
    paths.into_iter().filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let inner = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let inner: Vec<_> = inner.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        found.extend(inner);
        next += 1;
    }
    found
}

fn tasks(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("tasks")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}
