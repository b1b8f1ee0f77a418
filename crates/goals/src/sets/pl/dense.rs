//! Effect of dense mode: 32 microguests in pairs that exchange a request every 2 ms, default and
//! dense in alternation. Requests and costs are counted in the middle of each run.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::figure::shown;
use crate::lab::{DaemonOptions, Lab};
use crate::machine::{Command, Doc};
use crate::reason::{Measured, NotMeasured, require};
use crate::rounds::{Plan, Rounds, Sample};
use crate::row::Results;

const PAIRS: u32 = 16;

/// Processes that count, and the length of a clock tick.
struct Stage {
    pids: Vec<u32>,
    ticks_per_s: f64,
}

/// Counts so far.
struct Counts {
    at: Duration,
    switches: f64,
    cpu_us: f64,
    frames: f64,
    kicks: f64,
    interrupts: f64,
    sleeps: f64,
}

/// Measures PL8-switches and PL8-cpu.
pub(super) fn measure(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().preferred())?;
    let mut pids = vec![lab.fabric_pid()?];
    for pair in 1..=PAIRS {
        for (name, last) in [("a", pair), ("b", 100 + pair)] {
            let name = format!("{name}{pair}");
            lab.micro(&name, &format!("10.84.1.{last}"), "")?;
            pids.push(lab.vm_pid(&name)?);
        }
    }
    for pid in &pids {
        lab.prefer(*pid);
    }
    let ticks_per_s = lab.run(&Command::new("getconf").args("CLK_TCK"))?.stdout.number()?;
    let stage = Stage { pids, ticks_per_s };
    lab.taut(["host", "set", "Net.NetTuneInterval=1", "Net.NetTuneThreshold=32 32 0"])?;
    let rounds = lab.pick(7, 2);
    let rounds = Rounds::take(Plan::exactly(rounds), &["default", "dense"], None, |mode| {
        lab.taut(format!("host set Net.NetTuneHostMode={mode}"))?;
        lab.until("dense mode is as it was set", 30, |lab| {
            Ok(lab.taut_json("host tune")?.flag("state.on")? == (mode == "dense"))
        })?;
        Ok(Sample::new(sample(lab, &stage)?))
    })?;
    for mode in ["default", "dense"] {
        let of = |figure: &str| rounds.median(mode, figure).map(|figure| shown(figure.value));
        let text = format!(
            "{mode}: {} requests/s; per request {} context switches, {} µs of CPU, {} kicks, {} interrupts, \
             the fabric slept {} times",
            of("per_second")?,
            of("switches")?,
            of("cpu_us")?,
            of("kicks")?,
            of("interrupts")?,
            of("sleeps")?
        );
        lab.note(text);
    }
    for (goal, figure) in [("PL8-switches", "switches"), ("PL8-cpu", "cpu_us")] {
        let [dense, default] = ["dense", "default"].map(|mode| rounds.median(mode, figure));
        let detail = format!("dense {}, default {}", shown(dense?.value), shown(default?.value));
        results.record(goal, [rounds.ratio("dense", "default", figure)?], detail);
    }
    Ok(())
}

fn sample(lab: &mut Lab, stage: &Stage) -> Measured<Doc> {
    let seconds = lab.pick(6, 4);
    let idle = frames(lab)?;
    let mut loads = Vec::new();
    for pair in 1..=PAIRS {
        let words = format!("ping a{pair} b{pair} --interval 2 --duration {}", seconds + 6);
        let command = lab.bench_command(words);
        loads.push(lab.start(&command)?);
    }
    // All pairs have begun when each has sent about a hundred frames.
    let wanted = idle + 200.0 * f64::from(PAIRS);
    lab.until("all pairs have begun", 20, |lab| Ok(frames(lab)? >= wanted))?;
    let before = count(lab, stage)?;
    lab.sleep(f64::from(seconds - 2))?;
    let after = count(lab, stage)?;
    for load in &loads {
        require(
            lab.machine().is_running(load),
            "the load ended before it was counted: the machine is too busy",
        )?;
    }
    for load in &loads {
        lab.wait(load, Duration::from_secs(60))?.json()?;
    }
    let requests = (after.frames - before.frames) / 2.0;
    require(requests > 0.0, "no request was answered")?;
    let each = |of: fn(&Counts) -> f64| (of(&after) - of(&before)) / requests;
    Ok(Doc::from(json!({
        "per_second": requests / after.at.saturating_sub(before.at).as_secs_f64(),
        "switches": each(|counts| counts.switches),
        "cpu_us": each(|counts| counts.cpu_us),
        "kicks": each(|counts| counts.kicks),
        "interrupts": each(|counts| counts.interrupts),
        "sleeps": each(|counts| counts.sleeps),
    })))
}

fn frames(lab: &mut Lab) -> Measured<f64> {
    lab.taut_json("port list")?.sum("", "counters.tx_frames")
}

fn count(lab: &mut Lab, stage: &Stage) -> Measured<Counts> {
    let at = lab.now();
    let (mut switches, mut cpu_us) = (0.0, 0.0);
    for pid in &stage.pids {
        for thread in lab.machine().list(Path::new(&format!("/proc/{pid}/task")))? {
            // A thread may have ended meanwhile. Both kinds of switches have this name's end.
            let Ok(status) = lab.read(thread.join("status")) else { continue };
            switches += status.numbers_between("voluntary_ctxt_switches:", "")?.iter().sum::<f64>();
        }
        let stat = lab.read(format!("/proc/{pid}/stat"))?;
        let ran = if lab.machine().is_stand_in() { at.as_secs_f64() } else { ticks(stat.as_str())? };
        cpu_us += ran * 1e6 / stage.ticks_per_s;
    }
    let ports = lab.taut_json("port list")?;
    let sum = |counter: &str| ports.sum("", &format!("counters.{counter}"));
    let (frames, kicks, interrupts) = (sum("tx_frames")?, sum("kicks")?, sum("interrupts")?);
    let sleeps = lab.taut_json("daemon show")?.sum("workers", "counters.sleeps")?;
    Ok(Counts { at, switches, cpu_us, frames, kicks, interrupts, sleeps })
}

/// Returns the CPU time of a process in clock ticks (fields 14 and 15 of proc(5)'s `stat`).
fn ticks(stat: &str) -> Measured<f64> {
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect());
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<f64>().ok());
    let both = field(14).zip(field(15)).map(|(user, system)| user + system);
    both.ok_or_else(|| NotMeasured::because("a process has no CPU time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_fields_14_and_15() {
        let numbers: Vec<String> = (4..=20).map(|number| number.to_string()).collect();
        assert_eq!(ticks(&format!("7 (a b) c) S {}", numbers.join(" "))), Ok(29.0));
        assert!(ticks("").is_err());
        assert!(ticks("7 (a) S 1 2").is_err());
    }
}
