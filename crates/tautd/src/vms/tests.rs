use std::time::Duration;

use taut_api::host::{Accelerator, AcceleratorKind};

use taut_plan::facts::MemoryPlace;

use super::*;
use crate::board::HostFacts;

fn host() -> HostFacts {
    HostFacts { accelerator: Accelerator { kind: AcceleratorKind::Tcg, why: "a test".into() }, qemu: None }
}

/// A folder whose `taut-micro` is a shell script.
fn libexec(dir: &Path, script: &str) -> PathBuf {
    let program = dir.join("taut-micro");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    dir.to_owned()
}

fn spec() -> taut_api::vm::VmSpec {
    serde_json::from_str(r#"{"kind": "micro"}"#).unwrap()
}

fn wait_for_end(vms: &mut Vms, name: &Name) -> End {
    assert!(vms.running[name].process.has_ended(Duration::from_secs(20)));
    vms.ended(name).unwrap()
}

#[test]
fn a_vm_is_found_again_by_the_next_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    let libexec = libexec(dir.path(), "exec sleep 60");
    let mut first = Vms::adopt(dir.path()).unwrap();
    let pid = first.start(&name, &spec(), &host(), &libexec, false, &MemoryPlace::default()).unwrap();
    assert_eq!(first.see(&name).process.unwrap().accelerator, "native");

    let mut second = Vms::adopt(dir.path()).unwrap();
    assert_eq!(second.see(&name).process.unwrap().pid, pid);
    second.stop(&name, Duration::ZERO);
    assert!(second.see(&name).process.unwrap().stopping);
    assert_eq!(wait_for_end(&mut second, &name), End::Stopped);
    assert_eq!(second.see(&name), VmSeen::default());
    assert_eq!(
        wait_for_end(&mut first, &name),
        End::Failed(format!("its process {pid} ended with signal: 15 (SIGTERM)"))
    );
}

#[test]
fn a_failure_has_its_reason_until_it_is_forgiven() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    let libexec = libexec(dir.path(), "echo no such luck >&2; exit 3");
    let mut vms = Vms::adopt(dir.path()).unwrap();
    vms.start(&name, &spec(), &host(), &libexec, false, &MemoryPlace::default()).unwrap();
    let End::Failed(reason) = wait_for_end(&mut vms, &name) else { panic!("it failed") };
    assert!(reason.contains("no such luck") && reason.contains('3'), "{reason}");
    assert_eq!(Vms::adopt(dir.path()).unwrap().see(&name).failure.as_deref(), Some(reason.as_str()));
    Vms::forgive(dir.path(), &name);
    assert_eq!(vms.see(&name), VmSeen::default());
}

#[test]
fn a_missing_program_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut vms = Vms::adopt(dir.path()).unwrap();
    let error = vms
        .start(&"m1".parse().unwrap(), &spec(), &host(), dir.path(), false, &MemoryPlace::default())
        .unwrap_err();
    assert!(error.message.contains("taut-micro"), "{error}");
    assert!(!vms.any_running());
}

#[test]
fn a_guest_that_shuts_down_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let name: Name = "m1".parse().unwrap();
    let libexec = libexec(dir.path(), "exit 0");
    let mut vms = Vms::adopt(dir.path()).unwrap();
    vms.start(&name, &spec(), &host(), &libexec, false, &MemoryPlace::default()).unwrap();
    assert_eq!(wait_for_end(&mut vms, &name), End::ShutDown);
}
