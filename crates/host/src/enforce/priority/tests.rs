//! Real-time priority on a fake tree: what is recorded and put back, and use that exceeds the
//! limit.

use taut_api::Bytes;
use taut_api::enforcement::{GroupSettings, VmShare};

use super::*;
use crate::enforce::groups::Groups;

/// A number that no process has, so that no real thread is changed.
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

fn priority(root: &Path) -> RealtimePriority {
    RealtimePriority::new(root, ledger(root)).unwrap()
}

/// A plan that gives process [`PID`] priority or not, and a control group or not.
fn plan(first: bool, group: bool) -> HostPlan {
    let settings = GroupSettings {
        cpu_shares: 2000,
        cpu_limit: None,
        memory_min: Bytes(0),
        memory_low: Bytes(0),
        memory_high: None,
        no_swap: false,
        disk_shares: None,
    };
    let group = group.then_some(settings);
    let vm = VmShare { pid: PID, priority: first, group, ..VmShare::default() };
    HostPlan { vms: [("db1".parse().unwrap(), vm)].into(), ..HostPlan::default() }
}

/// Settles a plan that gives process [`PID`] priority or not, without any problem.
fn settle(priority: &mut RealtimePriority, first: bool) {
    let mut report = HostReport::default();
    priority.settle(&plan(first, false), Instant::now(), &mut report).unwrap();
    assert_eq!(report, HostReport::default());
}

#[test]
fn changes_are_recorded_first_and_put_back() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu", "CPU 0/TCG"], 77, 0);
    let group = root.path().join("sys/fs/cgroup/cpu/taut.vm/cpu.rt_runtime_us");
    fs::create_dir_all(group.parent().unwrap()).unwrap();
    fs::write(&group, "0\n").unwrap();
    let mut first = priority(root.path());
    settle(&mut first, false);
    assert!(first.is_idle(), "nothing to do");

    let (vcpus, others) = first.threads(PID);
    assert_eq!((vcpus.len(), others.len()), (1, 1));
    settle(&mut first, true);
    let noted = ledger(root.path()).book().unwrap().priority;
    assert_eq!(noted.processes[&PID].began, 77);
    assert_eq!(fs::read_to_string(&group).unwrap(), BUDGETS_US[0]);
    settle(&mut first, true);
    assert_eq!(ledger(root.path()).book().unwrap().priority, noted, "nothing new");

    // The next daemon continues from the ledger.
    let mut next = priority(root.path());
    settle(&mut next, false);
    assert!(next.is_idle() && priority(root.path()).is_idle());
    assert_eq!(fs::read_to_string(&group).unwrap(), "0\n");
}

#[test]
fn a_process_that_uses_too_much_loses_the_priority_for_a_while() {
    let root = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(1);
    let begun = Instant::now();
    let mut priority = priority(root.path());
    let mut ran = |ms: u64, after: Duration| {
        process(root.path(), PID, &["worker0", "worker1"], 77, ms * 1_000_000);
        let mut report = HostReport::default();
        priority.settle(&plan(true, false), begun + after, &mut report).unwrap();
        (report.greedy.first().map(|greedy| greedy.percent), !priority.is_idle())
    };
    assert_eq!(ran(0, Duration::ZERO), (None, true));
    assert_eq!(ran(500, second / 2), (None, true), "shorter than the window");
    assert_eq!(ran(840, second), (None, true), "each thread is measured by itself");
    assert_eq!(ran(1740, 2 * second), (Some(90), false));
    assert_eq!(ran(2740, 3 * second), (None, false), "reported once");
    assert_eq!(ran(9740, 2 * second + PAUSE), (None, true), "tried again");
}

#[test]
fn a_thread_that_was_created_within_the_window_is_measured() {
    let root = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut priority = priority(root.path());
    let mut settle = |comms: &[&str], now: Instant| {
        process(root.path(), PID, comms, 77, 900_000_000);
        let mut report = HostReport::default();
        priority.settle(&plan(true, false), now, &mut report).unwrap();
        report.greedy.first().map(|greedy| greedy.percent)
    };
    assert_eq!(settle(&["qemu"], begun), None);
    assert_eq!(settle(&["qemu", "worker"], begun + Duration::from_secs(1)), Some(90));
}

/// A tree on which process [`PID`] is in group `box`, and groups that behave as in a kernel with
/// real-time budgets.
fn with_budgets() -> (tempfile::TempDir, Groups) {
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
    (root, groups)
}

fn is_in(root: &Path, group: &str) {
    fs::write(root.join(format!("proc/{PID}/cgroup")), format!("1:cpu,cpuacct:/{group}\n")).unwrap();
}

