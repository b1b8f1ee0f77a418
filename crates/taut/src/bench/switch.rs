//! `taut bench switch`: frames through any vhost-user switch.

use std::path::PathBuf;
use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_bench::load::{self, Load, LoadOptions, Mode, Sample, Setup};

use super::args;
use crate::output::{self, Format, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// vhost-user sockets of the two ports.
    #[arg(num_args = 2, required = true, value_names = ["SOCKET", "SOCKET2"])]
    sockets: Vec<PathBuf>,
    /// Listen on the sockets and have the switch connect; otherwise the switch listens.
    #[arg(long)]
    listen: bool,
    /// The figure to measure.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Milliseconds between two frames of a traversal; the switch may fall asleep, and is kicked
    /// then.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pause: u64,
    /// Bytes of a frame without its checksum, 60 to 65549; above 1518 it is TCP to be segmented.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    size: u32,
    /// Length of each repeat in seconds.
    #[arg(long, default_value = "2", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
    /// Number of repeats.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    repeat: u32,
    /// Entries of each ring, a power of two.
    #[arg(long, default_value_t = 256, value_name = "N")]
    entries: u16,
    /// Frames of a burst, 1 to 64.
    #[arg(long, default_value_t = 32, value_name = "N")]
    burst: usize,
    /// Use packed rings, if the switch offers them.
    #[arg(long)]
    packed: bool,
    /// Do not ask for IN_ORDER.
    #[arg(long)]
    no_in_order: bool,
    /// Flows (UDP source ports), 1 to 65536.
    #[arg(long, default_value_t = 1, value_name = "N")]
    flows: u32,
    /// MACs behind each port, 1 to 4096.
    #[arg(long, default_value_t = 1, value_name = "N")]
    macs: u32,
    /// Write the first cache line of every frame sent and read that of every frame received, even
    /// if all frames are alike.
    #[arg(long)]
    touch: bool,
    /// Frames that are written beforehand, each in its own buffer, and sent in turn. Flows cost
    /// the generator nothing then; 0 writes them while measuring.
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with = "touch")]
    prepared: u32,
    /// Seconds before the first repeat in which the switch settles on what it has learnt.
    #[arg(long, default_value = "0.3", value_parser = args::seconds, value_name = "S")]
    settle: Duration,
    /// CPU of the generator.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// CPU of the switch; the time of a cache line between both CPUs is measured before and after
    /// each repeat.
    #[arg(long, value_name = "CPU", requires = "cpu")]
    probe: Option<usize>,
    /// Use huge pages, which must have been reserved.
    #[arg(long)]
    huge_pages: bool,
    /// Measure before each repeat how fast this CPU copies as much memory as the buffers have.
    #[arg(long)]
    memcpy: bool,
}

impl Args {
    fn options(self) -> LoadOptions {
        let sockets = <[PathBuf; 2]>::try_from(self.sockets).expect("clap takes two");
        LoadOptions {
            sockets,
            listen: self.listen,
            setup: Setup {
                mode: self.mode,
                size: self.size,
                entries: self.entries,
                burst: self.burst,
                packed: self.packed,
                in_order: !self.no_in_order,
                flows: self.flows,
                macs: self.macs,
                touch: self.touch,
                prepared: self.prepared,
            },
            pause: Duration::from_millis(self.pause),
            duration: self.duration,
            repeats: self.repeat,
            settle: self.settle,
            cpu: self.cpu,
            probe: self.probe,
            huge_pages: self.huge_pages,
            memcpy: self.memcpy,
        }
    }
}

pub(super) fn run(args: Args, format: Format) -> Outcome {
    let load = load::run(&args.options()).map_err(|error| {
        ApiError::new(
            ErrorKind::Unavailable,
            format!("the switch could not be measured: {error:#}"),
            "start a polling switch that forwards between the two sockets",
        )
    })?;
    output::print(format, &load, table);
    Ok(())
}

fn table(load: &Load) -> String {
    let Setup { mode, size, entries, burst, packed, in_order, flows, macs, .. } = &load.setup;
    let rings = if *packed { "packed" } else { "split" };
    let order = if *in_order { ", in order" } else { "" };
    let mut text = if *mode == Mode::Traversal {
        let rows: Vec<_> = load.repeats.iter().map(traversal).collect();
        output::table(["CACHE LINE", "FRAMES", "LOST", "P50 NS", "P99 NS", "P99.9 NS", "P99.99 NS"], &rows)
    } else {
        let rows: Vec<_> = load.repeats.iter().map(|sample| throughput(sample, *size)).collect();
        output::table(["CACHE LINE", "MPPS", "GBIT/S", "LOSS", "RING FULL"], &rows)
    };
    text += &format!(
        "\n{size} B, {rings} rings of {entries}{order}, bursts of {burst}, {flows} flows, {macs} MACs\n"
    );
    text
}

fn probed(sample: &Sample) -> String {
    sample.probe_ns.map_or_else(|| "-".to_owned(), |[before, after]| format!("{before:.0}/{after:.0} ns"))
}

fn throughput(sample: &Sample, size: u32) -> [String; 5] {
    let figures = &sample.figures;
    let mpps = figures.mpps.unwrap_or_default();
    let percent = |value: Option<f64>| format!("{:.2} %", value.unwrap_or_default());
    [
        probed(sample),
        format!("{mpps:.3}"),
        format!("{:.2}", mpps * f64::from(size) * 8.0 / 1000.0),
        percent(figures.loss_percent),
        percent(figures.ring_full_percent),
    ]
}

fn traversal(sample: &Sample) -> [String; 7] {
    let found = sample.figures.traversal.clone().unwrap_or_default();
    let ns = |value: f64| format!("{value:.0}");
    [
        probed(sample),
        found.count.to_string(),
        found.lost.to_string(),
        ns(found.p50_ns),
        ns(found.p99_ns),
        ns(found.p99_9_ns),
        found.p99_99_ns.map_or_else(|| "-".to_owned(), ns),
    ]
}

#[cfg(test)]
mod tests {
    use taut_bench::load::Figures;

    use super::*;

    #[test]
    fn throughput_as_table() {
        let figures = Figures {
            sent_mpps: Some(40.1),
            mpps: Some(40.0),
            loss_percent: Some(0.249),
            ring_full_percent: Some(99.9),
            traversal: None,
        };
        let sample = Sample { probe_ns: Some([101.2, 99.7]), figures, ..Sample::default() };
        let load = Load { setup: Setup::default(), repeats: vec![sample] };
        insta::assert_snapshot!(table(&load), @"
        CACHE LINE    MPPS  GBIT/S  LOSS    RING FULL
        101/100 ns  40.000   20.48  0.25 %  99.90 %

        64 B, split rings of 256, in order, bursts of 32, 1 flows, 1 MACs
        ");
    }
}
