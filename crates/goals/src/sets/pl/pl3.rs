//! PL3: %RDY of an exclusive vCPU under load, and who else ran on its pCPU, by `taut latency` while
//! the neighbours compute and requests are answered.
//!
//! taut may not move programs outside this program's cpuset: they reach any pCPU. An intruder is
//! explained if taut could not have kept it away: a thread that the kernel binds to this pCPU, or a
//! program that is seen outside the cpuset. `taut latency` gives every intruder a reason, so that
//! the reason alone explains none.

use super::stage::{self, Kind, NEIGHBOURS, PARTIES};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::{Doc, Text};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL3",
    what: "%RDY of an exclusive vCPU under load, and who else ran on its pCPU",
    on: "five QEMU guests with Debian's newest kernel",
    goals: &[Goal::new("PL3", &[Bound::Below(0.1, "%RDY"), Bound::Exactly(0.0, "intruders not explained")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let seconds = lab.pick(60, 12);
    stage::set(lab, Kind::Vm)?;
    let words = format!("neighbours {PARTIES} --beside {NEIGHBOURS} --interval 1 --repeat 1");
    let load = lab.bench_command(format!("{words} --duration {}", seconds + 4)).limit(600);
    let load = lab.start(&load)?;
    lab.sleep(2.0)?;
    let normal = latency(lab, seconds)?;
    stage::until_exclusive(lab)?;
    lab.sleep(1.0)?;
    let high = latency(lab, seconds)?;
    // Programs may end soon, so their cpusets are read at once.
    let (explained, unexplained) = sort(lab, &high)?;
    lab.wait(&load, std::time::Duration::from_secs(300))?;
    require(high.flag("exclusive")?, "rt1 did not own its pCPU")?;
    let ready = high.number("ready_percent")?;
    let before = normal.number("ready_percent")?;
    for line in explained.iter().map(|line| format!("explained: {line}")) {
        lab.note(line);
    }
    for line in unexplained.iter().map(|line| format!("not explained: {line}")) {
        lab.note(line);
    }
    let detail = format!(
        "{seconds} s; {} intruders, {} explained; switched away {} times against its will; normal: {} %RDY",
        explained.len() + unexplained.len(),
        explained.len(),
        shown(high.number("involuntary")?),
        shown(before)
    );
    results.record("PL3", [ready, unexplained.len() as f64], detail);
    Ok(())
}

/// Watches rt1, and returns what is known of its vCPU.
fn latency(lab: &mut Lab, seconds: u32) -> Measured<Doc> {
    let words = format!("-o json latency rt1 --duration {seconds}");
    let command = lab.taut_command(words).record("latency");
    lab.run(&command)?.stdout.json()?.at("vcpus.0")
}

/// Describes the intruders that are explained, and the others.
fn sort(lab: &mut Lab, vcpu: &Doc) -> Measured<(Vec<String>, Vec<String>)> {
    let (mut explained, mut unexplained) = (Vec::new(), Vec::new());
    let scope = lab.scope().and_then(|scope| scope.file_name()).map(|name| name.display().to_string());
    for intruder in vcpu.list("intruders")? {
        let (tid, name) = (intruder.count("tid")?, intruder.text("name")?);
        let why = intruder.text("why")?;
        let cpuset = lab.read(format!("/proc/{tid}/cpuset")).ok();
        let cpuset = cpuset.as_ref().map(Text::trimmed);
        let is_explained = is_explained(&why, cpuset, scope.as_deref().unwrap_or_default());
        let place = cpuset.unwrap_or("gone");
        let (times, ms) = (shown(intruder.number("times")?), shown(intruder.number("ms")?));
        let line = format!("{name} ({place}): {times} times, {ms} ms: {why}");
        if is_explained { explained.push(line) } else { unexplained.push(line) }
    }
    Ok((explained, unexplained))
}

/// Returns true if taut could not have kept an intruder away. `cpuset` is where it is now, or
/// `None` if it is gone; `scope` is the name of this program's cpuset.
fn is_explained(why: &str, cpuset: Option<&str>, scope: &str) -> bool {
    if why.starts_with("its affinity") {
        let is_within = |cpuset: &str| cpuset.split('/').any(|part| part == scope);
        return cpuset.is_some_and(|cpuset| !cpuset.is_empty() && !is_within(cpuset));
    }
    why.ends_with("it cannot be moved") || why.starts_with("RCU callbacks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intruder_is_not_explained_by_the_reason_alone() {
        let allowed = "its affinity allows it: it was there before, or another program bound it there";
        let explained = |why, cpuset| is_explained(why, cpuset, "taut-goal-7");
        assert!(explained(allowed, Some("/")));
        assert!(explained(allowed, Some("/system")));
        assert!(!explained(allowed, Some("/taut-goal-7")));
        assert!(!explained(allowed, Some("/taut-goal-7/taut-vm-n1")));
        assert!(!explained(allowed, None));
        assert!(!explained(allowed, Some("")));
        assert!(explained("the kernel's own for this pCPU: it cannot be moved", Some("/")));
        assert!(!explained("a thread of the kernel that is not bound elsewhere", Some("/")));
        assert!(!explained("", Some("/")));
    }
}
