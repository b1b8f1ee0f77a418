//! On a fake tree, with processes that do not exist: what is kept, what is given back, and who uses too much.

use super::*;

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
    assert_eq!(fs::read_to_string(&group).unwrap(), GROUP_US);
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
