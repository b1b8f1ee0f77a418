//! The page in Markdown, within 100 columns.

use super::{Cores, Figure, Generator, Kind, Of, SwitchResults, SwitchSample};
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
samples with both probes in the same state are compared. `make bench-switch` measures again, and
`bench/results/` has every sample.

Figures are medians. The line below has the number of samples, the least and the greatest of them. A
star marks a figure that the generator limits: it found the switch's ring full in less than 90 % of
its attempts to send, and the switch may be faster. *split* and *packed* are virtio's two formats of
rings. A *traversal* is the way of one frame through the switch. *memcpy* is the speed at which the
generator copies memory, for comparison.

* **taut** runs as it is installed: sandboxed, every descriptor checked, policy and statistics on.
* **OVS** is OVS-DPDK, with the `normal` action, or with fixed flows.
* **DPDK vhost** is DPDK's library, which forwards from port to port without a switch.
* **bridge** is the Linux bridge with TAP devices, one system call for each frame. Its work is done
  on the generator's core. It shows what is usual.
* **cold** frames are 65536, each in a buffer of its own, written before the measurement.
";

const GENERATORS: [(Generator, &str); 3] = [
    (Generator::Taut, "Generator: `taut bench switch`"),
    (Generator::Lgen, "Generator: lgen, light, not written with taut"),
    (Generator::Vgen, "Generator: vgen, DPDK's virtio-user; its own limit is about 21 Mpps"),
];

pub(super) fn render(results: &SwitchResults, earlier: &[SwitchResults], picture: &str) -> String {
    let mut page = format!("# Performance\n\n![Throughput by frame size]({picture})\n\n{INTRODUCTION}\n");
    page += &measured(results);
    for (state, title) in STATES {
        page += &format!("\n## {title}\n\n");
        if let Some(tables) = tables(results, state) {
            page += &tables;
        } else if let Some((other, tables)) =
            earlier.iter().find_map(|other| Some((other, tables(other, state)?)))
        {
            page += "The machine was not in this state. An earlier run was:\n\n";
            page += &format!("{}\n{tables}", measured(other));
        } else {
            page += "The machine was not in this state.\n";
        }
    }
    page
}

/// Writes on what results were measured.
fn measured(results: &SwitchResults) -> String {
    let machine = &results.machine;
    let is_virtual = if machine.is_virtual { ", itself a virtual machine" } else { "" };
    let ratios = if results.samples.iter().any(|sample| sample.round.is_some()) {
        "Ratios are taken within a round, in which all switches are measured one after the other."
    } else {
        "Ratios are those of the medians."
    };
    let mut text = wrapped(&format!(
        "Measured on {}: {} CPUs of {}{is_virtual}; {}, Linux {}; taut {}, Open vSwitch {}, DPDK {}. {ratios}",
        machine.date,
        machine.cpus,
        machine.cpu,
        machine.os,
        machine.kernel,
        machine.taut,
        machine.ovs,
        machine.dpdk
    ));
    if !machine.note.is_empty() {
        text += &format!("\n{}", wrapped(&machine.note));
    }
    text
}

/// Writes the tables of a state; none if it was not seen.
fn tables(results: &SwitchResults, state: Cores) -> Option<String> {
    let made = |&(generator, title): &(Generator, &str)| table(results, state, generator, title);
    let tables: Vec<String> = GENERATORS.iter().filter_map(made).collect();
    if tables.is_empty() {
        return None;
    }
    let samples = results.samples.iter().filter(|sample| sample.state == state).count();
    let generators = generators(results, state).unwrap_or_default();
    Some(format!("{samples} samples.\n{generators}{}", tables.concat()))
}

