//! On a fake tree, with processes that do not exist: what is kept, what is given back, and who uses too much.

use taut_api::{Bytes, Name};

use super::*;
use crate::groups::{Groups, Wanted};

/// No process has this number, so that nothing is done to its threads.
const PID: u32 = 2_000_000_000;

fn process(root: &Path, pid: u32, comms: &[&str], began: u64, ran_ns: u64) {
    let stat = |policy: &str| {
        let zeros = vec!["0"; 18].join(" ");
        let more = vec!["0"; 17].join(" ");
        format!("{pid} (x) S {zeros} {began} {more} 0 {policy} 0 0\n")
    };
    for (index, comm) in comms.iter().enumerate() {
        let task = root.join(format!("proc/{pid}/task/{}", pid + index as u32));
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("comm"), comm).unwrap();
        fs::write(task.join("stat"), stat("0")).unwrap();
        fs::write(task.join("schedstat"), format!("{ran_ns} 0 1\n")).unwrap();
    }
    fs::write(root.join(format!("proc/{pid}/stat")), stat("0")).unwrap();
    fs::write(root.join(format!("proc/{pid}/cgroup")), "3:cpuset:/\n1:cpu,cpuacct:/taut.vm\n").unwrap();
}

fn ledger(root: &Path) -> Ledger {
    Ledger::new(root, &root.join("var/lib/taut"))
}

fn precedence(root: &Path) -> Precedence {
    Precedence::new(root, ledger(root)).unwrap()
}

#[test]
fn what_is_changed_is_kept_first_and_given_back() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu", "CPU 0/TCG"], 77, 0);
    let group = root.path().join("sys/fs/cgroup/cpu/taut.vm/cpu.rt_runtime_us");
    fs::create_dir_all(group.parent().unwrap()).unwrap();
    fs::write(&group, "0\n").unwrap();
    let mut first = precedence(root.path());
    assert_eq!(first.settle(&[], Instant::now()).unwrap(), Outcome::default(), "nothing to do");

    assert_eq!(first.threads(PID).len(), 1, "its vCPU is left out");
    assert_eq!(first.settle(&[PID], Instant::now()).unwrap(), Outcome::default());
    let noted = ledger(root.path()).precedence().unwrap();
    assert_eq!(noted.processes[&PID].began, 77);
    assert_eq!(fs::read_to_string(&group).unwrap(), GROUP_US[0]);
    first.settle(&[PID], Instant::now()).unwrap();
    assert_eq!(ledger(root.path()).precedence().unwrap(), noted, "nothing new");

    // The next daemon goes by the ledger.
    let mut next = precedence(root.path());
    next.settle(&[], Instant::now()).unwrap();
    assert!(next.is_idle() && precedence(root.path()).is_idle());
    assert_eq!(fs::read_to_string(&group).unwrap(), "0\n");
}

#[test]
fn who_uses_too_much_is_ordinary_for_a_while() {
    let root = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(1);
    let begun = Instant::now();
    let mut precedence = precedence(root.path());
    let mut ran = |ms: u64, after: Duration| {
        process(root.path(), PID, &["worker0", "worker1"], 77, ms * 1_000_000);
        let outcome = precedence.settle(&[PID], begun + after).unwrap();
        (outcome.greedy.get(&PID).copied(), !precedence.is_idle())
    };
    assert_eq!(ran(0, Duration::ZERO), (None, true));
    assert_eq!(ran(500, second / 2), (None, true), "not long enough to tell");
    assert_eq!(ran(840, second), (None, true), "each thread counts by itself");
    assert_eq!(ran(1740, 2 * second), (Some(90), false));
    assert_eq!(ran(2740, 3 * second), (None, false), "told once");
    assert_eq!(ran(9740, 2 * second + BACK), (None, true), "tried again");
}

/// A tree on which process [`PID`] lives in group `box`, where a kernel plays that shares real-time out.
fn shared_out() -> (tempfile::TempDir, Groups, BTreeMap<Name, Wanted>) {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu"], 77, 0);
    let cpu = root.path().join("sys/fs/cgroup/cpu");
    fs::create_dir_all(cpu.join("box")).unwrap();
    for (path, content) in [("cpu.shares", "1024"), (RT, "950000"), ("box/cpu.rt_runtime_us", "0\n")] {
        fs::write(cpu.join(path), content).unwrap();
    }
    is_in(root.path(), "box");
    let group = cpu.join(format!("box/taut.vm.db1.{PID}"));
    fs::create_dir(&group).unwrap();
    fs::write(group.join(RT), "0\n").unwrap();
    let groups = Groups::with_kernel(root.path(), ledger(root.path()), enter).unwrap();
    let vm = Wanted {
        pid: PID,
        cpu_shares: 2000,
        cpu_limit: None,
        memory_min: Bytes(0),
        memory_low: Bytes(0),
        memory_high: None,
        no_swap: false,
        disk_shares: None,
    };
    (root, groups, [("db1".parse().unwrap(), vm)].into())
}

