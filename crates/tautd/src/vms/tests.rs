use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use taut_api::enforcement::ProcessLimits;
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::machine::VmAccelerator;
use taut_api::{ApiError, Bytes};

use taut_plan::facts::MemoryPlace;

use super::*;
use crate::access::rights::Rights;
use crate::board::HostFacts;
use crate::confine::stand_in::{confiner, write_script};
use crate::console::LogFolder;
use crate::inbox::AddResult;

fn host() -> HostFacts {
    HostFacts { accelerator: Accelerator { kind: AcceleratorKind::Tcg, why: "a test".into() }, qemu: None }
}

/// Makes a `taut-micro` that is a shell script.
fn make_program(dir: &Path, script: &str) {
    write_script(&dir.join("taut-micro"), script);
}

fn spec() -> taut_api::vm::VmSpec {
    serde_json::from_str(r#"{"kind": "micro"}"#).unwrap()
}

fn adopt(dir: &Path) -> io::Result<Vms> {
    adopt_with(dir, Confiner::without_walls())
}

fn adopt_with(dir: &Path, confiner: Confiner) -> io::Result<Vms> {
    let console = Console::new(dir, dir, LogFolder::at(dir.join("log")), None, Confiner::without_walls())?;
    Vms::adopt(dir, dir, confiner, console, Inbox::new().0)
}

fn place() -> Place<'static> {
    const ANYWHERE: &MemoryPlace = &MemoryPlace { nodes: Vec::new(), huge: false };
    Place { exclusive: false, memory: ANYWHERE, mtus: BTreeMap::new() }
}

fn no_limit(_: &Name, _: u32, _: &ProcessLimits) {}

/// Leaves the CPU to the threads of starts before the next look at them.
fn pause(vms: &Vms, end: Instant) {
    assert!(Instant::now() < end, "{:?}", vms.start_steps());
    std::thread::sleep(Duration::from_millis(2));
}

/// Prepares and launches a microguest.
fn launch(vms: &mut Vms, name: &Name) -> Result<(), ApiError> {
    let (spec, end) = (spec(), Instant::now() + Duration::from_secs(20));
    while !vms.prepare(name, &spec, &Rights::root()) {
        pause(vms, end);
        vms.begin_starts();
        assert!(vms.finish_starts(no_limit).is_empty());
    }
    vms.launch(name, &spec, &host(), &place())
}

/// Starts a microguest, and returns its process.
fn start(vms: &mut Vms, name: &Name) -> Result<u32, ApiError> {
    launch(vms, name)?;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        pause(vms, end);
        if let Some((started, result)) = vms.finish_starts(no_limit).pop() {
            assert_eq!(started, *name);
            return result;
        }
    }
}

fn wait_for_end(vms: &mut Vms, name: &Name) -> End {
    assert!(vms.running[name].process.has_ended(Duration::from_secs(20)));
    vms.ended(name).unwrap()
}

#[test]
fn the_next_daemon_adopts_a_running_vm() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut first = adopt(dir.path()).unwrap();
    let pid = start(&mut first, &name).unwrap();
    assert_eq!(first.observe(&name).process.unwrap().accelerator, VmAccelerator::Native);

    let mut second = adopt(dir.path()).unwrap();
    assert_eq!(second.observe(&name).process.unwrap().pid, pid);
    let limits = |vms: &Vms| vms.observe(&name).process.unwrap().limits;
    assert!(limits(&first).is_some() && limits(&second) == limits(&first));
    second.stop(&name, Duration::ZERO);
    assert!(second.observe(&name).process.unwrap().stopping);
    assert_eq!(wait_for_end(&mut second, &name), End::Stopped);
    assert_eq!(second.observe(&name), VmSeen::default());
    assert_eq!(
        wait_for_end(&mut first, &name),
        End::Failed(format!("its process {pid} ended with signal: 15 (SIGTERM)"))
    );
}