/// Moves a process as a kernel with `CONFIG_RT_GROUP_SCHED` does.
fn enter(dir: &Path, pid: u32) -> io::Result<()> {
    let root = dir.ancestors().find(|above| above.join("proc").exists()).unwrap();
    let thread = root.join(format!("proc/{pid}/task/{pid}"));
    let none = fs::read_to_string(dir.join(RT)).unwrap().trim() == "0";
    if Class::of(&thread) == Some(Class::REAL_TIME) && none {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    is_in(root, dir.strip_prefix(root.join("sys/fs/cgroup/cpu")).unwrap().to_str().unwrap());
    fs::write(dir.join("cgroup.procs"), pid.to_string())
}

/// Sets a thread's class on the tree.
fn put(folder: &Path, tid: u32, class: Class) -> io::Result<()> {
    let policy = if class == Class::REAL_TIME { "1 1" } else { "0 0" };
    let mut fields = vec!["0"; 36];
    // Start of the process.
    fields[18] = "77";
    for file in [folder.join("stat"), folder.join("../../stat")] {
        fs::write(file, format!("{tid} (x) S {} {policy} 0 0\n", fields.join(" ")))?;
    }
    Ok(())
}

#[test]
fn threads_with_priority_move_into_a_new_group_and_back() {
    let (root, mut groups) = with_budgets();
    let (own_group, no_group) = (plan(true, true), plan(true, false));
    let class = || Class::of(&root.path().join(format!("proc/{PID}/task/{PID}"))).unwrap();
    let time =
        |group: &str| fs::read_to_string(root.path().join("sys/fs/cgroup/cpu").join(group).join(RT)).unwrap();
    let own = format!("box/taut.vm.db1.{PID}");
    let mut first = priority(root.path());
    first.put = put;
    let make = |groups: &mut Groups| {
        let mut report = HostReport::default();
        groups.make(&own_group, Instant::now(), &mut report).unwrap();
        report.vms.into_values().next().unwrap().group_problem
    };
    settle(&mut first, true);
    assert_eq!((class(), &*time("box")), (Class::REAL_TIME, BUDGETS_US[0]));

    // The kernel refuses to move threads that have the priority.
    let refused = make(&mut groups).unwrap();
    assert!(refused.contains("cgroup.procs cannot be set"), "{refused}");
    assert_eq!(groups.arriving(&own_group), [PID]);
    first.pause(groups.arriving(&own_group));
    assert_ne!(class(), Class::REAL_TIME);
    assert_eq!(make(&mut groups), None);
    assert_eq!(groups.arriving(&own_group), Vec::<u32>::new());
    settle(&mut first, true);
    assert_eq!((class(), &*time(&own)), (Class::REAL_TIME, BUDGETS_US[1]));

    // The process leaves its group while it has the priority, and then loses the priority.
    assert_eq!(groups.leaving(&no_group), [PID]);
    first.pause(groups.leaving(&no_group));
    assert_ne!(class(), Class::REAL_TIME);
    groups.clear(&no_group).unwrap();
    is_in(root.path(), "box");
    settle(&mut first, true);
    assert_eq!(class(), Class::REAL_TIME);
    settle(&mut first, false);
    assert_ne!(class(), Class::REAL_TIME);
    assert_eq!(time("box"), "0\n");
    assert!(first.is_idle() && groups.is_idle());
}

#[test]
fn a_vcpu_that_inherited_the_priority_loses_it() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu", "CPU 0/KVM"], 77, 0);
    let task = |tid| root.path().join(format!("proc/{PID}/task/{tid}"));
    let has_it = || [PID, PID + 1].map(|tid| Class::of(&task(tid)).unwrap() == Class::REAL_TIME);
    let inherit = || put(&task(PID + 1), PID + 1, Class::REAL_TIME).unwrap();
    let mut first = priority(root.path());
    first.put = put;
    settle(&mut first, true);
    assert_eq!(has_it(), [true, false]);
    inherit();
    settle(&mut first, true);
    assert_eq!(has_it(), [true, false]);
    inherit();
    first.pause([PID]);
    assert_eq!(has_it(), [false, false]);
    inherit();
    // The other thread cannot get the priority, which is reported.
    first.put = |folder, tid, class| match class {
        Class::REAL_TIME => Err(io::ErrorKind::PermissionDenied.into()),
        before => put(folder, tid, before),
    };
    let mut report = HostReport::default();
    first.settle(&plan(true, false), Instant::now(), &mut report).unwrap();
    assert_eq!((has_it(), report.priority_problems.len()), ([false, false], 1));
    inherit();
    settle(&mut first, false);
    assert_eq!(has_it(), [false, false]);
}

#[test]
fn putting_back_a_budget_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu"], 77, 0);
    let group = root.path().join("sys/fs/cgroup/cpu/taut.vm/cpu.rt_runtime_us");
    fs::create_dir_all(group.parent().unwrap()).unwrap();
    fs::write(&group, "0\n").unwrap();
    let mut first = priority(root.path());
    settle(&mut first, true);
    // A folder cannot be written.
    fs::remove_file(&group).unwrap();
    fs::create_dir(&group).unwrap();
    settle(&mut first, false);
    assert!(!first.is_idle() && !priority(root.path()).is_idle());
    fs::remove_dir(&group).unwrap();
    settle(&mut first, false);
    assert!(first.is_idle());
}
