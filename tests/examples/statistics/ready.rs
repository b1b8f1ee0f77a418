//! Ready time of a foreign VM, and what the daemon and `taut top` do to its process.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use taut_tests::{Taut, Touches, Untouchable, bin_dir, busy_machine, eventually, strace};

use crate::Outcome;

/// Samples of `taut top` under `strace`.
const TOP_SAMPLES: &str = "3";

/// Watches for so many seconds.
pub(crate) fn run(seconds: u64) -> Outcome<Value> {
    let taut = Taut::start();
    let machine = busy_machine(taut.dir(), "busy", 2);
    let period = format!("{seconds}s");
    let find = || {
        let all = taut.json(["vm", "stats", "--period", &period]);
        all.as_array()?.iter().find(|vm| vm["pid"] == machine.id()).cloned()
    };
    // The second vCPU is started by the first one.
    eventually("both vCPUs run", || {
        let vcpus = find()?["vcpus"].as_array()?.clone();
        (vcpus.iter().filter(|vcpu| vcpu["run_percent"].as_f64() > Some(10.0)).count() == 2).then_some(())
    });
    let daemon = taut.dir().join("daemon.trace");
    let mut tracer = strace(&daemon).arg("-p").arg(taut.daemon_pid().to_string()).spawn()?;
    sleep(Duration::from_secs(seconds + 5));
    let found = find().ok_or("the VM is not seen")?;
    let whom = Untouchable::of(machine.id());
    let top = traced(&taut, "top", |command| {
        let socket = taut.dir().join("run/tautd.sock");
        let words = ["top", "-b", "-d", "1", "-n", TOP_SAMPLES];
        command.arg(bin_dir().join("taut")).arg("--socket").arg(socket).args(words);
    })?;
    // A program that does touch the VM shows that the trace would tell.
    let pid = machine.id();
    let control = traced(&taut, "control", |command| {
        let touch = "echo 0 >/proc/$1/oom_score_adj; kill -CONT $1; taskset -cp 0 $1; renice -n 0 -p $1";
        command.args(["sh", "-c", touch, "sh", &pid.to_string()]);
    })?;
    Command::new("kill").args(["-INT", &tracer.id().to_string()]).status()?;
    tracer.wait()?;
    let daemon = Touches::of(&std::fs::read_to_string(&daemon)?, &whom);
    let [top, control] = [top, control].map(|trace| Touches::of(&trace, &whom));
    let vcpus = found["vcpus"].as_array().ok_or("no vCPUs")?;
    let percents = |name: &str| vcpus.iter().filter_map(|vcpu| vcpu[name].as_f64()).collect::<Vec<_>>();
    Ok(json!({
        "seconds": seconds,
        "ready": percents("ready_percent"),
        "run": percents("run_percent"),
        "opened": daemon.opened,
        "changed": daemon.changed,
        "top_opened": top.opened,
        "top_changed": top.changed,
        "control_changed": control.changed,
    }))
}

/// Runs a program under `strace`, and returns the trace.
fn traced(taut: &Taut, name: &str, program: impl FnOnce(&mut Command)) -> Outcome<String> {
    let trace = taut.dir().join(format!("{name}.trace"));
    let mut command = strace(&trace);
    program(&mut command);
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(std::fs::read_to_string(&trace)?)
}
