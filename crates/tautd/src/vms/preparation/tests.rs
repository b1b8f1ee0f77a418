use std::path::Path;
use std::sync::mpsc::Receiver as Messages;
use std::time::Instant;

use super::mounts::Mounts;
use super::threads::{HELD_UP, OF_VM, ON_MOUNT, SLOW, WORKING};
use super::*;
use crate::inbox::Message;

/// Starts in a daemon whose loop the test is.
struct Bench {
    starts: Preparations,
    messages: Messages<Message>,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let (inbox, messages) = Inbox::new();
        let dir = tempfile::tempdir().unwrap();
        let confiner = Confiner::without_walls();
        let (libexec, copies, budget) = (dir.path().to_owned(), Copies::default(), Budget::default());
        let tools = Tools { confiner, libexec, copies, budget };
        Self { starts: Preparations::new(tools, inbox), messages, dir }
    }

    fn request(&self, uid: u32, kernel: &str) -> Request {
        let kernel = self.dir.path().join(kernel);
        let spec = serde_json::json!({ "boot": { "kernel": kernel } });
        let owner = Rights { uid, gid: uid, groups: Vec::new() };
        Request { spec: serde_json::from_value(spec).unwrap(), owner }
    }

    /// Waits until a start fails, and returns its error.
    fn failure(&mut self) -> (Name, String) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match self.starts.outcomes().pop() {
                Some((vm, Outcome::Failed(error))) => return (vm, error.to_string()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            assert!(Instant::now() < end, "{:?}", self.starts.steps());
            self.starts.begin_queued();
            let _ = self.messages.recv_timeout(Duration::from_millis(20));
        }
    }

    fn wait_until(&mut self, condition: impl Fn(&Preparations) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !condition(&self.starts) {
            assert!(Instant::now() < end, "{:?}", self.starts.steps());
            assert!(self.starts.outcomes().is_empty());
            self.starts.begin_queued();
            let _ = self.messages.recv_timeout(Duration::from_millis(20));
        }
    }

    /// Wants a start, and begins it if there is room. Returns its step.
    fn want(&mut self, vm: &str, request: Request) -> String {
        assert!(!self.starts.want(&name(vm), request));
        self.starts.begin_queued();
        self.starts.steps()[&name(vm)].text.clone()
    }

    /// Adds a start whose thread has waited for its kernel for longer than others need.
    fn add_held_up(&mut self, vm: &str, uid: u32, kernel: &str) {
        self.add_stuck(vm, uid);
        let progress = &self.starts.starts[&(self.starts.next - 1)].progress;
        progress.begin("opening", "its kernel", Path::new(kernel)).unwrap();
        progress.set_back(SLOW + Duration::from_secs(1));
    }

    /// Adds a start whose thread never ends.
    fn add_stuck(&mut self, vm: &str, uid: u32) {
        let request = self.request(uid, "kernel");
        let (orders, _) = channel();
        let start = Start {
            vm: name(vm),
            request,
            progress: Arc::new(Progress::new()),
            given_up: false,
            stage: Stage::Preparing(orders),
        };
        self.starts.starts.insert(self.starts.next, start);
        self.starts.next += 1;
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn files_are_open_until_the_start_is_given_up() {
    let mut bench = Bench::new();
    std::fs::write(bench.dir.path().join("kernel"), "x").unwrap();
    let request = bench.request(0, "kernel");
    assert!(!bench.starts.want(&name("a"), request.clone()));
    bench.wait_until(|starts| starts.prepared(&name("a")).is_some());
    assert!(bench.starts.want(&name("a"), request.clone()));
    assert_eq!(bench.starts.steps()[&name("a")].text, "its files are open; waits to be launched");

    // Another owner does not get what was opened with the rights of the first one.
    let other = Request { owner: Rights { uid: 65_534, gid: 65_534, groups: Vec::new() }, ..request };
    assert!(!bench.starts.want(&name("a"), other));
    assert!(bench.starts.prepared(&name("a")).is_none());
    bench.starts.give_up(&name("a"));
    bench.wait_until(|starts| starts.starts.is_empty());
}

#[test]
fn an_error_names_the_file() {
    let mut bench = Bench::new();
    for (file, word) in [("missing", "missing"), (".", "Directory")] {
        let request = bench.request(0, file);
        bench.starts.want(&name("a"), request);
        let (vm, error) = bench.failure();
        assert_eq!(vm, name("a"));
        assert!(error.contains("cannot be read") && error.contains(word), "{error}");
    }
}

#[test]
fn an_owner_with_stuck_starts_waits_and_others_do_not() {
    let mut bench = Bench::new();
    for number in 0..WORKING.of_owner {
        bench.add_stuck(&format!("stuck{number}"), 1001);
    }
    let waits = bench.request(1001, "missing");
    assert_eq!(bench.want("waits", waits), "waits for other starts of its owner");
    let other = bench.request(0, "missing");
    bench.want("other", other);
    assert_eq!(bench.failure().0, name("other"));
    // A start that was given up still has its thread.
    bench.starts.give_up(&name("stuck0"));
    assert!(bench.starts.outcomes().is_empty());
    assert_eq!(bench.starts.steps()[&name("waits")].text, "waits for other starts of its owner");
    bench.starts.reports.send((0, Report::Ended)).unwrap();
    assert_eq!(bench.failure().0, name("waits"));
}

#[test]
fn starts_that_are_held_up_leave_room_for_others_of_their_owner() {
    let mut bench = Bench::new();
    for number in 0..WORKING.of_owner {
        bench.add_held_up(&format!("stuck{number}"), 0, "/dead/kernel");
    }
    let other = bench.request(0, "missing");
    bench.want("other", other);
    assert_eq!(bench.failure().0, name("other"));
    // Bounds hold for them, too.
    for number in WORKING.of_owner..HELD_UP.of_owner {
        bench.add_held_up(&format!("stuck{number}"), 0, "/dead/kernel");
    }
    let waits = bench.request(0, "missing");
    assert_eq!(bench.want("waits", waits), "waits for other starts, whose files do not answer");
    let other = bench.request(1001, "missing");
    bench.want("other", other);
    assert_eq!(bench.failure().0, name("other"));
}

#[test]
fn the_starts_of_one_vm_are_bounded() {
    let mut bench = Bench::new();
    for _ in 0..OF_VM {
        bench.add_held_up("a", 0, "/dead/kernel");
        bench.starts.give_up(&name("a"));
    }
    let again = bench.request(0, "missing");
    assert_eq!(bench.want("a", again), "waits for the files of its earlier starts, which do not answer");
    let other = bench.request(0, "missing");
    bench.want("other", other);
    assert_eq!(bench.failure().0, name("other"));
    bench.starts.reports.send((0, Report::Ended)).unwrap();
    assert_eq!(bench.failure().0, name("a"));
}

#[test]
fn a_mount_that_does_not_answer_holds_up_only_starts_with_files_on_it() {
    let mut bench = Bench::new();
    for number in 0..ON_MOUNT {
        bench.add_held_up(&format!("stuck{number}"), 1001, "/srv/dead/kernel");
    }
    let wait = |uid: u32, kernel: &str| {
        let request = bench.request(uid, kernel);
        let (vm, progress, stage) =
            (name("new"), Arc::new(Progress::new()), Stage::Queued(Wait::OtherStarts));
        let start = Start { vm, request, progress, given_up: false, stage };
        let mounts = Mounts::parse("1 0 8:1 / / rw\n2 1 0:35 / /srv/dead rw\n3 1 0:36 / /srv/other rw");
        Threads::with_mounts(bench.starts.starts.values(), mounts).wait(&start)
    };
    let full = Wait::Mount("/srv/dead".into());
    assert_eq!(wait(1001, "/srv/dead/kernel").as_ref(), Some(&full));
    assert_eq!(wait(1001, "/srv/other/kernel"), None);
    assert_eq!(wait(1001, "/boot/kernel"), None);
    assert_eq!(wait(1002, "/srv/dead/kernel"), None);
    assert_eq!(full.text(), "waits for other starts with files on /srv/dead, which does not answer");
}

#[test]
fn owners_without_a_start_have_room_when_others_use_theirs() {
    let mut bench = Bench::new();
    for number in 0..WORKING.of_all - WORKING.reserved() {
        bench.add_stuck(&format!("stuck{number}"), 1001 + number as u32 / 15);
    }
    let waits = bench.request(1001, "missing");
    assert_eq!(bench.want("waits", waits), "waits for other starts");
    let other = bench.request(0, "missing");
    bench.want("other", other);
    assert_eq!(bench.failure().0, name("other"));
    bench.starts.give_up_unless(|vm| *vm != name("waits"));
    assert!(!bench.starts.steps().contains_key(&name("waits")), "it leaves the queue");
}

#[test]
fn a_start_that_was_given_up_has_no_result() {
    let mut bench = Bench::new();
    bench.add_stuck("a", 0);
    bench.starts.give_up_unless(|_| false);
    assert!(bench.starts.steps().is_empty());
    let late = Report::Failed(ApiError::new(ErrorKind::Unavailable, "late", "none"));
    bench.starts.reports.send((0, late)).unwrap();
    bench.starts.reports.send((0, Report::Ended)).unwrap();
    assert!(bench.starts.outcomes().is_empty());
    assert!(bench.starts.starts.is_empty());
}

#[test]
fn a_thread_that_panics_fails_its_start() {
    let mut bench = Bench::new();
    bench.add_stuck("a", 0);
    bench.starts.reports.send((0, Report::Ended)).unwrap();
    let error = bench.failure().1;
    assert!(error.contains("panicked"), "{error}");
}
