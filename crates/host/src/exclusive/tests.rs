//! On a fake tree: which files are changed how, and that all of it is taken back, also after a crash at any point.

use std::fs;

use super::*;

/// A host of four pCPUs with one container's cpuset and an interrupt on pCPU 2 alone.
const FILES: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "0\n"),
    ("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "100\n"),
    ("sys/devices/virtual/workqueue/cpumask", "f\n"),
    ("proc/irq/default_smp_affinity", "f\n"),
    ("proc/irq/24/smp_affinity_list", "0-3\n"),
    ("proc/irq/25/smp_affinity_list", "2\n"),
    ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3\n"),
    ("sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
    ("sys/fs/cgroup/cpuset/box/cpuset.cpus", "0-2\n"),
    ("sys/fs/cgroup/cpuset/box/inner/cpuset.cpus", "1-2\n"),
    ("sys/fs/cgroup/cpuset/other/cpuset.cpus", "2\n"),
];

fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in FILES {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn unchanged(root: &Path) {
    for (path, content) in FILES {
        assert_eq!(read(root, path), *content, "{path}");
    }
}

fn wanted() -> BTreeMap<Name, Owner> {
    // No process has this number: threads are another matter.
    let owner = Owner { pid: u32::MAX, cpus: vec![2], idle: vec![3] };
    [("db1".parse().unwrap(), owner)].into()
}

fn settle(exclusive: &mut Exclusive, wanted: &BTreeMap<Name, Owner>) -> (Outcome, Vec<Record>) {
    let mut kept = Vec::new();
    let outcome = exclusive.settle(wanted, &mut |record: &Record| {
        kept.push(record.clone());
        Ok::<_, ()>(())
    });
    (outcome.unwrap(), kept)
}

#[test]
fn everything_leaves_the_exclusive_pcpus_and_comes_back() {
    let root = tree();
    let at = |path: &str| read(root.path(), path);
    let mut exclusive = Exclusive::new(root.path(), None, Record::default());
    let (outcome, kept) = settle(&mut exclusive, &wanted());
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.in_force.is_empty(), "its vCPU has not been found");
    assert_eq!(kept[0].files.replaced().count(), 7, "recorded before the first change: {kept:?}");
    assert_eq!(at("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us"), "0\n");
    for (path, content) in [
        ("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "n/a"),
        ("sys/devices/virtual/workqueue/cpumask", "3"),
        ("proc/irq/default_smp_affinity", "3"),
        ("proc/irq/24/smp_affinity_list", "0-1"),
        ("proc/irq/25/smp_affinity_list", "0-1"),
        ("sys/fs/cgroup/cpuset/box/cpuset.cpus", "0-1"),
        ("sys/fs/cgroup/cpuset/box/inner/cpuset.cpus", "1"),
        ("sys/fs/cgroup/cpuset/other/cpuset.cpus", "2\n"),
        ("sys/fs/cgroup/cpuset/taut.host/cpuset.cpus", "0-1"),
        ("sys/fs/cgroup/cpuset/taut.vm.db1/cpuset.cpus", "2"),
    ] {
        assert_eq!(at(path), content, "{path}");
    }
    let before = exclusive.record().clone();
    let (_, again) = settle(&mut exclusive, &wanted());
    assert!(again.iter().all(|record| *record == before), "settled");
    settle(&mut exclusive, &BTreeMap::new());
    unchanged(root.path());
    assert!(exclusive.record().is_empty());
}

#[test]
fn a_crash_anywhere_is_recovered_from_what_was_kept() {
    // The process dies at its n-th record: nothing after it was done, or all that it announces.
    for done in [false, true] {
        let root = tree();
        let mut first = Exclusive::new(root.path(), None, Record::default());
        let mut kept = None;
        let died = first.settle(&wanted(), &mut |record: &Record| {
            let again = kept.replace(record.clone()).is_some();
            if done || again { Ok(()) } else { Err(()) }
        });
        assert_eq!(died.is_ok(), done);
        let text = serde_json::to_string(&kept.unwrap()).unwrap();
        let mut next = Exclusive::new(root.path(), None, serde_json::from_str(&text).unwrap());
        settle(&mut next, &BTreeMap::new());
        unchanged(root.path());
        assert!(next.record().is_empty());
    }
}

#[test]
fn half_of_the_changes_are_taken_back_as_well() {
    let root = tree();
    let mut first = Exclusive::new(root.path(), None, Record::default());
    let (_, kept) = settle(&mut first, &wanted());
    let record = kept[0].clone();
    // As if it had died after some of the files.
    for (path, content) in FILES.iter().skip(4) {
        fs::write(root.path().join(path), content).unwrap();
    }
    let mut next = Exclusive::new(root.path(), None, record);
    settle(&mut next, &BTreeMap::new());
    unchanged(root.path());
}

#[test]
fn a_host_without_cpusets_says_so() {
    let root = tree();
    fs::remove_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
    let mut exclusive = Exclusive::new(root.path(), None, Record::default());
    let (outcome, _) = settle(&mut exclusive, &wanted());
    assert!(outcome.problems[0].contains("cgroup v2"), "{:?}", outcome.problems);
    assert_eq!(read(root.path(), "proc/irq/24/smp_affinity_list"), "0-1");
}
