//! Memory of two nodes that only exists here.

use std::cell::RefCell;

use super::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// Pages by address, some of them held, and nodes that take none.
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

    /// As the kernel: the first page that is held ends the call.
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

/// A process with so much memory, whose `touched` first bytes are on node 0.
fn process(mib: u64, touched: u64) -> (tempfile::TempDir, Fake) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
    let end = BASE + mib * MIB;
    let maps = format!("{BASE:x}-{end:x} rw-s 00000000 00:01 6150   /memfd:memory-backend-memfd (deleted)\n");
    std::fs::write(root.path().join("proc/7/maps"), maps).unwrap();
    let pages = (BASE..BASE + touched * MIB).step_by(PAGE as usize).map(|page| (page, 0)).collect();
    (root, Fake { pages: RefCell::new(pages), ..Fake::default() })
}

/// A time that has not come: no step ends because it takes long.
fn clock() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn job(nodes: &[u32], now: Instant) -> Job {
    let nodes = nodes.iter().copied().collect();
    Job::new(Wanted { pid: 7, nodes, most: Bytes::mib(1024) }, now)
}

/// Steps until no pass follows; how many they were.
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
fn what_is_there_stays_and_what_nobody_touched_is_no_page() {
    let (root, fake) = process(768, 32);
    let now = clock();
    let mut job = job(&[0, 1], now);
    assert_eq!(finish(&mut job, root.path(), &fake, now), 3, "no more is looked at in a step than its bound");
    assert_eq!(job.progress().moved, Bytes(0));
    assert_eq!(fake.pages.borrow().len() as u64, 32 * MIB / PAGE);
}

#[test]
fn held_pages_are_tried_again_and_then_counted() {
    let (root, mut fake) = process(32, 32);
    fake.held = [BASE, BASE + 20 * MIB].into();
    let now = clock();
    let mut held = job(&[1], now);
    held.step(root.path(), &fake, now);
    assert!(!held.is_due(now), "not at once");
    finish(&mut held, root.path(), &fake, now);
    let last = held.progress();
    // The kernel of this test gives up whatever follows a held page in its 2 MiB.
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
fn what_comes_to_the_old_node_meanwhile_is_found_as_well() {
    let (root, fake) = process(32, 16);
    let now = clock();
    let mut job = job(&[1], now);
    job.step(root.path(), &fake, now);
    fake.pages.borrow_mut().insert(BASE + 20 * MIB, 0);
    finish(&mut job, root.path(), &fake, now);
    assert_eq!((job.progress().moved.0, job.passes), (16 * MIB + PAGE, 3));
}

#[test]
fn a_node_that_takes_nothing_is_told_or_passed_over() {
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
fn a_process_that_is_gone_is_not_looked_for_for_ever() {
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
fn a_vm_begins_anew_with_other_nodes_and_is_forgotten_when_it_has_none() {
    let name: Name = "db1".parse().unwrap();
    let now = clock();
    let mut mover = Mover::new(Path::new("/nowhere"));
    let wanted = |node| {
        let wanted = Wanted { pid: 7, nodes: [node].into(), most: Bytes::mib(1) };
        BTreeMap::from([(name.clone(), wanted)])
    };
    mover.step(&wanted(1), now);
    assert_eq!(mover.progress()[&name].nodes, [1].into());
    assert!(!mover.is_due(now) && mover.is_due(now + PAUSE));
    mover.step(&wanted(0), now);
    assert_eq!((mover.progress()[&name].nodes.clone(), mover.jobs[&name].passes), ([0].into(), 1));
    mover.step(&BTreeMap::new(), now);
    assert_eq!(mover.progress(), BTreeMap::new());
}
