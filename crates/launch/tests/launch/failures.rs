//! Launches that fail: the report names the step, and no process is left.

use std::fs::File;
use std::path::Path;

use taut_launch::{Device, LaunchError, Limit, Step};

use crate::fixture::{CAP_SYS_ADMIN, Start, memory};

/// Returns the step that failed and the error, after changing the document.
fn failure(start: &mut Start, change: impl FnOnce(&mut Start)) -> (Step, String) {
    change(start);
    match start.start().failed() {
        LaunchError::Failed { step, error, .. } => (step, error),
        other => panic!("{other:?}"),
    }
}

fn failed(change: impl FnOnce(&mut Start)) -> (Step, String) {
    failure(&mut Start::script("echo the program runs"), change)
}

#[test]
fn a_document_that_is_none_is_refused() {
    let start = Start::script("");
    for bytes in [b"".to_vec(), b"{}".to_vec(), b"[[[[".to_vec(), vec![b' '; 300_000]] {
        let error = start.start_with(&bytes).failed();
        assert!(matches!(error, LaunchError::Failed { step: Step::Document, pid: None, .. }), "{error:?}");
    }
}

#[test]
fn the_launcher_checks_what_the_caller_did_not() {
    let start = Start::script("");
    let text = serde_json::to_string(&start.document).unwrap();
    let error = start.start_with(text.replace("\"uid\":1879048199", "\"uid\":0").as_bytes()).failed();
    assert!(error.to_string().contains("the field `uid` of the document is 0"), "{error}");
}

#[test]
fn descriptors_that_are_missing_or_open_the_host_are_named() {
    let (step, error) = failed(|start| start.document.keep.push(77));
    assert_eq!(step, Step::Descriptors);
    assert!(error.starts_with("descriptor 77 (keep): "), "{error}");
    let (step, error) = failed(|start| _ = start.keep(File::open("/usr").unwrap()));
    assert_eq!(step, Step::Descriptors);
    assert!(error.starts_with("descriptor 11 is a folder"), "{error}");
    let (step, error) = failed(|start| start.document.program = 78);
    assert_eq!(step, Step::Descriptors);
    assert!(error.starts_with("descriptor 78 (program): "), "{error}");
}

#[test]
fn a_caller_of_an_earlier_version_is_told_to_restart() {
    let mut start = Start::script("echo the program runs");
    start.passes_confirmation = false;
    let error = start.start().failed();
    assert!(matches!(error, LaunchError::Failed { step: Step::Descriptors, pid: None, .. }), "{error:?}");
    assert!(error.to_string().contains("descriptor 5 (confirmation)"), "{error}");
    assert!(error.hint().ends_with("restart tautd"), "{}", error.hint());
}

#[test]
fn each_step_is_named_with_what_was_tried() {
    let (step, error) = failed(|start| start.document.limits.nofile = Some(Limit::At(1 << 40)));
    assert_eq!(step, Step::Limits);
    assert!(error.starts_with("setting the limit of nofile to 1099511627776: "), "{error}");

    let (step, error) = failed(|start| start.document.root.read_only = vec!["/no/such/file".into()]);
    assert_eq!(step, Step::Sources);
    assert!(error.starts_with("/no/such/file: "), "{error}");

    let (step, error) = failed(|start| start.document.landlock.read.push("/sys".into()));
    assert_eq!(step, Step::Landlock);
    assert!(error.contains("/sys"), "{error}");
}

#[test]
fn a_root_that_cannot_be_built_is_a_failure() {
    // The node's folder is a node.
    let node = |path: &str| Device { path: path.into(), major: 1, minor: 3, mode: 0o600 };
    let (step, error) = failed(|start| start.document.root.devices.push(node("/dev/null/null")));
    assert_eq!(step, Step::Root);
    assert!(error.starts_with("making /dev/null/null: "), "{error}");
}

#[test]
fn a_program_that_cannot_be_executed_is_a_failure_of_the_last_step() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, "no program").unwrap();
    let (step, error) = failure(&mut Start::new(&file, &["data"]), |_| {});
    assert_eq!(step, Step::Exec);
    assert!(error.starts_with("starting `data`: "), "{error}");
    let (step, _) = failure(&mut Start::new(Path::new("/dev/null"), &["null"]), |_| {});
    assert_eq!(step, Step::Descriptors);
    // A program whose libraries Landlock does not leave reachable.
    let (step, _) = failed(|start| start.document.landlock.execute.clear());
    assert_eq!(step, Step::Exec);
}

#[test]
fn without_privileges_the_first_wall_that_needs_them_fails() {
    let error = Start::script("").without(CAP_SYS_ADMIN).start().failed();
    assert!(error.to_string().contains("the wall `mount_namespace` is missing"), "{error}");
    assert_eq!(error.pid(), None);
}

#[test]
fn a_program_in_memory_is_started() {
    let mut start = Start::script("echo from memory");
    start.document.program = start.inherit(memory(&std::fs::read(crate::fixture::shell()).unwrap()));
    assert_eq!(start.run().output, "from memory\n");
}
