//! SK6: deaths of the daemon, the fabric and a VM, and what they cost the others.

use std::time::Duration;

use crate::figure::{Bound, Value};
use crate::lab::Lab;
use crate::machine::{Command, Doc, Job, Signal, Text};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK6",
    what: "deaths of the daemon, the fabric and a VM",
    on: "two QEMU guests with Debian's kernels, and a namespace that pings one of them",
    goals: &[
        Goal::new("SK6-tautd", &[Bound::Exactly(0.0, "% lost"), Bound::Exactly(1.0, "VM adopted")]),
        Goal::new(
            "SK6-fabric",
            &[
                Bound::Below(200.0, "ms gap"),
                Bound::Exactly(0.0, "carrier changes"),
                Bound::Exactly(0.0, "TCP connections lost"),
            ],
        ),
        Goal::new("SK6-both", &[Bound::Below(1500.0, "ms until traffic is back")]),
        Goal::new(
            "SK6-qemu",
            &[
                Bound::Exactly(1.0, "VM failed"),
                Bound::AtLeast(1.0, "events"),
                Bound::Exactly(0.0, "% lost by others"),
            ],
        ),
    ],
    run,
};

const NAMESPACE: &str = "goal-ns";

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(10, 3);
    lab.two_guests()?;
    lab.netns(NAMESPACE, "lan", "10.80.0.9")?;
    daemon_dies(lab, results)?;
    fabric_dies(lab, results, times)?;
    both_die(lab, results, times)?;
    vm_dies(lab, results)
}

fn daemon_dies(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let daemon = lab.daemon()?;
    let before = lab.vm_pid("alpha")?;
    let ping = start_ping(lab, 1500)?;
    lab.sleep(1.0)?;
    kill(lab, &daemon.job)?;
    let lost = lost(&end_of_ping(lab, &ping)?)?;
    lab.restart_daemon(&daemon)?;
    let adopted = lab.until("alpha is adopted", 5, |lab| Ok(lab.vm_pid("alpha")? == before));
    let is_adopted = f64::from(u8::from(adopted.is_ok()));
    results.record("SK6-tautd", [lost, is_adopted], format!("process {before} before and after"));
    Ok(())
}

fn fabric_dies(lab: &mut Lab, results: &mut Results, times: u32) -> Measured<()> {
    let carrier = carrier_changes(lab)?;
    let words = format!("rr netns/{NAMESPACE} alpha --duration {}", times + 2);
    let rr = lab.bench_command(words);
    let rr = lab.start(&rr)?;
    lab.sleep(1.0)?;
    let mut gaps = Vec::new();
    for _ in 0..times {
        let ping = start_ping(lab, 400)?;
        lab.sleep(0.3)?;
        let fabric = lab.fabric_pid()?;
        lab.machine().signal(fabric, Signal::Kill)?;
        gaps.push(longest_gap(&end_of_ping(lab, &ping)?)?);
    }
    let ended = lab.wait_for_end(&rr, Duration::from_secs(60))?;
    let lost = if ended.is_success() {
        // The connection counts as kept only if it says how many requests were answered.
        ended.json()?.number("a.median.count").map(|_| 0.0)?
    } else {
        lab.note(ended.stderr.last_lines(3));
        1.0
    };
    let changes = carrier_changes(lab)? - carrier;
    results.record("SK6-fabric", [Value::median(&gaps)?, changes.into(), lost.into()], "");
    Ok(())
}

fn both_die(lab: &mut Lab, results: &mut Results, times: u32) -> Measured<()> {
    let mut returns = Vec::new();
    for _ in 0..times {
        let daemon = lab.daemon()?;
        let fabric = lab.fabric_pid()?;
        kill(lab, &daemon.job)?;
        lab.machine().signal(fabric, Signal::Kill)?;
        let began = lab.now();
        lab.launch_unanswered(&daemon)?;
        let ping =
            Command::new("ping").args("-n -c 1 -W 0.05 10.80.0.1").in_namespace(NAMESPACE).record("back");
        lab.until("traffic is back", 20, |lab| {
            let ended = lab.machine().run(&ping)?;
            Ok(ended.is_success() && ended.stdout.contains(" 1 received"))
        })?;
        let took = lab.now().saturating_sub(began);
        returns.push(took.as_secs_f64() * 1000.0);
        lab.until("tautd answers", 20, |lab| Ok(lab.taut("daemon show").is_ok()))?;
    }
    results.record("SK6-both", [Value::median(&returns)?], "");
    Ok(())
}

fn vm_dies(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let ping = start_ping(lab, 500)?;
    lab.sleep(0.3)?;
    let beta = lab.vm_pid("beta")?;
    lab.machine().signal(beta, Signal::Kill)?;
    let lost = lost(&end_of_ping(lab, &ping)?)?;
    let failed =
        lab.until("beta has failed", 5, |lab| Ok(lab.vm_show("beta")?.text("status.phase")? == "failed"));
    let is_failed = f64::from(u8::from(failed.is_ok()));
    let events = lab.taut_json("events")?.list("")?;
    let of_beta =
        |event: &&Doc| event.matches(&[("subject", "vm/beta")]) && !event.matches(&[("level", "info")]);
    let events = events.iter().filter(of_beta).count() as f64;
    results.record("SK6-qemu", [is_failed, events, lost], "");
    Ok(())
}

/// Starts Linux's ping from the namespace to alpha, an echo each 2 ms.
fn start_ping(lab: &mut Lab, count: u32) -> Measured<Job> {
    let words = format!("-D -n -i 0.002 -c {count} 10.80.0.1");
    lab.start(&Command::new("ping").args(words).in_namespace(NAMESPACE).record("ping"))
}

/// Waits for the end of a ping, which fails if there is no answer at all.
fn end_of_ping(lab: &mut Lab, ping: &Job) -> Measured<Text> {
    Ok(lab.wait_for_end(ping, Duration::from_secs(60))?.stdout)
}

fn lost(text: &Text) -> Measured<f64> {
    text.number_between("received, ", "% packet loss")
}

/// Returns the longest time between two answers in the output of `ping -D`, in ms.
fn longest_gap(text: &Text) -> Measured<f64> {
    let times = text.numbers_between("[", "] 64 bytes from")?;
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) * 1000.0).collect();
    Ok(Value::greatest(&gaps)?.value)
}

fn carrier_changes(lab: &mut Lab) -> Measured<f64> {
    lab.taut_json("vm addresses alpha")?.sum("", "carrier_changes")
}

fn kill(lab: &mut Lab, job: &Job) -> Measured<()> {
    lab.machine().signal(job.pid, Signal::Kill)?;
    lab.wait_for_end(job, Duration::from_secs(5)).map(drop)
}
