//! File systems that do not answer: they hold up the VMs whose files are on them, and nothing else.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use taut_tests::fuse::Fuse;
use taut_tests::{Background, Taut, eventually};

/// The longest that anything takes which is not held up, on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// Time without progress after which a start fails.
const BOUND: Duration = Duration::from_secs(30);
const MICRO: &str = "kind = \"micro\"\nmemory = \"16MiB\"\n";
const WITH_KERNEL: &str = "memory = \"64MiB\"\n[boot]\nkernel = \"mnt/vmlinuz\"\n";

/// A daemon and a file system that answered when the VM `stuck` was created.
struct Host {
    fuse: Fuse,
    taut: Taut,
}

impl Host {
    /// `text` describes the VM, in a file beside the folder `mnt` of the file system.
    fn with(text: &str) -> Self {
        Self::of(Taut::start(), text)
    }

    fn of(taut: Taut, text: &str) -> Self {
        let fuse = Fuse::mount(&taut.dir().join("mnt")).expect("the host has FUSE");
        create(&taut, "stuck", text);
        Self { fuse, taut }
    }

    fn with_kernel() -> Self {
        Self::with(WITH_KERNEL)
    }

    /// Starts the VM, and waits until its step is told in these words.
    fn start_stuck(&self, words: &str) {
        let _start = Background::start(self.taut.command().args(["vm", "start", "stuck"]));
        eventually("the step is told", || reason(&self.taut)?.contains(words).then_some(()));
        eventually("somebody waits for the file system", || (self.fuse.waiting() > 0).then_some(()));
    }
}

fn create(taut: &Taut, name: &str, text: &str) {
    let file = taut.file(&format!("{name}.toml"), text);
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", name]);
}

fn reason(taut: &Taut) -> Option<String> {
    taut.json(["vm", "show", "stuck"])["status"]["reason"].as_str().map(str::to_owned)
}

