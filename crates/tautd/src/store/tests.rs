use taut_api::event::Level;
use taut_api::network::{PortGroupSpec, Security, VSwitchSpec};
use taut_api::shaping::Shaping;
use taut_api::{ApiError, Name, Vlan};
use tempfile::TempDir;

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

fn vswitch(text: &str) -> Change {
    Change::VSwitch(name(text), Some(VSwitchSpec::default()))
}

fn portgroup(text: &str, vlan: u16) -> Change {
    let spec = PortGroupSpec {
        vswitch: name("sw"),
        security: Security::default(),
        shaping: Shaping::default(),
        vlan: Vlan::Access(vlan),
        mac_learning: None,
        teaming: None,
        traffic_class: taut_api::network_io::TrafficClass::default(),
    };
    Change::PortGroup(name(text), Some(spec))
}

fn vm() -> Change {
    let spec = r#"{"kind": "micro", "nic": [{"portgroup": "lan"}, {"portgroup": "lan"}], "power": "on"}"#;
    Change::Vm(name("vm1"), Some(serde_json::from_str(spec).unwrap()))
}

fn write(store: &Store, change: Change) -> Arc<State> {
    store.write(|_| Ok(change)).unwrap()
}

#[test]
fn acknowledged_writes_survive_a_restart() {
    let (dir, store) = store();
    for change in [vswitch("sw"), portgroup("lan", 7), vm()] {
        write(&store, change);
    }
    let before = store.state();
    assert_eq!(before.desired.vms.len(), 1);
    // Drop the store without closing, as a crash would.
    drop(store);
    let again = Store::open(dir.path()).unwrap();
    assert_eq!(*again.state(), *before);
    assert_eq!(again.state().revision_of(Kind::Vm, &name("vm1")), 3);
}

#[test]
fn revisions_grow_and_never_repeat() {
    let (dir, store) = store();
    assert_eq!(write(&store, vswitch("a")).revision, 1);
    assert_eq!(write(&store, vswitch("b")).revision, 2);
    assert_eq!(write(&store, Change::VSwitch(name("b"), None)).revision, 3);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let state = write(&store, vswitch("b"));
    assert_eq!((state.revision, state.revision_of(Kind::VSwitch, &name("b"))), (4, 4));
    assert_eq!(state.revision_of(Kind::VSwitch, &name("a")), 1);
}

#[test]
fn a_refused_write_changes_nothing() {
    let (dir, store) = store();
    write(&store, vswitch("a"));
    let no = || ApiError::new(ErrorKind::Conflict, "no", "never");
    assert_eq!(store.write(|_| Err(no())).unwrap_err(), no());
    assert_eq!(store.state().revision, 1);
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().state().revision, 1);
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_is_there() {
    let (dir, store) = store();
    write(&store, vswitch("sw"));
    let before = store.state();
    // Simulate a full file system by a limit of pages.
    let limit = |pages: u32| {
        lock(&store.db).pragma_update(None, "max_page_count", pages).unwrap();
    };
    limit(1);
    let refused =
        (0..200).find_map(|n| store.write(|_| Ok(vswitch(&format!("s{n}")))).err().map(|error| (n, error)));
    let (written, error) = refused.unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.to_string().contains("free space"), "{error}");
    assert_eq!(store.state().revision, before.revision + written);
    limit(10_000);
    write(&store, vswitch("after"));
    let after = store.state();
    drop(store);
    assert_eq!(*Store::open(dir.path()).unwrap().state(), *after);
}

