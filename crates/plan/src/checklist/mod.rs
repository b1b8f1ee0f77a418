//! The checklist behind `taut check` (BP): the best practices for latency-sensitive VMs, and what
//! was learnt since.
//!
//! The input is a set of facts ([`taut_api::check`]); the output is a list of [`Line`]s. A line
//! says what was found, what is wanted for a [`Profile`], why, and when a change takes effect. Each
//! file has one topic.

mod commitment;
mod cpu;
mod guest;
mod idle;
mod interrupts;
mod kernel;
mod knobs;
mod limits;
mod line;
mod memory;
mod network;
mod numa;
mod power;
mod text;
mod vm;

pub use commitment::commitment;
pub use line::{Line, Profile, Report, Summary, TakesEffect, Verdict};
pub use vm::{VmFacts, profile_of};

use taut_api::check::{GuestFacts, HostFacts};

/// Judges a host.
pub fn host(facts: &HostFacts, profile: Profile) -> Report {
    let topics: [fn(&HostFacts, Profile) -> Vec<Line>; 9] = [
        power::lines,
        idle::lines,
        cpu::lines,
        numa::lines,
        memory::lines,
        limits::lines,
        kernel::lines,
        interrupts::lines,
        network::lines,
    ];
    let mut lines: Vec<_> = topics.iter().flat_map(|topic| topic(facts, profile)).collect();
    lines.extend(commitment::lines(facts, profile));
    Report::new("host", profile, lines)
}

/// Judges a VM from outside.
pub fn vm(facts: &VmFacts<'_>, profile: Profile) -> Report {
    Report::new(facts.name, profile, vm::lines(facts, profile))
}

/// Judges a guest from inside.
pub fn guest(facts: &GuestFacts, profile: Profile) -> Report {
    let mut lines = guest::lines(facts, profile);
    // A guest belongs to its owner, so `--apply` changes nothing in it.
    for line in &mut lines {
        line.changes.clear();
    }
    Report::new("guest", profile, lines)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Adds the identifiers of all lines that the files of a folder declare.
    fn declared(folder: &Path, ids: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                declared(&path, ids);
            } else {
                let text = fs::read_to_string(path).unwrap();
                let values =
                    text.lines().filter_map(|line| line.trim().strip_prefix("id: \"")?.strip_suffix("\","));
                ids.extend(values.map(str::to_owned));
            }
        }
    }

    #[test]
    fn each_line_has_a_section_in_the_guide_and_each_section_a_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut lines = BTreeSet::new();
        declared(&root.join("src/checklist"), &mut lines);
        assert!(lines.len() > 70, "{lines:?}");
        let page = fs::read_to_string(root.join("../..").join(taut_api::guide::REASONS)).unwrap();
        let sections = page.lines().filter_map(|line| line.strip_prefix("### check "));
        assert_eq!(sections.map(str::to_owned).collect::<BTreeSet<_>>(), lines);
    }
}