#[test]
fn a_failures_reason_is_kept_until_it_is_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "echo no such luck >&2; exit 3");
    let mut vms = adopt(dir.path()).unwrap();
    start(&mut vms, &name).unwrap();
    let End::Failed(reason) = wait_for_end(&mut vms, &name) else { panic!("it failed") };
    assert!(reason.contains("no such luck") && reason.contains('3'), "{reason}");
    assert_eq!(adopt(dir.path()).unwrap().observe(&name).failure.as_deref(), Some(reason.as_str()));
    Vms::clear_failure(dir.path(), &name);
    assert_eq!(vms.observe(&name), VmSeen::default());
}

#[test]
fn first_hour_the_signal_that_killed_an_adopted_vm_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut first = adopt(dir.path()).unwrap();
    let pid = start(&mut first, &name).unwrap();
    let mut second = adopt(dir.path()).unwrap();
    second.running[&name].process.signal(rustix::process::Signal::KILL);
    // The first daemon has not reaped its child.
    let killed = End::Failed(format!("its process {pid} ended with signal: 9 (SIGKILL)"));
    assert_eq!(wait_for_end(&mut second, &name), killed);
    assert_eq!(wait_for_end(&mut first, &name), killed);
}

#[test]
fn a_start_in_whose_middle_the_daemon_ended_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut first = adopt(dir.path()).unwrap();
    start(&mut first, &name).unwrap();
    first.kill(&name);
    assert!(first.running[&name].process.has_ended(Duration::from_secs(20)));
    let path = first.paths(&name).pid();
    let Record { identity, facts } = Record::read(&first.paths(&name)).unwrap();
    assert!(!facts.waiting);
    write_record(&path, &Record { identity, facts: Facts { waiting: true, ..facts } }).unwrap();
    assert_eq!(adopt(dir.path()).unwrap().observe(&name), VmSeen::default());
    assert!(!path.exists());
}

#[test]
fn a_program_that_ran_before_its_daemon_could_record_that_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut first = adopt(dir.path()).unwrap();
    let pid = start(&mut first, &name).unwrap();
    let Record { identity, facts } = Record::read(&first.paths(&name)).unwrap();
    let record = Record { identity, facts: Facts { waiting: true, ..facts } };
    write_record(&first.paths(&name).pid(), &record).unwrap();
    let mut second = adopt(dir.path()).unwrap();
    assert_eq!(second.observe(&name).process.unwrap().pid, pid);
    assert!(!Record::read(&first.paths(&name)).unwrap().facts.waiting);
    second.kill(&name);
    assert_eq!(wait_for_end(&mut second, &name), End::Stopped);
}

#[test]
fn a_process_is_recorded_watched_and_limited_before_its_start_is_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut vms = adopt(dir.path()).unwrap();
    launch(&mut vms, &name).unwrap();
    let (paths, end) = (vms.paths(&name), Instant::now() + Duration::from_secs(20));
    let mut limited = None;
    while limited.is_none() {
        pause(&vms, end);
        let finished = vms.finish_starts(|_, pid, limits| {
            let record = Record::read(&paths).expect("it is recorded");
            assert!(record.facts.waiting && record.identity.pid == pid);
            limited = Some((pid, limits.processes));
        });
        assert!(finished.is_empty(), "nothing is confirmed yet");
    }
    let pid = vms.running[&name].process.pid();
    assert_eq!(limited, Some((pid, 81)));
    // It is not taken for a VM that has ended, whatever becomes of it.
    assert_eq!(vms.ended(&name), None);
    let finished = loop {
        pause(&vms, end);
        if let Some(finished) = vms.finish_starts(no_limit).pop() {
            break finished;
        }
    };
    assert_eq!(finished.1.unwrap(), pid);
    assert!(!Record::read(&paths).unwrap().facts.waiting);
    vms.kill(&name);
    assert_eq!(wait_for_end(&mut vms, &name), End::Stopped);
}

