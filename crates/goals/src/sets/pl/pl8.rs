//! PL8: dense mode. First, it follows the load, with 8 microguests and an interval of a second
//! instead of a minute. Then its effect is measured with 32 microguests in pairs. `cargo test -p
//! taut-plan dense` has the property test over random load traces.

use std::time::Duration;

use super::dense;
use crate::figure::Bound;
use crate::lab::{DaemonOptions, Lab};
use crate::machine::{Command, Job, Signal};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL8",
    what: "dense mode follows the load, and is worth it",
    on: "8 microguests, then 32",
    goals: &[
        Goal::new(
            "PL8-follows",
            &[Bound::Exactly(0.0, "steps not as the load says"), Bound::Exactly(11.0, "steps and checks")],
        ),
        Goal::new("PL8-switches", &[Bound::AtMost(0.6, "x context switches a request")]),
        Goal::new("PL8-cpu", &[Bound::Below(1.0, "x CPU time a request")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = follows(lab, results);
    results.settle(&["PL8-follows"], outcome);
    lab.end_jobs();
    lab.stop_daemon()?;
    dense::measure(lab, results)
}

/// Steps so far.
#[derive(Default)]
struct Steps {
    taken: u32,
    wrong: u32,
}

impl Steps {
    /// Waits for dense mode to be on or off, for 30 tests of the daemon at most.
    fn take(&mut self, lab: &mut Lab, is_on: bool, why: &str) -> Measured<()> {
        self.taken += 1;
        let end = lab.now() + Duration::from_secs(30);
        let word = if is_on { "on" } else { "off" };
        loop {
            let tune = lab.taut_json("host tune")?;
            if tune.flag("state.on")? == is_on || lab.machine().takes_for_granted() {
                lab.note(format!("{word}: {why}"));
                return Ok(());
            }
            if lab.now() > end {
                self.wrong += 1;
                let test = tune.at("state.test").map(|test| test.value().to_string());
                lab.note(format!("not {word} within 30 s: {why}: {}", test.unwrap_or_default()));
                return Ok(());
            }
            lab.sleep(0.25)?;
        }
    }
}

fn set(lab: &mut Lab, settings: &[&str]) -> Measured<()> {
    let words: Vec<&str> = ["host", "set"].into_iter().chain(settings.iter().copied()).collect();
    lab.taut(words.as_slice()).map(drop)
}

fn follows(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    const THRESHOLD: &str = "Net.NetTuneThreshold=8 8 50";
    let mut steps = Steps::default();
    lab.start_lan(DaemonOptions::default())?;
    set(lab, &["Net.NetTuneInterval=1", THRESHOLD, "Net.NetTuneHostMode=dense"])?;
    for number in 1..=8 {
        lab.micro(&format!("m{number}"), &format!("10.84.0.{number}"), "")?;
    }
    let load = keep_busy(lab)?;
    steps.take(lab, true, "8 VMs, 8 vCPUs and every pCPU busy")?;
    lab.taut("vm stop m8")?;
    steps.take(lab, false, "one VM less")?;
    lab.taut("vm start --wait m8")?;
    steps.take(lab, true, "it runs again")?;
    set(lab, &["Net.NetTuneThreshold=8 9 50"])?;
    steps.take(lab, false, "one vCPU more is asked for")?;
    set(lab, &[THRESHOLD])?;
    steps.take(lab, true, "it is not any more")?;
    let is_kept = survives_the_daemon(lab)?;
    steps.taken += 1;
    steps.wrong += u32::from(!is_kept);
    steps.take(lab, true, "the test after that")?;
    for job in load {
        lab.end(&job);
    }
    // Other programs on this machine count as well, so this needs a machine that they leave half
    // idle.
    lab.sleep(3.0)?;
    if lab.taut_json("host tune")?.number("state.test.reading.utilisation")? >= 50.0 {
        lab.note("other programs keep the pCPUs busy: more load than there is, is asked for instead");
        set(lab, &["Net.NetTuneThreshold=8 8 100"])?;
        steps.take(lab, false, "100 % is asked for")?;
    } else {
        steps.take(lab, false, "the load is gone")?;
    }
    set(lab, &["Net.NetTuneThreshold=8 8 0"])?;
    steps.take(lab, true, "no utilisation is asked for")?;
    set(lab, &["Net.NetTuneHostMode=default"])?;
    steps.take(lab, false, "the mode is default")?;
    let events = lab.taut_command("-o json events").record("events");
    let told = lab.run(&events)?.stdout.json()?.list("")?;
    let told = told.iter().filter(|event| event.matches(&[("subject", "host")])).count();
    steps.taken += 1;
    steps.wrong += u32::from(told == 0);
    let figures = [steps.wrong, steps.taken].map(f64::from);
    results.record("PL8-follows", figures, format!("{told} events say it"));
    Ok(())
}

/// Kills the daemon and starts it again. Returns true if dense mode and the fabric went on.
fn survives_the_daemon(lab: &mut Lab) -> Measured<bool> {
    let daemon = lab.daemon()?;
    let fabric = lab.fabric_pid()?;
    let since = lab.taut_json("host tune")?.number("state.changed_ms")?;
    lab.machine().signal(daemon.job.pid, Signal::Kill)?;
    lab.machine().wait(&daemon.job, Duration::from_secs(10))?;
    lab.restart_daemon(&daemon)?;
    let is_granted = lab.machine().takes_for_granted();
    let is_same = lab.fabric_pid()? == fabric;
    let tune = lab.taut_json("host tune")?;
    // Both are the same number of the daemon's state.
    let is_kept = tune.flag("state.on")? && (tune.number("state.changed_ms")? - since).abs() < 0.5;
    lab.note(format!(
        "tautd was killed and started again: the fabric went on: {is_same}, dense mode: {is_kept}"
    ));
    Ok(is_same && is_kept || is_granted)
}

/// Keeps every pCPU busy, for ten minutes at most.
fn keep_busy(lab: &mut Lab) -> Measured<Vec<Job>> {
    let cpus = std::thread::available_parallelism()?.get();
    let spin = Command::new("timeout").args(["600", "sh", "-c", "while :; do :; done"]);
    (0..cpus).map(|_| lab.start(&spin)).collect()
}