fn is_in(root: &Path, group: &str) {
    fs::write(root.join(format!("proc/{PID}/cgroup")), format!("1:cpu,cpuacct:/{group}\n")).unwrap();
}

/// As a kernel with `CONFIG_RT_GROUP_SCHED` does.
fn enter(dir: &Path, pid: u32) -> io::Result<()> {
    let root = dir.ancestors().find(|above| above.join("proc").exists()).unwrap();
    let thread = root.join(format!("proc/{pid}/task/{pid}"));
    let none = fs::read_to_string(dir.join(RT)).unwrap().trim() == "0";
    if Class::of(&thread) == Some(Class::FIRST) && none {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    is_in(root, dir.strip_prefix(root.join("sys/fs/cgroup/cpu")).unwrap().to_str().unwrap());
    fs::write(dir.join("cgroup.procs"), pid.to_string())
}

/// As a kernel does, on the tree.
fn put(folder: &Path, tid: u32, class: Class) -> io::Result<()> {
    let policy = if class == Class::FIRST { "1 1" } else { "0 0" };
    let mut fields = vec!["0"; 36];
    // When the process began.
    fields[18] = "77";
    for file in [folder.join("stat"), folder.join("../../stat")] {
        fs::write(file, format!("{tid} (x) S {} {policy} 0 0\n", fields.join(" ")))?;
    }
    Ok(())
}

#[test]
fn a_group_that_comes_later_takes_threads_that_go_first_and_gives_them_back() {
    let (root, mut groups, wanted) = shared_out();
    let class = || Class::of(&root.path().join(format!("proc/{PID}/task/{PID}"))).unwrap();
    let time =
        |group: &str| fs::read_to_string(root.path().join("sys/fs/cgroup/cpu").join(group).join(RT)).unwrap();
    let own = format!("box/taut.vm.db1.{PID}");
    let mut first = precedence(root.path());
    first.put = put;
    let settle = |first: &mut Precedence, wanted: &[u32]| {
        assert_eq!(first.settle(wanted, Instant::now()).unwrap(), Outcome::default());
    };
    settle(&mut first, &[PID]);
    assert_eq!((class(), &*time("box")), (Class::FIRST, GROUP_US[0]));

    // The kernel refuses it as it is.
    let refused = groups.make(&wanted).unwrap().problems;
    assert!(
        refused.values().all(|why| why.contains("cgroup.procs cannot be set")) && refused.len() == 1,
        "{refused:?}"
    );
    assert_eq!(groups.arriving(&wanted), [PID]);
    first.pause(groups.arriving(&wanted));
    assert_ne!(class(), Class::FIRST);
    assert!(groups.make(&wanted).unwrap().problems.is_empty());
    assert_eq!(groups.arriving(&wanted), Vec::<u32>::new());
    settle(&mut first, &[PID]);
    assert_eq!((class(), &*time(&own)), (Class::FIRST, GROUP_US[1]));

    // It goes home while it goes first, and then nobody goes first any more.
    let nobody = BTreeMap::new();
    assert_eq!(groups.leaving(&nobody), [PID]);
    first.pause(groups.leaving(&nobody));
    assert_ne!(class(), Class::FIRST);
    groups.clear(&nobody).unwrap();
    is_in(root.path(), "box");
    settle(&mut first, &[PID]);
    assert_eq!(class(), Class::FIRST);
    settle(&mut first, &[]);
    assert_ne!(class(), Class::FIRST);
    assert_eq!(time("box"), "0\n");
    assert!(first.is_idle() && groups.is_empty());
}

#[test]
fn time_that_cannot_be_given_back_yet_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu"], 77, 0);
    let group = root.path().join("sys/fs/cgroup/cpu/taut.vm/cpu.rt_runtime_us");
    fs::create_dir_all(group.parent().unwrap()).unwrap();
    fs::write(&group, "0\n").unwrap();
    let mut levers = precedence(root.path());
    levers.settle(&[PID], Instant::now()).unwrap();
    // A folder takes no content.
    fs::remove_file(&group).unwrap();
    fs::create_dir(&group).unwrap();
    levers.settle(&[], Instant::now()).unwrap();
    assert!(!levers.is_idle() && !precedence(root.path()).is_idle());
    fs::remove_dir(&group).unwrap();
    levers.settle(&[], Instant::now()).unwrap();
    assert!(levers.is_idle());
}
