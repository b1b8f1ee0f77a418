//! The page in Markdown.

use super::{Cores, Generator, Kind, SwitchResults};
use crate::load::{Mode, Traversals};

/// Columns: a switch's names in the samples, and in the table.
pub(super) const SWITCHES: [(&[&str], &str); 5] = [
    (&["taut", "taut_learning", "taut_offload"], "taut"),
    (&["ovs_normal"], "OVS-DPDK `normal`"),
    (&["ovs_fixed"], "OVS-DPDK, fixed flows"),
    (&["vhost"], "DPDK vhost, no switch"),
    (&["bridge"], "Linux bridge + TAP"),
];

const STATES: [(Cores, &str); 2] = [(Cores::Near, "Cores near each other"), (Cores::Far, "Cores far apart")];

const INTRODUCTION: &str = "\
One core for the switch, one for the generator; ports are vhost-user, rings have 256 entries. All switches are measured in\n\
alternation in one run. Before and after every sample a cache line is passed between the two cores: virtual machines get\n\
moved, and only samples with both probes in the same state are compared. Figures are medians; `make bench-switch` takes them\n\
again, and `bench/results/` has every sample.\n\
\n\
taut runs as it is installed: sandboxed, every descriptor checked, policy and statistics on. The vhost floor is DPDK's library\n\
forwarding blindly from port to port. The bridge is driven through TAP devices with a system call a frame, its work done on the\n\
generator's core: it is there for a measure of what is usual.\n";

const GENERATORS: [(Generator, &str); 3] = [
    (Generator::Taut, "Generator: `taut bench switch`"),
    (Generator::Lgen, "Generator: lgen, light, not written with taut"),
    (Generator::Vgen, "Generator: vgen, DPDK's virtio-user; it ends at about 21 Mpps itself"),
];

pub(super) fn render(results: &SwitchResults, picture: &str) -> String {
    let machine = &results.machine;
    let is_virtual = if machine.is_virtual { ", itself a virtual machine" } else { "" };
    let mut page = format!("# Performance\n\n![Throughput by frame size]({picture})\n\n{INTRODUCTION}\n");
    page += &format!(
        "Measured on {}: {} CPUs of {}{is_virtual}; {}, Linux {}; taut {}, Open vSwitch {}, DPDK {}.\n",
        machine.date,
        machine.cpus,
        machine.cpu,
        machine.os,
        machine.kernel,
        machine.taut,
        machine.ovs,
        machine.dpdk
    );
    if !machine.note.is_empty() {
        page += &format!("\n{}\n", machine.note);
    }
    for (state, title) in STATES {
        let tables: Vec<_> = GENERATORS
            .iter()
            .filter_map(|&(generator, title)| table(results, state, generator, title))
            .collect();
        let probes = results.samples.iter().filter(|sample| sample.state == state).count();
        if tables.is_empty() {
            page += &format!("\n## {title}\n\nThe machine was not in this state.\n");
        } else {
            page += &format!("\n## {title}\n\n{probes} samples.\n");
            page += &tables.concat();
        }
    }
    page
}

fn table(results: &SwitchResults, state: Cores, generator: Generator, title: &str) -> Option<String> {
    let kinds: Vec<_> = results.kinds().into_iter().filter(|kind| kind.generator == generator).collect();
    let cells = |kind: &Kind| {
        SWITCHES.map(|(names, _)| names.iter().find_map(|name| cell(results, kind, name, state)))
    };
    let rows: Vec<_> = kinds.iter().map(|kind| (kind, cells(kind))).collect();
    let used = [0, 1, 2, 3, 4].map(|column| rows.iter().any(|(_, cells)| cells[column].is_some()));
    if !used.contains(&true) {
        return None;
    }
    let mut text = format!("\n### {title}\n\n| |");
    let columns: Vec<_> = (0..SWITCHES.len()).filter(|column| used[*column]).collect();
    for &column in &columns {
        text += &format!(" {} |", SWITCHES[column].1);
    }
    text += &format!(" taut / OVS `normal` | taut / vhost |\n|---|{}\n", "---|".repeat(columns.len() + 2));
    for (kind, cells) in rows.iter().filter(|(_, cells)| cells.iter().any(Option::is_some)) {
        text += &format!("| {} |", kind.name());
        for &column in &columns {
            let shown = cells[column].as_ref().map_or_else(|| "–".to_owned(), |(_, shown)| shown.clone());
            text += &format!(" {shown} |");
        }
        for rival in [1, 3] {
            let ratio =
                cells[0].as_ref().zip(cells[rival].as_ref()).map(|((own, _), (rival, _))| own / rival);
            text += &ratio.map_or_else(|| " – |".to_owned(), |ratio| format!(" {ratio:.2} |"));
        }
        text += "\n";
    }
    Some(text)
}

/// The figure to compare by, and what is shown.
fn cell(results: &SwitchResults, kind: &Kind, switch: &str, state: Cores) -> Option<(f64, String)> {
    if kind.mode == Mode::Traversal {
        let median = |of: fn(&Traversals) -> Option<f64>| {
            results.median(kind, switch, state, |s| s.figures.traversal.as_ref().and_then(of))
        };
        let [p50, p99] = [median(|t| Some(t.p50_ns))?, median(|t| Some(t.p99_ns))?];
        let tail = [median(|t| Some(t.p99_9_ns)), median(|t| t.p99_99_ns)];
        let all: Vec<_> =
            [p50, p99].into_iter().chain(tail.into_iter().flatten()).map(|ns| format!("{ns:.0}")).collect();
        return Some((p50, format!("{} ns", all.join(" / "))));
    }
    let mpps = results.median(kind, switch, state, |s| s.figures.mpps)?;
    let gbit = mpps * f64::from(kind.size) * 8.0 / 1000.0;
    let shown = match results.median(kind, switch, state, |s| s.memcpy_gbyte_s) {
        Some(copied) => format!("{gbit:.0} Gbit/s, memcpy {:.0}", copied * 8.0),
        None if kind.size > 1000 => format!("{mpps:.2} Mpps ({gbit:.0} Gbit/s)"),
        None => format!("{mpps:.1} Mpps"),
    };
    Some((mpps, shown))
}
