//! PL5: settings that cannot be honoured are refused in one sentence with amounts, and a hint; all
//! refusals are printed. No VM is started for them. What this host cannot show itself (a taken SMT
//! sibling) is asked of the plan for a described host; `cargo test -p taut-plan passthrough` covers
//! devices and IOMMU groups.

use crate::figure::Bound;
use crate::lab::{DaemonOptions, Lab};
use crate::machine::{Ended, Text};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL5",
    what: "refusals of what cannot be honoured",
    on: "this host, and a described one",
    goals: &[Goal::new(
        "PL5",
        &[
            Bound::Exactly(0.0, "settings accepted"),
            Bound::Exactly(0.0, "refusals without numbers or hint"),
            Bound::Exactly(8.0, "refusals"),
        ],
    )],
    run,
};

const HIGH: &str = "latency_sensitivity = \"high\"\n";
const FULL: &str = "memory_reservation = \"full\"\n";
const CPU: &str = "[cpu]\nreservation = \"full\"\n";
const DEVICE: &str = "[[passthrough]]\naddress = \"0000:3b:00.1\"\n";

/// What was found so far.
#[derive(Default)]
struct Found {
    refused: u32,
    accepted: u32,
    unclear: u32,
    texts: String,
}

impl Found {
    /// Counts an answer: `None` if the setting was accepted.
    fn add(&mut self, what: &str, answer: Option<&Text>) {
        self.texts += &format!("{what}:\n");
        let Some(answer) = answer else {
            self.accepted += 1;
            self.texts += "  it was not refused\n";
            return;
        };
        self.refused += 1;
        self.unclear += u32::from(!is_clear(answer.as_str()));
        answer.lines().iter().for_each(|line| self.texts += &format!("  {line}\n"));
    }
}

/// Returns true if a refusal has a number in its sentence, and a hint.
fn is_clear(answer: &str) -> bool {
    let (hints, sentences): (Vec<&str>, Vec<&str>) =
        answer.lines().partition(|line| line.starts_with("hint: "));
    let has_number = sentences.iter().any(|line| line.contains(|c: char| c.is_ascii_digit()));
    !hints.is_empty() && has_number
}

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default())?;
    let host = lab.taut_command("-o json host show").record("host");
    let cpus = lab.run(&host)?.stdout.json()?.list("cpus")?.len();
    let memory = lab.read("/proc/meminfo")?.number_between("MemTotal:", " kB")? / 1024.0;
    let more = format!("{}MiB", (memory as u64).next_multiple_of(2) + 1024);
    let mut found = Found::default();
    let lines = format!("memory_reservation = \"64MiB\"\n{HIGH}");
    refuse(lab, &mut found, "memory that is not reserved", ("128MiB", 1), (lines.as_str(), ""))?;
    refuse(lab, &mut found, "not enough unreserved memory", (more.as_str(), 1), (FULL, ""))?;
    let lines = format!("{FULL}{HIGH}");
    refuse(lab, &mut found, "the host's last pCPU", ("128MiB", cpus), (lines.as_str(), CPU))?;
    lab.start_vm("promised", &format!("kind = \"micro\"\nmemory = \"64MiB\"\n{CPU}"))?;
    refuse(lab, &mut found, "an over-committed host", ("128MiB", cpus - 1), (lines.as_str(), CPU))?;
    let shaped = format!("{DEVICE}shaping = {{ to_guest = {{ average = \"100 Mbps\" }} }}\n");
    refuse(lab, &mut found, "pass-through with shaping", ("128MiB", 1), (FULL, shaped.as_str()))?;
    refuse(lab, &mut found, "pass-through without reserved memory", ("128MiB", 1), ("", DEVICE))?;
    refuse(lab, &mut found, "pass-through of a device that is not there", ("128MiB", 1), (FULL, DEVICE))?;
    let plan = lab.in_checkout("cargo").args("run -q -p taut-plan --example smt_refusal").record("smt");
    let said = lab.run(&plan)?.stdout;
    found.add("an SMT sibling that is taken", Some(&said));
    lab.note(&found.texts);
    lab.keep("refusals.txt", &found.texts)?;
    let figures = [found.accepted, found.unclear, found.refused].map(f64::from);
    results.record("PL5", figures, "each a sentence with numbers and a hint");
    Ok(())
}

/// Expects that a QEMU VM with this memory and number of vCPUs is refused when it is created or
/// started. `lines` are more of its file: before the tables, and tables.
fn refuse(
    lab: &mut Lab,
    found: &mut Found,
    what: &str,
    (memory, vcpus): (&str, usize),
    (lines, tables): (&str, &str),
) -> Measured<()> {
    let boot = "[boot]\nkernel = \"/proc/version\"\n";
    let file = lab.folder().join("refused.toml");
    let text = format!("memory = \"{memory}\"\nvcpus = {vcpus}\n{lines}{boot}{tables}");
    lab.machine().write(&file, &text)?;
    let answer = match answer(lab, &format!("vm create -f {} --name refused", file.display()))? {
        Some(refusal) => Some(refusal),
        None => answer(lab, "vm start refused")?,
    };
    if answer.is_none() {
        // The VM that was accepted must not count for the next setting.
        let _ = lab.taut("vm stop --force refused");
    }
    found.add(what, answer.as_ref().map(|ended| &ended.stderr));
    let _ = lab.taut("vm delete refused");
    Ok(())
}

/// Runs taut. Returns how it ended if it refused.
fn answer(lab: &mut Lab, words: &str) -> Measured<Option<Ended>> {
    let command = lab.taut_command(words).record("refusal");
    let ended = lab.machine().run(&command)?;
    Ok(if ended.is_success() { None } else { Some(ended) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_refusal_has_a_number_and_a_hint() {
        assert!(is_clear("error: 64 MiB of 128 MiB are reserved\nhint: reserve all of it"));
        assert!(!is_clear("error: 64 MiB of 128 MiB are reserved"));
        assert!(!is_clear("error: not enough memory\nhint: stop 2 VMs"));
        assert!(!is_clear(""));
    }

    #[test]
    fn what_is_accepted_is_no_refusal() {
        let mut found = Found::default();
        found.add("a", None);
        found.add("b", Some(&Text::from("error: no\n")));
        assert_eq!((found.accepted, found.refused, found.unclear), (1, 1, 1));
    }
}
