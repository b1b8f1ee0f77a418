//! Starts: of a VM that runs already, and of a guest that never answers.

use std::time::{Duration, Instant};

use taut_tests::{Taut, eventually};

const MICRO: &str = "kind = \"micro\"\nmemory = \"64MiB\"\n";

#[test]
fn a_vm_that_runs_is_not_written_again() {
    let taut = Taut::start();
    taut.boot("m", MICRO);
    eventually("the VM runs", || {
        (taut.json(["vm", "show", "m"])["status"]["phase"] == "running").then_some(())
    });
    let state = || {
        let vm = taut.json(["vm", "show", "m"]);
        (vm["revision"].clone(), vm["status"]["pid"].clone(), taut.json(["events"]).as_array().unwrap().len())
    };
    let before = state();
    let line = format!("VM m: running, process {}; it ran already", before.1);
    assert_eq!(taut.ok(["vm", "start", "m"]), format!("{line}\n"));
    assert_eq!(taut.ok(["vm", "start", "m", "--wait"]), format!("{line}; its agent answers\n"));
    assert_eq!(state(), before);
}

#[test]
fn a_guest_without_an_agent_is_waited_for_as_long_as_asked_and_has_no_log() {
    let taut = Taut::start();
    let disk = taut.file("empty.img", "");
    std::fs::File::options().write(true).open(&disk).unwrap().set_len(1 << 20).unwrap();
    let file = taut.file("vm.toml", "memory = \"64MiB\"\n[disk]\npath = \"empty.img\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "mute", "--start"]);
    let begun = Instant::now();
    let said = taut.refused(["vm", "start", "mute", "--wait", "--timeout", "2"]);
    let took = begun.elapsed();
    assert!(said.contains("gave no answer within "), "{said}");
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(60), "took {took:?}");

    let log = taut.run(["vm", "log", "mute"]);
    assert!(log.success && log.stdout.is_empty(), "{log:?}");
    let silence = format!(
        "mute: the guest has written nothing to its serial console yet; its disk {} is empty, so it has \
         nothing to boot\n",
        disk.display()
    );
    assert_eq!(log.stderr, silence);
    assert!(taut.json(["vm", "log", "mute"]).as_array().unwrap().is_empty());
    taut.ok(["vm", "stop", "--force", "mute"]);
}
