//! Acts that a program in a VM's place must not succeed in.

use std::collections::BTreeSet;
use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use crate::fixture::{FIRST_USER, Start, skeleton, system};

/// The example `forbidden_acts`, which has to be built first.
fn program() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let program = here.parent().unwrap().join("../examples/forbidden_acts").canonicalize();
    program.expect("no example\nhint: cargo build -p taut-launch --example forbidden_acts")
}

/// Runs the acts and returns their output.
fn output(change: impl FnOnce(&mut Start)) -> String {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let name = folder.path().to_str().unwrap();
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    // A process of another VM: another user's, with the same walls.
    let mut neighbour = Start::script("read line; true");
    neighbour.document.uid = FIRST_USER + 9;
    let neighbour = neighbour.start();
    let words = [
        "forbidden_acts".to_owned(),
        std::process::id().to_string(),
        neighbour.report.as_ref().unwrap().pid.to_string(),
        secret.to_str().unwrap().to_owned(),
        socket.to_str().unwrap().to_owned(),
        name.to_owned(),
        "11".to_owned(),
    ];
    let mut start = Start::new(&program(), &words.each_ref().map(String::as_str));
    start.keep(crate::fixture::memory(b""));
    start.inherit(fs::File::open(&secret).unwrap());
    change(&mut start);
    let finished = start.run();
    assert_eq!(finished.program.exit_status(), Some(0), "{}", finished.output);
    let unharmed = neighbour.finish();
    assert_eq!(unharmed.program.exit_status(), Some(0));
    finished.output
}

/// Checks that no act succeeded, and that each failed for a reason that is a wall.
fn check(output: &str, fewest: usize) {
    println!("{output}");
    let acts: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("ACT ")).collect();
    let names: BTreeSet<&str> =
        acts.iter().filter_map(|act| act.split_once(": ").map(|(name, _)| name)).collect();
    let not_refused: Vec<&&str> = acts.iter().filter(|act| !act.contains(": refused ")).collect();
    println!("acts: {} tried, {} names, {} not refused", acts.len(), names.len(), not_refused.len());
    assert_eq!(names.len(), acts.len(), "each act has a name of its own");
    assert!(not_refused.is_empty(), "{not_refused:#?}");
    assert!(acts.len() >= fewest, "{} acts", acts.len());
}

#[test]
fn no_forbidden_act_succeeds() {
    check(&output(|_| {}), 100);
}

#[test]
fn no_forbidden_act_succeeds_in_a_skeleton() {
    let namespace = skeleton(system()).unwrap();
    let output = output(|start| {
        start.document.root.skeleton = Some(start.inherit(namespace.try_clone().unwrap()));
    });
    check(&output, 100);
}
