//! `/proc/interrupts`: the number of interrupts of each kind on each pCPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// The counters of all interrupts.
#[derive(Debug, Clone, Default)]
pub struct Interrupts {
    /// One row per interrupt, in the order of the file.
    pub rows: Vec<Row>,
}

/// The counters of one interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Number or abbreviation.
    pub name: String,
    /// The kernel's description: chip, kind and devices.
    pub what: String,
    /// Number of interrupts by pCPU.
    pub counts: BTreeMap<u32, u64>,
}

/// An interrupt that a pCPU received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Number or abbreviation in `/proc/interrupts`.
    pub name: String,
    /// The kernel's description.
    pub what: String,
    /// Number of times.
    pub times: u64,
}

/// Reads the counters; none if the file is missing.
pub fn read(root: &Path) -> Interrupts {
    let text = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let cpus: Vec<u32> =
        header.split_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let row = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let mut counts = BTreeMap::new();
        for &cpu in &cpus {
            // Some interrupts have one counter for all pCPUs.
            counts.insert(cpu, words.next()?.parse().ok()?);
        }
        Some(Row { name: name.trim().to_owned(), what: words.collect::<Vec<_>>().join(" "), counts })
    };
    Interrupts { rows: lines.filter_map(row).collect() }
}

/// Returns the interrupts on a pCPU between two readings, the most frequent first.
pub(super) fn between(before: &Interrupts, after: &Interrupts, cpu: u32) -> Vec<Interrupt> {
    let count = |row: &Row| row.counts.get(&cpu).copied().unwrap_or(0);
    let came = after.rows.iter().filter_map(|row| {
        let then = before.rows.iter().find(|then| then.name == row.name).map_or(0, count);
        let times = count(row).saturating_sub(then);
        (times > 0).then(|| Interrupt { name: row.name.clone(), what: row.what.clone(), times })
    });
    let mut came: Vec<_> = came.collect();
    came.sort_by_key(|interrupt| std::cmp::Reverse(interrupt.times));
    came
}
