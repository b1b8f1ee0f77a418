//! `/proc/interrupts`: the number of interrupts of each kind on each pCPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Interrupt;

/// The counters of all interrupts.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupts {
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    name: String,
    what: String,
    /// Number of interrupts by pCPU.
    counts: BTreeMap<u32, u64>,
}

/// Reads the counters; none if the file is missing.
pub(super) fn read(root: &Path) -> Interrupts {
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
