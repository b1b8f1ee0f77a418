//! Moving memory of simulated NUMA nodes.

use std::cell::RefCell;

use taut_api::enforcement::VmShare;

use super::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// Pages by address, some of them held, and nodes that are full.
#[derive(Default)]
struct Fake {
    pages: RefCell<BTreeMap<u64, u32>>,
    held: BTreeSet<u64>,
    full: BTreeMap<u32, i32>,
    gone: bool,
}

impl Pages for Fake {
    fn nodes(&self, _: u32, pages: &[u64]) -> io::Result<Vec<Option<u32>>> {
        assert!(pages.len() as u64 <= PIECE / PAGE, "bounded");
        if self.gone {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(pages.iter().map(|page| self.pages.borrow().get(page).copied()).collect())
    }

    /// Stops at the first held page, as the kernel does.
    fn put(&self, _: u32, pages: &[u64], node: u32) -> io::Result<()> {
        if let Some(error) = self.full.get(&node) {
            return Err(io::Error::from_raw_os_error(*error));
        }
        for page in pages.iter().take_while(|page| !self.held.contains(page)) {
            self.pages.borrow_mut().insert(*page, node);
        }
        Ok(())
    }
}

/// Makes a process with `mib` MiB of memory, of which the first `touched` MiB are on node 0.
fn process(mib: u64, touched: u64) -> (tempfile::TempDir, Fake) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
    let end = BASE + mib * MIB;
    let maps = format!("{BASE:x}-{end:x} rw-s 00000000 00:01 6150   /memfd:memory-backend-memfd (deleted)\n");
    std::fs::write(root.path().join("proc/7/maps"), maps).unwrap();
    let pages = (BASE..BASE + touched * MIB).step_by(PAGE as usize).map(|page| (page, 0)).collect();
    (root, Fake { pages: RefCell::new(pages), ..Fake::default() })
}

/// Returns a time in the future, so that no step ends for lack of time.
fn clock() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn job(nodes: &[u32], now: Instant) -> Job {
    let nodes = nodes.iter().copied().collect();
    Job::new(Target { pid: 7, nodes }, Bytes::mib(1024), now)
}

/// Steps until no pass follows. Returns the number of steps.
fn finish(job: &mut Job, root: &Path, fake: &Fake, mut now: Instant) -> usize {
    for steps in 0.. {
        assert!(steps < 100, "it ends");
        if job.progress().done {
            return steps;
        }
        if !job.is_due(now) {
            now += PAUSE;
        }
        job.step(root, fake, now);
    }
    unreachable!()
}

#[test]
fn memory_is_moved_in_bounded_steps() {
    let (root, fake) = process(256, 160);
    let now = clock();
    let mut job = job(&[1], now);
    job.step(root.path(), &fake, now);
    let first = job.progress();
    assert_eq!((first.moved, first.ahead, first.done), (Bytes::mib(64), Bytes::mib(192), false));
    assert_eq!(finish(&mut job, root.path(), &fake, now), 3, "two, and one in a second pass");
    let last = job.progress();
    assert_eq!((last.moved, last.ahead, last.left, last.why), (Bytes::mib(160), Bytes(0), Bytes(0), None));
    assert!(fake.pages.borrow().values().all(|node| *node == 1));
}

#[test]
fn pages_on_the_target_nodes_stay_and_untouched_memory_is_not_allocated() {
    let (root, fake) = process(768, 32);
    let now = clock();
    let mut job = job(&[0, 1], now);
    assert_eq!(finish(&mut job, root.path(), &fake, now), 3, "a step examines a bounded part");
    assert_eq!(job.progress().moved, Bytes(0));
    assert_eq!(fake.pages.borrow().len() as u64, 32 * MIB / PAGE);
}

