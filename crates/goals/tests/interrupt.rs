//! A request to end the program.

use std::time::{Duration, Instant};

use taut_goals::machine::{Command, Machine, ThisMachine, is_interrupted, watch_for_interrupts};

#[test]
fn a_request_to_end_is_noted_and_programs_do_not_inherit_how() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = ThisMachine::new(dir.path());
    watch_for_interrupts().unwrap();
    let status = machine.run(&Command::new("cat").arg("/proc/self/status")).unwrap().stdout;
    for signals in ["SigBlk:", "SigIgn:"] {
        // SIGINT (2) and SIGTERM (15). SIGHUP may be ignored by whoever started the tests.
        let mask = u64::from_str_radix(&status.between(signals, "").unwrap(), 16).unwrap();
        assert_eq!(mask & (1 << 1 | 1 << 14), 0, "{signals} {mask:x}");
    }
    assert!(!is_interrupted());
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while !is_interrupted() {
        assert!(Instant::now() < end, "SIGTERM was not noted");
        std::thread::sleep(Duration::from_millis(5));
    }
}
