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

fn settle(precedence: &mut Precedence, wanted: &[u32], now: Instant) -> (Outcome, Vec<Record>) {
    let mut kept = Vec::new();
    let outcome = precedence.settle(wanted, now, &mut |record: &Record| {
        kept.push(record.clone());
        Ok::<_, ()>(())
    });
    (outcome.unwrap(), kept)
}

#[test]
fn what_is_changed_is_kept_first_and_given_back() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), PID, &["qemu", "CPU 0/TCG"], 77, 0);
    let group = root.path().join("sys/fs/cgroup/cpu/taut.vm/cpu.rt_runtime_us");
    fs::create_dir_all(group.parent().unwrap()).unwrap();
    fs::write(&group, "0\n").unwrap();
    let mut precedence = Precedence::new(root.path(), Record::default());
    assert_eq!(settle(&mut precedence, &[], Instant::now()), (Outcome::default(), vec![]), "nothing to do");

    assert_eq!(precedence.threads(PID).len(), 1, "its vCPU is left out");
    let (outcome, kept) = settle(&mut precedence, &[PID], Instant::now());
    assert_eq!((outcome, kept.len()), (Outcome::default(), 1));
    assert_eq!(kept[0].processes[&PID].began, 77);
    assert_eq!(fs::read_to_string(&group).unwrap(), GROUP_US);
    assert_eq!(settle(&mut precedence, &[PID], Instant::now()).1, vec![], "nothing new");

    // The next daemon goes by the record.
    let text = serde_json::to_string(&kept[0]).unwrap();
    let mut precedence = Precedence::new(root.path(), serde_json::from_str(&text).unwrap());
    let (_, kept) = settle(&mut precedence, &[], Instant::now());
    assert!(precedence.is_idle() && kept.last().unwrap().is_empty());
    assert_eq!(fs::read_to_string(&group).unwrap(), "0\n");
}

#[test]
fn who_uses_too_much_is_ordinary_for_a_while() {
    let root = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(1);
    let begun = Instant::now();
    let mut precedence = Precedence::new(root.path(), Record::default());
    let mut ran = |ms: u64, after: Duration| {
        process(root.path(), PID, &["worker0", "worker1"], 77, ms * 1_000_000);
        let outcome = settle(&mut precedence, &[PID], begun + after).0;
        (outcome.greedy.get(&PID).copied(), !precedence.is_idle())
    };
    assert_eq!(ran(0, Duration::ZERO), (None, true));
    assert_eq!(ran(500, second / 2), (None, true), "not long enough to tell");
    assert_eq!(ran(840, second), (None, true), "each thread counts by itself");
    assert_eq!(ran(1740, 2 * second), (Some(90), false));
    assert_eq!(ran(2740, 3 * second), (None, false), "told once");
    assert_eq!(ran(9740, 2 * second + BACK), (None, true), "tried again");
}