#[test]
fn held_pages_are_retried_and_then_counted() {
    let (root, mut fake) = process(32, 32);
    fake.held = [BASE, BASE + 20 * MIB].into();
    let now = clock();
    let mut held = job(&[1], now);
    held.step(root.path(), &fake, now);
    assert!(!held.is_due(now), "not at once");
    finish(&mut held, root.path(), &fake, now);
    let last = held.progress();
    // The simulated kernel gives up the rest of the 2 MiB after a held page.
    assert_eq!((last.moved, last.left), (Bytes::mib(28), Bytes::mib(4)));
    assert_eq!(held.passes, PASSES);
    assert!(last.why.unwrap().contains("holds them"));

    let mut later = job(&[1], now);
    later.step(root.path(), &fake, now);
    fake.held.clear();
    finish(&mut later, root.path(), &fake, now);
    let last = later.progress();
    assert_eq!((last.moved, last.left, last.why), (Bytes::mib(4), Bytes(0), None));
}

#[test]
fn pages_allocated_on_the_old_node_meanwhile_are_moved_too() {
    let (root, fake) = process(32, 16);
    let now = clock();
    let mut job = job(&[1], now);
    job.step(root.path(), &fake, now);
    fake.pages.borrow_mut().insert(BASE + 20 * MIB, 0);
    finish(&mut job, root.path(), &fake, now);
    assert_eq!((job.progress().moved.0, job.passes), (16 * MIB + PAGE, 3));
}

#[test]
fn a_full_node_is_reported_or_passed_over() {
    let (root, mut fake) = process(16, 16);
    fake.full = [(1, libc::ENOMEM)].into();
    let now = clock();
    let mut full = job(&[1], now);
    finish(&mut full, root.path(), &fake, now);
    let last = full.progress();
    assert_eq!((last.moved, last.left), (Bytes(0), Bytes::mib(16)));
    let why = last.why.unwrap();
    assert!(why.starts_with("node 1 has no free memory: ") && why.contains("os error 12"), "{why}");

    let mut either = job(&[1, 2], now);
    finish(&mut either, root.path(), &fake, now);
    assert_eq!(either.progress().moved, Bytes::mib(16));
    assert!(fake.pages.borrow().values().all(|node| *node == 2));
}

#[test]
fn the_move_ends_after_the_process_has_ended() {
    let (root, mut fake) = process(16, 16);
    let now = clock();
    fake.gone = true;
    let mut ended = job(&[1], now);
    finish(&mut ended, root.path(), &fake, now);
    assert!(ended.progress().why.unwrap().starts_with("move_pages: "));
    let mut unseen = job(&[1], now);
    finish(&mut unseen, Path::new("/nowhere"), &fake, now);
    assert!(unseen.progress().why.unwrap().starts_with("its process cannot be looked at: "));
    std::fs::write(root.path().join("proc/7/maps"), "").unwrap();
    let mut empty = job(&[1], now);
    assert_eq!(finish(&mut empty, root.path(), &fake, now), PASSES as usize);
    assert_eq!(empty.progress().why.unwrap(), "its process has no such memory");
}

#[test]
fn a_vm_starts_again_with_other_nodes_and_is_forgotten_without_any() {
    let name: Name = "db1".parse().unwrap();
    let now = clock();
    let mut mover = MemoryMover::new(Path::new("/nowhere"));
    let plan = |nodes: &[u32]| {
        let memory = nodes.iter().copied().collect();
        let vm = VmShare { pid: 7, memory, ..VmShare::default() };
        HostPlan { vms: [(name.clone(), vm)].into(), ..HostPlan::default() }
    };
    let mut report = HostReport::default();
    mover.step(&plan(&[1]), now, &mut report);
    assert_eq!(report.vms[&name].memory.as_ref().unwrap().nodes, [1].into());
    assert!(!mover.is_due(now) && mover.is_due(now + PAUSE));
    mover.step(&plan(&[0]), now, &mut report);
    let moved = report.vms[&name].memory.clone().unwrap();
    assert_eq!((moved.nodes, moved.passes), ([0].into(), 1));
    mover.step(&plan(&[]), now, &mut report);
    assert_eq!(report.vms[&name].memory, None);
}