#[test]
fn settings_of_one_document_are_written_all_or_none() {
    let (dir, store) = store();
    for change in [vswitch("sw"), portgroup("lan", 0), vm()] {
        write(&store, change);
    }
    let before = store.state();
    let several = |state: &State| {
        let mut vm = state.desired.vms[&name("vm1")].clone();
        vm.vm.nics[0].lro = Some(false);
        vm.vm.cpu.shares = "high".parse().unwrap();
        vm.vm.memory_reservation = "64MiB".parse().unwrap();
        vm.vm.halt.spin = Some(true);
        // Larger than a page of the file, so that the full disk below has no room for it.
        let domain = |n: u32| name(&format!("{n:0>63}"));
        let domains = (0..100).map(domain).collect();
        vm.vm.vmci = Some(taut_api::vmci::VmciSpec { domains, ..Default::default() });
        Ok(Change::Vm(name("vm1"), Some(vm)))
    };
    lock(&store.db).pragma_update(None, "max_page_count", 1).unwrap();
    assert_eq!(store.write(several).unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(store.state(), before);
    lock(&store.db).pragma_update(None, "max_page_count", 10_000).unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.state(), before);

    let after = store.write(several).unwrap();
    assert_eq!(after.revision, before.revision + 1, "one write");
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().state(), after);
}

#[test]
fn numbers_stay_until_their_owner_goes() {
    let (dir, store) = store();
    for change in [vswitch("sw"), portgroup("lan", 0), vm()] {
        write(&store, change);
    }
    let numbers = store.state().desired.numbers.clone();
    assert_eq!(numbers.ports.keys().collect::<Vec<_>>(), ["vm/vm1/nic0", "vm/vm1/nic1"]);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    write(&store, portgroup("another", 3));
    assert_eq!(store.state().desired.numbers.ports, numbers.ports);
    write(&store, Change::Vm(name("vm1"), None));
    assert!(store.state().desired.numbers.ports.is_empty());
}

#[test]
fn records_of_host_changes_stay_until_undone() {
    let (dir, store) = store();
    store.remember("netns/a", &1).unwrap();
    store.remember("netns/b", &2).unwrap();
    store.remember("netns/a", &3).unwrap();
    store.forget("netns/b").unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.remembered().unwrap(), [("netns/a".to_owned(), "3".to_owned())]);
}

#[test]
fn events_are_numbered_and_can_be_followed() {
    let (dir, store) = store();
    let newest = store.newest_event();
    for text in ["one", "two", "three"] {
        store.event(Level::Warning, "vm/a", "vm.test", text);
    }
    store.flush_events();
    assert_eq!(*newest.borrow(), 3);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let events = store.events(1, 10).unwrap();
    assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), ["two", "three"]);
    assert_eq!((events[0].seq, events[0].level), (2, Level::Warning));
    assert_eq!(store.events(0, 1).unwrap()[0].seq, 1);
    store.event(Level::Info, "vm/a", "vm.test", "four");
    store.flush_events();
    assert_eq!(*store.newest_event().borrow(), 4);
}

#[test]
fn neither_events_nor_reading_wait_for_the_disk_and_what_was_lost_is_told() {
    let (_dir, store) = store();
    write(&store, vswitch("sw"));
    // Whoever writes to a stalled disk holds this lock.
    let stalled = lock(&store.db);
    for n in 0..5000 {
        store.event(Level::Info, &format!("vm/{n}"), "vm.test", "x");
    }
    assert_eq!(store.state().revision, 1);
    drop(stalled);
    let events = store.events(0, 10_000).unwrap();
    let (kept, told): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.kind == "vm.test");
    let lost = 5000 - kept.len();
    assert!((1..1000).contains(&lost), "{lost} lost");
    let told: Vec<_> = told.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(told, [format!("{lost} events came faster than the disk took them and were lost")]);
}

#[test]
fn events_of_a_noisy_subject_do_not_evict_those_of_others() {
    let (_dir, store) = store();
    store.event(Level::Info, "vm/quiet", "vm.test", "evidence");
    for _ in 0..4000 {
        store.event(Level::Warning, "vm/noisy", "vm.test", "again");
    }
    let events = store.events(0, 10_000).unwrap();
    assert!((201..300).contains(&events.len()), "a burst of the one, and the other: {}", events.len());
    assert_eq!(events[0].message, "evidence");
}

