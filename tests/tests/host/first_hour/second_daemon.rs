//! A second daemon, and a store that is none: the hints name what is in the way.

use std::path::Path;
use std::process::{Command, Output};

use taut_tests::{Taut, alive, bin_dir, directory, eventually};

fn tautd(state: &Path, run: &Path) -> Output {
    let mut command = Command::new(bin_dir().join("tautd"));
    command.arg("--state-dir").arg(state).arg("--run-dir").arg(run);
    command.output().expect("tautd can be run")
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_second_daemon_is_told_of_the_first() {
    let mut taut = Taut::start();
    let (state, run) = (taut.dir().join("state"), taut.dir().join("run"));
    let said = refused(&tautd(&state, &run));
    assert!(said.contains("another tautd runs on "), "{said}");
    let end = format!("taut --socket {} shutdown", run.join("tautd.sock").display());
    assert!(said.split_once("\nhint: ").unwrap().1.contains(&end), "{said}");
    assert!(said.contains("--first-user that is at least 65536 higher or lower"), "{said}");

    let other = directory();
    let said = refused(&tautd(&state, &other.path().join("run")));
    let (pid, file) = (taut.daemon_pid(), state.join("taut.db"));
    assert!(said.contains(&format!("another tautd has {} open: process {pid}", file.display())), "{said}");
    let hint = said.split_once("\nhint: ").unwrap().1;
    assert!(hint.contains(&format!("kill {pid}")) && hint.contains("its own --state-dir"), "{said}");
    // The hint works.
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    eventually("the first daemon has ended", || (!alive(pid)).then_some(()));
    taut.kill_daemon();
    taut.restart_daemon();
}

#[test]
fn two_daemons_do_not_share_their_logs() {
    let taut = Taut::start();
    let other = directory();
    let mut command = Command::new(bin_dir().join("tautd"));
    command.arg("--state-dir").arg(other.path().join("state")).arg("--run-dir").arg(other.path().join("run"));
    let output = command.arg("--log-dir").arg(taut.dir().join("log")).output().expect("tautd can be run");
    let said = refused(&output);
    assert!(
        said.contains(&format!("another tautd has its logs in {}", taut.dir().join("log").display())),
        "{said}"
    );
    assert!(said.contains("hint: give this one its own --log-dir"), "{said}");
}

#[test]
fn a_file_that_is_no_store_is_named_with_the_way_out() {
    let dir = directory();
    let (state, run) = (dir.path().join("state"), dir.path().join("run"));
    std::fs::create_dir(&state).unwrap();
    let file = state.join("taut.db");
    std::fs::write(&file, "not a database at all ".repeat(500)).unwrap();
    let said = refused(&tautd(&state, &run));
    assert!(said.contains(&format!("{} is no store of taut, or it is damaged", file.display())), "{said}");
    let hint = said.split_once("\nhint: ").unwrap().1;
    assert!(hint.contains(&format!("mv {} {}.damaged", file.display(), file.display())), "{said}");
    assert!(!hint.contains("that can be written to"), "{said}");
}
