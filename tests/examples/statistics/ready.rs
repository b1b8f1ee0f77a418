//! Ready time of a foreign VM, and what the daemon does to its process.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use taut_tests::{Taut, busy_machine, eventually};

use crate::Outcome;

/// System calls by which a process acts on another one, or opens its files.
const TRACED: &str = "trace=open,openat,openat2,kill,tgkill,tkill,pidfd_open,pidfd_send_signal,ptrace,\
                      process_vm_writev,sched_setaffinity,sched_setscheduler,sched_setattr,setpriority,\
                      ioprio_set,prlimit64,migrate_pages,move_pages,rt_sigqueueinfo,rt_tgsigqueueinfo";

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
    let trace = taut.dir().join("trace");
    let mut strace = Command::new("strace")
        .args(["-f", "-qq", "-e", TRACED, "-p", &taut.daemon_pid().to_string(), "-o"])
        .arg(&trace)
        .spawn()?;
    sleep(Duration::from_secs(seconds + 5));
    let found = find().ok_or("the VM is not seen")?;
    Command::new("kill").args(["-INT", &strace.id().to_string()]).status()?;
    strace.wait()?;
    let touches = Touches::of(&std::fs::read_to_string(&trace)?, machine.id());
    let vcpus = found["vcpus"].as_array().ok_or("no vCPUs")?;
    let percents = |name: &str| vcpus.iter().filter_map(|vcpu| vcpu[name].as_f64()).collect::<Vec<_>>();
    Ok(json!({
        "seconds": seconds,
        "ready": percents("ready_percent"),
        "run": percents("run_percent"),
        "opened": touches.opened,
        "changed": touches.changed,
    }))
}

/// System calls of the daemon that name a process or one of its threads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Touches {
    /// Files of the process that were opened to be read.
    opened: u32,
    /// Everything else: files opened to be written, signals, changed settings.
    changed: Vec<String>,
}

impl Touches {
    fn of(trace: &str, pid: u32) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let tasks: Vec<String> = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok()).collect();
        let mut found = Self::default();
        for line in trace.lines() {
            // A line begins with the daemon's own thread.
            let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
            let words = |character: char| !character.is_ascii_digit();
            if !call.split(words).any(|word| tasks.iter().any(|task| task == word)) {
                continue;
            }
            if call.starts_with("open") && call.contains("O_RDONLY") {
                found.opened += 1;
            } else if !call.contains("resumed>") {
                found.changed.push(call.to_owned());
            }
        }
        found
    }
}