#[test]
fn a_second_daemon_on_the_same_store_is_refused() {
    let (dir, store) = store();
    write(&store, vswitch("a"));
    assert!(matches!(Store::open(dir.path()), Err(OpenError::InUse { .. })));
}

#[test]
fn first_hour_a_file_that_is_no_store_is_refused_with_its_way_out() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("taut.db"), "garbage ".repeat(1000)).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(error.hint().contains("begin with an empty store: mv "), "{}", error.hint());
    let in_use = OpenError::InUse { path: "/x/taut.db".into(), pid: Some(7) };
    assert_eq!(in_use.to_string(), "another tautd has /x/taut.db open: process 7");
    assert!(in_use.hint().contains("kill 7"), "{}", in_use.hint());
}

#[test]
fn the_store_is_for_its_owner_alone_even_if_an_earlier_version_made_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, store) = store();
    write(&store, vswitch("a"));
    let path = |file: &str| dir.path().join(file);
    let mode = |file: &str| path(file).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("taut.db"), mode("taut.db-wal")), (0o600, 0o600));
    drop(store);
    std::fs::set_permissions(path("taut.db"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = Store::open(dir.path()).unwrap();
    assert_eq!(mode("taut.db"), 0o600);
}

#[test]
fn a_newer_store_is_refused() {
    let (dir, store) = store();
    lock(&store.db).pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    assert!(matches!(Store::open(dir.path()), Err(OpenError::Version { found: 99 })));
}

#[test]
fn numbers_of_another_version_are_reassigned_except_ports() {
    let (dir, store) = store();
    for change in [vswitch("sw"), portgroup("lan", 7), vm()] {
        store.write(|_| Ok(change)).unwrap();
    }
    let before = store.state().desired.numbers.clone();
    assert_eq!(before.segments.keys().collect::<Vec<_>>(), ["sw"]);
    drop(store);
    let db = Connection::open(dir.path().join("taut.db")).unwrap();
    db.execute("UPDATE numbers SET key = 'sw/7' WHERE kind = 'segment'", []).unwrap();
    drop(db);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.state().desired.numbers, before);
}

#[test]
fn a_vm_keeps_its_owner_until_it_is_deleted() {
    let (dir, store) = store();
    for change in [vswitch("sw"), portgroup("lan", 0)] {
        write(&store, change);
    }
    let alice = Rights { uid: 1000, gid: 100, groups: vec![27, 1000] };
    let vm1 = name("vm1");
    assert_eq!(store.write_for(Some(alice.clone()), |_| Ok(vm())).unwrap().owner_of(&vm1), alice);
    write(&store, vm());
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.state().owner_of(&vm1), alice, "also after a restart");
    assert_eq!(store.state().owner_of(&name("other")), Rights::root());
    write(&store, Change::Vm(vm1.clone(), None));
    write(&store, vm());
    assert_eq!(store.state().owner_of(&vm1), Rights::root(), "the next one of this name is another VM");
    store.write_for(Some(alice), |_| Ok(vm())).unwrap();
    store.write_for(Some(Rights::root()), |_| Ok(vm())).unwrap();
    assert_eq!(store.state().owner_of(&vm1), Rights::root());
}

#[test]
fn a_store_of_the_version_before_owners_is_opened() {
    let (dir, store) = store();
    for change in [vswitch("sw"), portgroup("lan", 0), vm()] {
        write(&store, change);
    }
    drop(store);
    let db = Connection::open(dir.path().join("taut.db")).unwrap();
    db.execute_batch("DROP TABLE owners").unwrap();
    drop(db);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.state().owner_of(&name("vm1")), Rights::root());
    let alice = Rights { uid: 1000, gid: 100, groups: Vec::new() };
    store.write_for(Some(alice.clone()), |_| Ok(vm())).unwrap();
    // That version deletes VMs without their owners.
    drop(store);
    let db = Connection::open(dir.path().join("taut.db")).unwrap();
    db.execute("DELETE FROM documents WHERE kind = 'vm'", []).unwrap();
    drop(db);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.state().owner_of(&name("vm1")), Rights::root());
}
