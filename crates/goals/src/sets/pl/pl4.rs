//! PL4: high and normal in alternation on a running VM, many times, under one busy connection. The
//! connection has to survive, and everything that is changed on the host has to be as before after
//! each time, byte for byte.

use std::path::Path;
use std::time::Duration;

use super::stage::{self, Kind, PARTIES};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL4",
    what: "high and normal in alternation under one busy connection",
    on: "five QEMU guests with Debian's newest kernel",
    goals: &[
        Goal::new(
            "PL4-connection",
            &[Bound::AtLeast(1.0, "requests answered"), Bound::Above(0.0, "frames after the last change")],
        ),
        Goal::new(
            "PL4-host",
            &[Bound::Exactly(0.0, "times without its own pCPU"), Bound::Exactly(0.0, "times not as before")],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(100, 20);
    stage::set(lab, Kind::Vm)?;
    let before = state(lab)?;
    lab.keep("before.txt", &before)?;
    lab.note(format!("{} files and threads are looked at", before.lines().count()));
    // The load has to last longer than the changes; its agent ends with it.
    let words = format!("rr {PARTIES} --size 1024 --duration {}", times * 3 / 2 + 5);
    let load = lab.bench_command(words).limit(900);
    let load = lab.start(&load)?;
    lab.until("the connection is busy", 10, |lab| Ok(frames(lab)? >= 2000.0))?;
    let (mut refused, mut different) = (0, 0);
    for _ in 0..times {
        lab.taut("vm set rt1 --latency-sensitivity high")?;
        refused += u32::from(!within(lab, |lab| Ok(stage::exclusive(lab)? == 1))?);
        lab.taut("vm set rt1 --latency-sensitivity normal")?;
        if !within(lab, |lab| Ok(state(lab)? == before))? {
            different += 1;
            let now = state(lab)?;
            lab.note(differences(&before, &now));
        }
    }
    let frames_before = frames(lab)?;
    lab.sleep(0.5)?;
    let after = frames(lab)? - frames_before;
    // The load fails if its connection breaks, or if a request is not answered.
    let ended = lab.wait(&load, Duration::from_secs(300))?.json()?;
    let answered = ended.sum("a.repeats", "count")?;
    results.record("PL4-connection", [answered, after], "one connection");
    results.record("PL4-host", [f64::from(refused), f64::from(different)], format!("{times} times each"));
    Ok(())
}

/// Waits for a state, for five seconds at most. Returns false if it does not come.
fn within(lab: &mut Lab, mut holds: impl FnMut(&mut Lab) -> Measured<bool>) -> Measured<bool> {
    let end = lab.now() + Duration::from_secs(5);
    loop {
        if holds(lab)? || lab.machine().takes_for_granted() {
            return Ok(true);
        }
        if lab.now() > end {
            return Ok(false);
        }
        lab.sleep(0.05)?;
    }
}

fn frames(lab: &mut Lab) -> Measured<f64> {
    lab.taut_json("port list")?.sum("", "counters.tx_frames")
}

/// Writes every file that is changed for exclusive pCPUs with its content, and class and pCPUs of
/// every thread of the fabric and the VMs.
fn state(lab: &mut Lab) -> Measured<String> {
    let mut lines = Vec::new();
    for (folder, file) in [
        ("/proc/irq", "smp_affinity_list"),
        ("/sys/devices/virtual/workqueue", "cpumask"),
        ("/sys/devices/system/cpu", "power/pm_qos_resume_latency_us"),
    ] {
        // A host without such a folder has nothing there to change.
        for entry in lab.machine().list(Path::new(folder)).unwrap_or_default() {
            lines.extend(content(lab, &entry.join(file)));
        }
    }
    for file in ["/proc/irq/default_smp_affinity", "/sys/devices/virtual/workqueue/cpumask"] {
        lines.extend(content(lab, Path::new(file)));
    }
    if let Some(scope) = lab.scope().map(Path::to_owned) {
        cpusets(lab, &scope, &mut lines);
    }
    let find = "/sys/fs/cgroup/cpu /sys/fs/cgroup/memory -path *taut* -type d";
    // Either hierarchy may be absent.
    let groups = lab.machine().run(&Command::new("find").args(find))?.stdout;
    let mut groups: Vec<String> = groups.lines().iter().map(|&line| line.to_owned()).collect();
    groups.sort();
    lines.append(&mut groups);
    let mut pids = vec![lab.fabric_pid()?];
    for vm in lab.taut_json("vm list")?.list("")? {
        pids.push(u32::try_from(vm.count("status.pid")?)?);
    }
    for pid in pids {
        lines.extend(threads(lab, pid)?);
    }
    Ok(lines.join("\n") + "\n")
}

/// Writes a file in one line, or nothing if it cannot be read.
fn content(lab: &mut Lab, path: &Path) -> Option<String> {
    let text = lab.read(path).ok()?;
    Some(format!("{} {}", path.display(), text.trimmed()))
}

/// Adds the pCPUs of a cpuset and of those below it.
fn cpusets(lab: &mut Lab, folder: &Path, lines: &mut Vec<String>) {
    lines.extend(content(lab, &folder.join("cpuset.cpus")));
    let below = lab.machine().list(folder).unwrap_or_default();
    for folder in below {
        if lab.machine().exists(&folder.join("tasks")) {
            cpusets(lab, &folder, lines);
        }
    }
}

/// Writes name, class, priority and pCPUs of a process's threads. Threads are written without their
/// numbers, and alike ones once, because threads of QEMU's pools come and go.
fn threads(lab: &mut Lab, pid: u32) -> Measured<Vec<String>> {
    let mut lines = Vec::new();
    for thread in lab.machine().list(Path::new(&format!("/proc/{pid}/task")))? {
        // A thread may have ended meanwhile.
        let Ok(stat) = lab.read(thread.join("stat")) else { continue };
        let Ok(status) = lab.read(thread.join("status")) else { continue };
        let cpus = status.between("Cpus_allowed_list:", "").unwrap_or_default();
        lines.push(format!("{pid} {} {cpus}", class(stat.as_str())));
    }
    lines.sort();
    lines.dedup();
    Ok(lines)
}

/// Writes the name, real-time priority and policy of a thread (fields 2, 40 and 41 of proc(5)'s
/// `stat`).
fn class(stat: &str) -> String {
    let (before, after) = stat.rsplit_once(')').unwrap_or_default();
    let name = before.split_once('(').unwrap_or_default().1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    format!("{name} {} {}", field(40), field(41))
}

/// Writes the first lines that are in one state only.
fn differences(before: &str, now: &str) -> String {
    let only = |a: &str, b: &str, sign: &str| -> Vec<String> {
        let other: Vec<&str> = b.lines().collect();
        a.lines().filter(|line| !other.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let mut lines = only(before, now, "<");
    lines.extend(only(now, before, ">"));
    lines.truncate(5);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_priority_are_fields_40_and_41() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = format!("77 (CPU 0/KVM (x)) S {}", numbers.join(" "));
        assert_eq!(class(&stat), "CPU 0/KVM (x) 40 41");
    }

    #[test]
    fn differences_name_both_sides() {
        assert_eq!(differences("a 1\nb 1\n", "a 1\nb 2\n"), "< b 1\n> b 2");
        assert_eq!(differences("a\n", "a\n"), "");
    }
}