fn phase(taut: &Taut, name: &str) -> String {
    taut.json(["vm", "show", name])["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

/// Starts and stops another VM.
fn others_go_on(taut: &Taut, name: &str) {
    let began = Instant::now();
    create(taut, name, MICRO);
    taut.ok(["vm", "start", "--wait", name]);
    taut.json(["vm", "list"]);
    taut.ok(["vm", "stop", name]);
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
}

fn stops_at_once(taut: &Taut) {
    let began = Instant::now();
    taut.ok(["vm", "stop", "stuck"]);
    assert_eq!(phase(taut, "stuck"), "stopped");
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
}

/// Waits until the start has failed, and checks that the failure names the file.
fn fails_with(taut: &Taut, began: Instant, file: &Path) {
    eventually("the start fails", || (phase(taut, "stuck") == "failed").then_some(()));
    assert!(began.elapsed() > BOUND / 2, "failed after {:?}", began.elapsed());
    let reason = reason(taut).expect("a failure has a reason");
    assert!(reason.contains(file.to_str().unwrap()), "{reason}");
    assert!(reason.contains("did not answer within 30 s") && reason.contains("hint: "), "{reason}");
}

#[test]
fn a_kernel_that_does_not_answer_fails_its_own_vm_only() {
    let host = Host::with_kernel();
    let Host { fuse, taut } = &host;
    let kernel = taut.dir().join("mnt/vmlinuz");
    fuse.withhold();
    let began = Instant::now();
    host.start_stuck(&format!("opening its kernel {}", kernel.display()));
    others_go_on(taut, "other");
    eventually("the time is told", || reason(taut)?.contains(" s now").then_some(()));
    fails_with(taut, began, &kernel);
    others_go_on(taut, "another");
    assert_eq!(taut.ok(["events"]).matches("did not answer within 30 s").count(), 1);
    fuse.release();
}

#[test]
fn a_disk_that_does_not_answer_can_be_stopped_and_deleted_at_once() {
    let host = Host::with("memory = \"64MiB\"\n[disk]\npath = \"mnt/disk.img\"\n");
    let Host { fuse, taut } = &host;
    let words = format!("opening its disk {}", taut.dir().join("mnt/disk.img").display());
    fuse.withhold();
    host.start_stuck(&words);
    stops_at_once(taut);
    others_go_on(taut, "other");
    host.start_stuck(&words);
    let began = Instant::now();
    taut.ok(["vm", "delete", "--force", "stuck"]);
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
    // Another VM of this name gets nothing of the old one.
    create(taut, "stuck", MICRO);
    taut.ok(["vm", "start", "--wait", "stuck"]);
    fuse.release();
    others_go_on(taut, "another");
    assert_eq!(phase(taut, "stuck"), "running");
}

#[test]
fn a_file_that_is_open_and_cannot_be_read_or_closed_holds_up_nobody_else() {
    let host = Host::with_kernel();
    let Host { fuse, taut } = &host;
    fuse.withhold_content();
    host.start_stuck("reading its kernel");
    // A child of the daemon that had a copy of the file would wait for it.
    others_go_on(taut, "other");
    stops_at_once(taut);
    fuse.release();
}

#[test]
fn a_daemon_that_is_killed_meanwhile_leaves_nothing_that_holds_up_the_next() {
    // The killed daemon ends after the file system, also if the test fails.
    let _killed;
    let mut host = Host::with_kernel();
    let kernel = host.taut.dir().join("mnt/vmlinuz");
    host.fuse.withhold_content();
    host.start_stuck("reading its kernel");
    let began = Instant::now();
    _killed = host.taut.replace_daemon();
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
    eventually("the start begins again", || reason(&host.taut)?.contains(" its kernel ").then_some(()));
    others_go_on(&host.taut, "other");
    fails_with(&host.taut, began, &kernel);
    host.fuse.release();
}

#[test]
fn many_vms_on_a_file_system_that_does_not_answer_leave_room_for_others_of_their_owner() {
    let host = Host::with_kernel();
    let Host { fuse, taut } = &host;
    let names: Vec<String> = (0..16).map(|number| format!("stuck{number}")).collect();
    for name in &names {
        create(taut, name, WITH_KERNEL);
    }
    fuse.withhold();
    let start = |name: &String| Background::start(taut.command().args(["vm", "start", name]));
    let _starts: Vec<Background> = names.iter().map(start).collect();
    for name in &names {
        let step = || taut.json(["vm", "show", name])["status"]["reason"].as_str().map(str::to_owned);
        eventually("its kernel is opened", || step()?.contains("opening its kernel").then_some(()));
    }
    others_go_on(taut, "other");
    // Those that were given up still have their threads.
    for name in &names {
        taut.ok(["vm", "stop", name]);
    }
    let words = format!("waits for other starts with files on {}", taut.dir().join("mnt").display());
    let _start = Background::start(taut.command().args(["vm", "start", "stuck"]));
    eventually("the file system is named", || reason(taut)?.contains(&words).then_some(()));
    others_go_on(taut, "another");
    stops_at_once(taut);
    fuse.release();
}

#[test]
fn a_start_that_the_plan_no_longer_has_keeps_no_file_open() {
    let host = Host::with(&format!("{WITH_KERNEL}[vmci]\n"));
    let Host { fuse, taut } = &host;
    let has_thread = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", taut.daemon_pid())).unwrap();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
        tasks.flatten().any(|task| name(task).is_ok_and(|name| name.trim() == "start"))
    };
    fuse.withhold_content();
    host.start_stuck("reading its kernel");
    assert!(has_thread());
    // Without the socket of its VMCI device the VM cannot be started. A file takes its folder's
    // place.
    let run = taut.dir().join("run/vms/stuck");
    fs::rename(&run, taut.dir().join("aside")).unwrap();
    fs::write(&run, "").unwrap();
    let words = "the fabric does not listen for its VMCI device";
    eventually("the VM waits for its socket", || reason(taut)?.contains(words).then_some(()));
    fuse.release();
    eventually("its thread has ended", || (!has_thread()).then_some(()));
    taut.ok(["vm", "stop", "stuck"]);
    fs::remove_file(run).unwrap();
}

#[test]
fn a_port_whose_path_does_not_answer_can_be_moved_and_deleted() {
    let taut = Taut::start().with_lan();
    let fuse = Fuse::mount(&taut.dir().join("mnt")).expect("the host has FUSE");
    fuse.withhold();
    let silent = taut.dir().join("mnt/port.sock");
    for (name, listen) in [("connects", false), ("listens", true)] {
        let attach = |path: &Path, listen: bool| {
            let words = ["port", "attach", name, "--portgroup", "lan", "--path", path.to_str().unwrap()];
            taut.ok(words.into_iter().chain(listen.then_some("--listen")));
        };
        attach(&silent, listen);
        let is_told = || {
            let events = taut.json(["events"]);
            let told = |event: &Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["subject"] == format!("external/{name}")
                    && message.contains("did not answer within 10 s")
            };
            events.as_array()?.iter().any(told).then_some(())
        };
        eventually("the path is told", is_told);
        taut.ok(["port", "detach", name]);
        let path = taut.dir().join(format!("{name}.sock"));
        attach(&path, true);
        eventually("the port listens elsewhere", || UnixStream::connect(&path).ok());
    }
    fuse.release();
}
