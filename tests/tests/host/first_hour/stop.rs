//! A VM that is started while it stops: `vm stop` ends with the process that ran.

use std::process::Stdio;
use std::time::{Duration, Instant};

use taut_tests::{Taut, eventually, idle_microguests};

/// A microguest that takes its time to end.
const SLOW: &str = "#!/bin/sh\ntrap 'sleep 2; exit 0' TERM\nwhile :; do sleep 0.1; done\n";

#[test]
fn a_stop_that_is_overtaken_by_a_start_ends_and_says_so() {
    let dir = taut_tests::directory();
    let libexec = idle_microguests(dir.path());
    std::fs::write(libexec.join("taut-micro"), SLOW).unwrap();
    let args = vec!["--libexec", libexec.to_str().unwrap()];
    let args: Vec<&'static str> = args.into_iter().map(|arg| &*arg.to_owned().leak()).collect();
    let taut = Taut::start_with(args.leak());
    let file = taut.file("m.toml", "kind = \"micro\"\nmemory = \"16MiB\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m", "--start"]);
    let pid = || taut.json(["vm", "show", "m"])["status"]["pid"].as_i64();
    let first = eventually("the VM runs", pid);
    let mut stop = taut.command();
    let stop = stop.args(["vm", "stop", "m"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let stop = stop.spawn().expect("taut can be run");
    let phase = || taut.json(["vm", "show", "m"])["status"]["phase"].clone();
    eventually("the VM is stopping", || (phase() == "stopping").then_some(()));
    taut.ok(["vm", "start", "m"]);
    let output = stop.wait_with_output().expect("our child");
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{failed}");
    assert_eq!(said, "m: has stopped, and was told to start again meanwhile\n");
    assert!(begun.elapsed() < Duration::from_secs(60), "took {:?}", begun.elapsed());
    let second = eventually("the VM runs again", pid);
    assert_ne!(first, second);
    taut.ok(["vm", "stop", "m"]);
}
