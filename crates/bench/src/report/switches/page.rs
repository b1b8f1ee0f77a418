//! The page in Markdown, within 100 columns.

use super::{Cores, Generator, Kind, SwitchResults};
use crate::load::{Mode, Traversals};

/// Columns: a switch's names in the samples, and its title in the table.
pub(super) const SWITCHES: [(&[&str], &str); 5] = [
    (&["taut", "taut_learning", "taut_offload"], "taut"),
    (&["ovs_normal"], "OVS `normal`"),
    (&["ovs_fixed"], "OVS fixed"),
    (&["vhost"], "DPDK vhost"),
    (&["bridge"], "bridge"),
];

/// Columns that taut is compared with: index into [`SWITCHES`], and title.
const RATIOS: [(usize, &str); 2] = [(1, "taut ÷ OVS"), (3, "taut ÷ vhost")];

const STATES: [(Cores, &str); 2] = [(Cores::Near, "Cores near each other"), (Cores::Far, "Cores far apart")];

const INTRODUCTION: &str = "\
The switch has one core, the generator another one. Ports are vhost-user, rings have 256 entries.
All switches are measured in alternation in one run. The time that a cache line takes between the
two cores is probed before and after every sample, because hypervisors move virtual machines; only
samples with both probes in the same state are compared. Figures are medians. `make bench-switch`
measures again, and `bench/results/` has every sample.

* **taut** runs as it is installed: sandboxed, every descriptor checked, policy and statistics on.
* **OVS** is OVS-DPDK, with the `normal` action, or with fixed flows.
* **DPDK vhost** is DPDK's library, which forwards from port to port without a switch.
* **bridge** is the Linux bridge with TAP devices, one system call for each frame. Its work is done
  on the generator's core. It shows what is usual.
";

const GENERATORS: [(Generator, &str); 3] = [
    (Generator::Taut, "Generator: `taut bench switch`"),
    (Generator::Lgen, "Generator: lgen, light, not written with taut"),
    (Generator::Vgen, "Generator: vgen, DPDK's virtio-user; its own limit is about 21 Mpps"),
];

pub(super) fn render(results: &SwitchResults, picture: &str) -> String {
    let machine = &results.machine;
    let is_virtual = if machine.is_virtual { ", itself a virtual machine" } else { "" };
    let mut page = format!("# Performance\n\n![Throughput by frame size]({picture})\n\n{INTRODUCTION}\n");
    let measured = format!(
        "Measured on {}: {} CPUs of {}{is_virtual}; {}, Linux {}; taut {}, Open vSwitch {}, DPDK {}.",
        machine.date,
        machine.cpus,
        machine.cpu,
        machine.os,
        machine.kernel,
        machine.taut,
        machine.ovs,
        machine.dpdk
    );
    page += &wrapped(&measured);
    if !machine.note.is_empty() {
        page += &format!("\n{}", wrapped(&machine.note));
    }
    for (state, title) in STATES {
        let tables: Vec<_> = GENERATORS
            .iter()
            .filter_map(|&(generator, title)| table(results, state, generator, title))
            .collect();
        let samples = results.samples.iter().filter(|sample| sample.state == state).count();
        if tables.is_empty() {
            page += &format!("\n## {title}\n\nThe machine was not in this state.\n");
        } else {
            page += &format!("\n## {title}\n\n{samples} samples.\n");
            page += &tables.concat();
        }
    }
    page
}

/// Breaks a paragraph into lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= 100 {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// Finds a figure by the name of a switch.
type Find<'a> = Box<dyn Fn(&str) -> Option<f64> + 'a>;

/// A figure with its unit, and the number of its decimals in the table.
struct Row<'a> {
    unit: &'static str,
    decimals: usize,
    of: Find<'a>,
}

fn table(results: &SwitchResults, state: Cores, generator: Generator, title: &str) -> Option<String> {
    let kinds: Vec<_> = results.kinds().into_iter().filter(|kind| kind.generator == generator).collect();
    let lines: Vec<_> = kinds
        .iter()
        .flat_map(|kind| rows(results, kind, state).into_iter().map(move |row| (kind, row)))
        .map(|(kind, row)| {
            let values = SWITCHES.map(|(names, _)| names.iter().find_map(|name| (row.of)(name)));
            (format!("{}, {}", kind.name(), row.unit), row.decimals, values)
        })
        .filter(|(_, _, values)| values.iter().any(Option::is_some))
        .collect();
    if lines.is_empty() {
        return None;
    }
    let is_used = |column: &usize| lines.iter().any(|(_, _, values)| values[*column].is_some());
    let columns: Vec<_> = (0..SWITCHES.len()).filter(is_used).collect();
    let titles = columns.iter().map(|&column| SWITCHES[column].1);
    let titles: Vec<_> = titles.chain(RATIOS.map(|(_, title)| title)).collect();
    let mut text = format!("\n### {title}\n\n| | {} |\n", titles.join(" | "));
    text += &format!("|---|{}\n", "---:|".repeat(titles.len()));
    for (name, decimals, values) in lines {
        let shown = |value: Option<f64>, decimals| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let figures = columns.iter().map(|&column| shown(values[column], decimals));
        let ratios =
            RATIOS.map(|(rival, _)| shown(values[0].zip(values[rival]).map(|(own, rival)| own / rival), 2));
        let cells: Vec<_> = figures.chain(ratios).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    Some(text)
}

/// Returns the figures of a kind.
fn rows<'a>(results: &'a SwitchResults, kind: &'a Kind, state: Cores) -> Vec<Row<'a>> {
    if kind.mode == Mode::Traversal {
        let percentile = |unit, of: fn(&Traversals) -> Option<f64>| {
            let of = move |switch: &str| {
                let of = |figures: &Option<Traversals>| figures.as_ref().and_then(of);
                results.median(kind, switch, state, |sample| of(&sample.figures.traversal))
            };
            Row { unit, decimals: 0, of: Box::new(of) }
        };
        return vec![
            percentile("p50 in ns", |t| Some(t.p50_ns)),
            percentile("p99 in ns", |t| Some(t.p99_ns)),
            percentile("p99.9 in ns", |t| Some(t.p99_9_ns)),
            percentile("p99.99 in ns", |t| t.p99_99_ns),
        ];
    }
    let mpps = move |switch: &str| results.median(kind, switch, state, |sample| sample.figures.mpps);
    let gbit = move |switch: &str| Some(mpps(switch)? * f64::from(kind.size) * 8.0 / 1000.0);
    let copied =
        move |switch: &str| Some(results.median(kind, switch, state, |sample| sample.memcpy_gbyte_s)? * 8.0);
    let is_copied = SWITCHES.iter().flat_map(|(names, _)| names.iter()).any(|name| copied(name).is_some());
    let mut rows = Vec::new();
    if !is_copied {
        let decimals = if kind.size > 1000 { 2 } else { 1 };
        rows.push(Row { unit: "Mpps", decimals, of: Box::new(mpps) });
    }
    if kind.size > 1000 {
        rows.push(Row { unit: "Gbit/s", decimals: 0, of: Box::new(gbit) });
    }
    if is_copied {
        rows.push(Row { unit: "memcpy in Gbit/s", decimals: 0, of: Box::new(copied) });
    }
    rows
}
