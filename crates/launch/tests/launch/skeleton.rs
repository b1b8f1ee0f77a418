//! The skeleton, and launches that use it.

use std::fs;
use std::os::fd::OwnedFd;

use taut_launch::{LaunchError, Step};

use crate::fixture::{Start, skeleton, system};

/// Runs a script in the root of a skeleton.
fn in_skeleton(namespace: &OwnedFd, script: &str) -> Start {
    let mut start = Start::script(script);
    start.document.root.skeleton = Some(start.inherit(namespace.try_clone().unwrap()));
    start
}

#[test]
fn launches_share_a_skeleton_and_nothing_else() {
    let namespace = skeleton(system()).unwrap();
    let script = "ls /; readlink /proc/self/ns/mnt; echo x >/tmp/x; ls /tmp; wc -l </proc/self/mountinfo";
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let mut start = in_skeleton(&namespace, script);
        start.document.root.tmp = Some(65536);
        start.document.landlock.write = vec!["/".into()];
        outputs.push(start.run().output);
    }
    for output in &outputs {
        assert!(output.starts_with("bin\n") && output.contains("\nusr\n"), "{output}");
        assert!(!output.contains("etc") && !output.contains("Permission"), "{output}");
        assert!(output.contains("\nx\n"), "{output}");
        let mounts: u32 = output.lines().last().unwrap().parse().unwrap();
        assert!(mounts < 20, "{output}");
    }
    assert_ne!(outputs[0], outputs[1], "each launch has a mount namespace of its own");
}

#[test]
fn files_of_the_host_are_added_to_a_skeleton() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "of the host\n").unwrap();
    let namespace = skeleton(system()).unwrap();
    let mut start = in_skeleton(&namespace, &format!("cat {}", file.display()));
    start.document.root.read_only = vec![file.clone()];
    start.document.landlock.read.push(file);
    assert_eq!(start.run().output, "of the host\n");
}

#[test]
fn a_skeleton_lacks_what_it_was_not_given() {
    let namespace = skeleton(system()).unwrap();
    let mut start = in_skeleton(&namespace, "");
    start.document.root.system.push("/etc".into());
    let error = start.start().failed();
    assert!(error.to_string().contains("/etc: No such file or directory"), "{error}");
    let error = skeleton(vec!["/no/such/folder".into()]).unwrap_err();
    assert!(matches!(error, LaunchError::Failed { step: Step::Sources, .. }), "{error:?}");
}

#[test]
fn a_descriptor_that_is_no_mount_namespace_is_refused() {
    let mut start = Start::script("");
    let wrong = fs::File::open("/proc/self/ns/net").unwrap();
    start.document.root.skeleton = Some(start.inherit(wrong));
    let error = start.start().failed();
    assert!(matches!(error, LaunchError::Failed { step: Step::Namespaces, .. }), "{error:?}");
}
