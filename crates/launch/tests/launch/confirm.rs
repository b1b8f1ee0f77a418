//! Starts that the caller confirms, gives up, or does not live to confirm.

use std::fs;
use std::io::Read as _;

use taut_launch::CONFIRM_FD;

use crate::fixture::{Launching, PATIENCE, Start, assert_nothing_left, wait};

/// A program that leaves a trace, with and without a pid namespace of its own.
fn starts() -> [Start; 2] {
    [true, false].map(|pid_namespace| {
        let mut start = Start::script("echo the program runs");
        start.document.namespaces.pid = pid_namespace;
        start
    })
}

/// Waits for the end of all processes of a launch whose program must not have run.
fn assert_never_ran(mut launcher: std::process::Child, pid: u32, mut output: std::io::PipeReader) {
    if pid == launcher.id() {
        assert_eq!(launcher.wait().unwrap().code(), Some(1));
    } else {
        assert!(launcher.wait().unwrap().success());
        assert_eq!(wait(pid).exit_status(), Some(1));
    }
    assert_nothing_left(launcher.id());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "", "the process says nothing, and its program has not run");
}

#[test]
fn without_a_byte_the_process_ends_and_the_report_says_why() {
    for start in starts() {
        let (launching, waiting) = start.start_unconfirmed();
        let Launching { launcher, mut report, confirm, input: _input, output } = launching;
        drop(confirm);
        let mut text = String::new();
        report.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("{\"failed\":{\"step\":\"confirm\""), "{text}");
        assert_never_ran(launcher, waiting.launched.pid, output);
    }
}

/// The kernel closes all descriptors of a caller that is killed.
#[test]
fn no_process_outlives_a_caller_that_is_killed_before_it_confirms() {
    for start in starts() {
        let (launching, waiting) = start.start_unconfirmed();
        let Launching { launcher, report, confirm, input, output } = launching;
        drop((report, confirm, input));
        assert_never_ran(launcher, waiting.launched.pid, output);
    }
}

/// The caller may be killed at any earlier moment, too.
#[test]
fn no_process_outlives_a_caller_that_is_killed_while_the_walls_are_built() {
    for start in starts() {
        let Launching { mut launcher, report, confirm, input, mut output } =
            start.spawn(&start.document.to_bytes().unwrap(), &[]);
        drop((report, confirm, input));
        launcher.wait().unwrap();
        // The end of the output is the end of the last process that has it.
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }
}

#[test]
fn the_process_waits_behind_its_walls_and_its_program_does_not_inherit_the_pipe() {
    let start = Start::script(&format!("[ -e /proc/self/fd/{CONFIRM_FD} ] || echo no pipe"));
    let (launching, waiting) = start.start_unconfirmed();
    let pid = waiting.launched.pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for wall in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
        assert!(status.contains(wall), "{status}");
    }
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert!(program.ends_with("taut-launch"), "{program:?}");
    let Launching { mut launcher, report, confirm, input: _input, mut output } = launching;
    waiting.finish(confirm.into(), &report, PATIENCE).unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), wait(pid).exit_status()), ("no pipe\n", Some(0)));
    launcher.wait().unwrap();
}