#[test]
fn a_start_that_is_given_up_leaves_neither_process_nor_record() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut vms = adopt(dir.path()).unwrap();
    launch(&mut vms, &name).unwrap();
    let (path, end) = (vms.paths(&name).pid(), Instant::now() + Duration::from_secs(20));
    while !path.exists() {
        pause(&vms, end);
    }
    let identity = Record::read(&vms.paths(&name)).unwrap().identity;
    vms.end_starts(Duration::from_secs(20));
    assert!(Process::adopt(identity).is_none(), "the process has ended");
    assert!(!path.exists() && !vms.any_running());
    assert_eq!(vms.observe(&name), VmSeen::default());
}

#[test]
fn a_record_that_cannot_be_written_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut vms = adopt_with(dir.path(), confiner(dir.path())).unwrap();
    // A folder in the record's place.
    fs::create_dir_all(vms.paths(&name).pid().join("full")).unwrap();
    let error = start(&mut vms, &name).unwrap_err();
    assert!(error.to_string().contains("recording its process"), "{error}");
    assert!(!vms.any_running() && !dir.path().join("ran").exists());
    // The launcher was killed, and so were the processes that it had started.
    let launcher = dir.path().join("taut-launch");
    let names = |pid: &Path| {
        fs::read(pid.join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(launcher.to_str().unwrap()))
    };
    let end = Instant::now() + Duration::from_secs(20);
    while fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path())).any(|pid| names(&pid)) {
        pause(&vms, end);
    }
}

#[test]
fn an_error_names_the_missing_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut vms = adopt(dir.path()).unwrap();
    let error = start(&mut vms, &"m1".parse().unwrap()).unwrap_err();
    assert!(error.message.contains("taut-micro"), "{error}");
    assert!(!vms.any_running());
}

#[test]
fn a_guest_that_shuts_itself_down_has_not_failed() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exit 0");
    let mut vms = adopt(dir.path()).unwrap();
    start(&mut vms, &name).unwrap();
    assert_eq!(wait_for_end(&mut vms, &name), End::ShutDown);
}

#[test]
fn a_running_vm_is_observed_without_its_run_directory() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut vms = adopt(dir.path()).unwrap();
    let pid = start(&mut vms, &name).unwrap();
    fs::remove_dir_all(dir.path().join("vms")).unwrap();
    assert_eq!(vms.seen()[&name].process.as_ref().map(|process| process.pid), Some(pid));
    vms.kill(&name);
    wait_for_end(&mut vms, &name);
}

#[test]
fn the_order_in_which_drivers_set_addresses_survives_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b]: [Name; 2] = ["a", "b"].map(|name| name.parse().unwrap());
    make_program(dir.path(), "exec sleep 60");
    let mut vms = adopt(dir.path()).unwrap();
    let [of_a, of_b] = [&a, &b].map(|name| start(&mut vms, name).unwrap());
    let mac = |last| Some(MacAddr([2, 0, 0, 0, 0, last]));
    let orders = |vms: &Vms, name: &Name| -> Vec<_> {
        let addresses = vms.observe(name).process.unwrap().machine.addresses;
        addresses.into_iter().map(|set| set.map(|set| (set.mac.0[5], set.order))).collect()
    };
    vms.record_addresses(&b, of_b, &[mac(1), None]).unwrap();
    assert_eq!(vms.record_addresses(&a, of_a, &[mac(2)]), Some(Vec::new()));
    let [first, second] = [orders(&vms, &b)[0].unwrap(), orders(&vms, &a)[0].unwrap()];
    assert!(first.0 == 1 && second.0 == 2 && first.1 < second.1, "{first:?} {second:?}");
    // Only an address that changes goes to the end.
    assert_eq!(vms.record_addresses(&b, of_b, &[mac(1), mac(2)]), Some(vec![mac(1), None]));
    let [kept, later] = orders(&vms, &b)[..] else { panic!() };
    assert!(kept == Some(first) && later.unwrap().1 > second.1, "{later:?}");
    assert_eq!(vms.record_addresses(&a, of_b, &[mac(3)]), None, "that is no process of this VM");

    let next = adopt(dir.path()).unwrap();
    assert_eq!([orders(&next, &b), orders(&next, &a)], [vec![kept, later], vec![Some(second)]]);
    for name in [&a, &b] {
        vms.kill(name);
        wait_for_end(&mut vms, name);
    }
}