/// Says how much smaller the ratio is with DPDK's own generator.
fn generators(results: &SwitchResults, state: Cores) -> Option<String> {
    let ratio = |generator| {
        let (mode, size) = (Mode::OneWay, 64);
        let kind = Kind { generator, mode, packed: false, touch: false, flows: 1, prepared: 0, size };
        let names = [SWITCHES[0].0, SWITCHES[RATIOS[0].0].0];
        results.ratio(&kind, names, state, &|sample| sample.figures.mpps).map(|ratio| ratio.median)
    };
    let (dpdk, own) = (ratio(Generator::Vgen)?, ratio(Generator::Taut)?);
    let compared = if dpdk < own { "smaller" } else { "not smaller" };
    let text = format!(
        "With DPDK's own generator the ratio is {compared}: at 64 B one way, taut is {dpdk:.2} times as fast as \
         OVS with it, and {own:.2} times with `taut bench switch`."
    );
    Some(format!("\n{}", wrapped(&text)))
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

/// A figure with its unit, and the number of its decimals in the table.
struct Row {
    unit: &'static str,
    decimals: usize,
    is_throughput: bool,
    of: Box<Of<'static>>,
}

/// A line of a table, before it is written.
struct Line {
    name: String,
    decimals: usize,
    figures: [Option<Figure>; SWITCHES.len()],
    ratios: [Option<Figure>; RATIOS.len()],
    /// Figures that the generator limits.
    limited: [bool; SWITCHES.len()],
}

fn table(results: &SwitchResults, state: Cores, generator: Generator, title: &str) -> Option<String> {
    let kinds = results.kinds().into_iter().filter(|kind| kind.generator == generator);
    let lines = kinds.flat_map(|kind| lines(results, &kind, state)).collect::<Vec<_>>();
    let lines: Vec<_> = lines.into_iter().filter(|line| line.figures.iter().any(Option::is_some)).collect();
    if lines.is_empty() {
        return None;
    }
    let is_used = |column: &usize| lines.iter().any(|line| line.figures[*column].is_some());
    let columns: Vec<_> = (0..SWITCHES.len()).filter(is_used).collect();
    let titles = columns.iter().map(|&column| SWITCHES[column].1);
    let titles: Vec<_> = titles.chain(RATIOS.map(|(_, title)| title)).collect();
    let mut text = format!("\n### {title}\n\n| | {} |\n", titles.join(" | "));
    text += &format!("|---|{}\n", "---:|".repeat(titles.len()));
    for line in &lines {
        text += &line.written(&columns);
    }
    Some(text)
}

fn lines(results: &SwitchResults, kind: &Kind, state: Cores) -> Vec<Line> {
    let make = |row: Row| Line {
        name: format!("{}, {}", kind.name(), row.unit),
        decimals: row.decimals,
        figures: SWITCHES.map(|(names, _)| results.figure(kind, names, state, &*row.of)),
        ratios: RATIOS
            .map(|(rival, _)| results.ratio(kind, [SWITCHES[0].0, SWITCHES[rival].0], state, &*row.of)),
        limited: SWITCHES
            .map(|(names, _)| row.is_throughput && results.is_limited_by_generator(kind, names, state)),
    };
    rows(results, kind, state).into_iter().map(make).collect()
}

impl Line {
    /// Writes the medians, and below them the spread.
    fn written(&self, columns: &[usize]) -> String {
        let all = columns.iter().map(|&column| (self.figures[column], self.decimals, self.limited[column]));
        let all: Vec<_> = all.chain(self.ratios.map(|ratio| (ratio, 2, false))).collect();
        let cells = |write: &dyn Fn(Figure, usize, bool) -> String| {
            let cell = |&(figure, decimals, is_limited): &(Option<Figure>, usize, bool)| {
                figure.map_or_else(|| "–".to_owned(), |figure| write(figure, decimals, is_limited))
            };
            all.iter().map(cell).collect::<Vec<_>>().join(" | ")
        };
        let medians = cells(&|Figure { median, .. }, decimals, is_limited| {
            format!("{median:.decimals$}{}", if is_limited { "\\*" } else { "" })
        });
        let spreads = cells(&|Figure { least, greatest, count, .. }, decimals, _| match count {
            1 => "–".to_owned(),
            _ => format!("{least:.decimals$}–{greatest:.decimals$}"),
        });
        format!("| {} | {medians} |\n| {} | {spreads} |\n", self.name, self.counts())
    }

    /// Writes the numbers of samples of the switches.
    fn counts(&self) -> String {
        let counts = || self.figures.iter().flatten().map(|figure| figure.count);
        match (counts().min(), counts().max()) {
            (Some(least), Some(most)) if least < most => format!("n = {least}–{most}"),
            (_, most) => format!("n = {}", most.unwrap_or(0)),
        }
    }
}

/// Returns the figures of a kind.
fn rows(results: &SwitchResults, kind: &Kind, state: Cores) -> Vec<Row> {
    if kind.mode == Mode::Traversal {
        let percentile = |unit, of: fn(&Traversals) -> Option<f64>| Row {
            unit,
            decimals: 0,
            is_throughput: false,
            of: Box::new(move |sample| sample.figures.traversal.as_ref().and_then(of)),
        };
        return vec![
            percentile("p50 in ns", |t| Some(t.p50_ns)),
            percentile("p99 in ns", |t| Some(t.p99_ns)),
            percentile("p99.9 in ns", |t| Some(t.p99_9_ns)),
            percentile("p99.99 in ns", |t| t.p99_99_ns),
        ];
    }
    let gbit = f64::from(kind.size) * 8.0 / 1000.0;
    let copied: Box<Of<'static>> = Box::new(|sample| sample.memcpy_gbyte_s.map(|rate| rate * 8.0));
    let is_copied = SWITCHES.iter().any(|(names, _)| results.figure(kind, names, state, &*copied).is_some());
    let is_throughput = true;
    let mut rows = Vec::new();
    if !is_copied {
        let decimals = if kind.size > 1000 { 2 } else { 1 };
        rows.push(Row { unit: "Mpps", decimals, is_throughput, of: Box::new(|sample| sample.figures.mpps) });
    }
    if kind.size > 1000 {
        let of = Box::new(move |sample: &SwitchSample| sample.figures.mpps.map(|mpps| mpps * gbit));
        rows.push(Row { unit: "Gbit/s", decimals: 0, is_throughput, of });
    }
    if is_copied {
        rows.push(Row { unit: "memcpy in Gbit/s", decimals: 0, is_throughput: false, of: copied });
    }
    rows
}