#[test]
fn memory_that_is_added_is_recorded_before_and_undone_if_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    make_program(dir.path(), "exec sleep 60");
    let mut vms = adopt(dir.path()).unwrap();
    let pid = start(&mut vms, &name).unwrap();
    let (size, other) = (Bytes::mib(16), Bytes::mib(32));
    let recorded = |vms: &Vms| Record::read(&vms.paths(&name)).unwrap().facts;
    let limits = |vms: &Vms| vms.running[&name].facts.limits.unwrap();
    let before = limits(&vms);
    assert_eq!(vms.next_step(&name, size), NextStep::Begin);
    assert_eq!(vms.next_step(&name, Bytes(0)), NextStep::Wait);

    // The limits are larger by the memory, 2 MiB that precede it, and page tables.
    vms.begin_adding(&name, size, true).unwrap();
    assert_eq!(limits(&vms).memory.0 - before.memory.0, Bytes::mib(19).0);
    let facts = recorded(&vms);
    assert_eq!((facts.limits, facts.size.unwrap().queue_pairs), (Some(limits(&vms)), size));
    assert!(facts.pending_queue_pairs.is_some() && vms.observe(&name).process.unwrap().adds_queue_pairs);
    assert_eq!(vms.next_step(&name, size), NextStep::Limit);
    vms.note_limits(&name);
    assert_eq!((vms.next_step(&name, size), vms.next_step(&name, other)), (NextStep::Ask, NextStep::GiveUp));

    // The next daemon asks QEMU, whatever is wanted by then.
    let mut next = adopt(dir.path()).unwrap();
    assert_eq!(next.next_step(&name, other), NextStep::Limit);
    next.note_limits(&name);
    assert_eq!((next.next_step(&name, size), next.next_step(&name, other)), (NextStep::Ask, NextStep::Ask));
    assert!(!next.needs_larger_limit(&name), "it has no file to send");
    let task = next.monitor_task(&name).unwrap();
    assert_eq!(next.next_step(&name, size), NextStep::Wait, "one thread asks at a time");
    let AddResult::Unclear(why) = task.run() else { panic!("there is no monitor") };
    assert_eq!(next.end_adding(&name, pid, &AddResult::Unclear(why)), Some(size));
    assert_eq!(next.next_step(&name, size), NextStep::Limit, "the limits stay until it is clear");
    assert!(recorded(&next).pending_queue_pairs.is_some());

    assert!(vms.needs_larger_limit(&name));
    assert_eq!(vms.end_adding(&name, pid + 1, &AddResult::Absent), None);
    assert_eq!(vms.next_step(&name, size), NextStep::Ask, "the VM has another process");
    assert_eq!(vms.end_adding(&name, pid, &AddResult::Refused("no room".into())), Some(size));
    let facts = recorded(&vms);
    assert_eq!((facts.limits, facts.size.unwrap().queue_pairs), (Some(before), Bytes(0)));
    assert_eq!((facts.pending_queue_pairs, facts.queue_pairs), (None, None));
    assert_eq!(vms.next_step(&name, size), NextStep::Begin);

    // Nobody is told of a request to a VM that was killed.
    vms.begin_adding(&name, size, true).unwrap();
    vms.kill(&name);
    assert_eq!(vms.next_step(&name, size), NextStep::Wait);
    assert_eq!(vms.end_adding(&name, pid, &AddResult::Unclear("it has ended".into())), None);
    assert_eq!(wait_for_end(&mut vms, &name), End::Stopped);
}
