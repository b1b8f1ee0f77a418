//! A load generator for vhost-user switches: two ports, one CPU, frames that the switch is to forward from one to the
//! other. It plays the driver end of the rings as lightly as can be (`taut_virtq::driver::burst`), so that what it
//! finds is the switch's limit. Any switch will do: taut, OVS-DPDK, DPDK's vhost library alone. SPEC row VN-1.
//!
//! Before measuring, frames go both ways until they arrive, so that a switch that learns has learnt, and one frame of
//! each port is compared byte for byte. While measuring, length and header of every frame are looked at.

mod frames;
mod pacing;
mod port;
mod throughput;
mod traversal;

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use taut_virtq::driver::burst::MAX_BURST;

use crate::measure::raw;
use frames::{Frames, Touch};
pub use frames::{HEADERS, MAX_FLOWS, MAX_MACS};
pub use pacing::{Asked, Paced, Pacing};
use port::Port;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// As many frames as the ring takes from the first port to the second.
    OneWay,
    /// The same in both directions.
    BothWays,
    /// One frame at a time from the first port to the second: how long it takes.
    Traversal,
}

/// How it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// The vhost-user sockets of the two ports.
    pub sockets: [PathBuf; 2],
    /// Listen on them, and have the switch connect; otherwise the switch listens.
    pub listen: bool,
    /// What is measured.
    pub mode: Mode,
    /// Time between two frames of [`Mode::Traversal`]. When there is one, the switch is kicked for each frame if it wants
    /// that: it may have fallen asleep.
    pub pause: Duration,
    /// Bytes of a frame, without checksum; from [`HEADERS`] to 65 549. Above 1518 it is a TCP frame to be segmented.
    pub size: u32,
    /// For how long, each time.
    pub duration: Duration,
    /// How often.
    pub repeats: u32,
    /// Entries of each ring, a power of two.
    pub entries: u16,
    /// Frames of a burst, 1 to [`MAX_BURST`].
    pub burst: usize,
    /// Ask for packed rings.
    pub packed: bool,
    /// Ask for `IN_ORDER`.
    pub in_order: bool,
    /// Flows (UDP source ports), 1 to [`MAX_FLOWS`].
    pub flows: u32,
    /// Destination MACs behind each port, 1 to [`MAX_MACS`].
    pub macs: u32,
    /// Write the first line of every frame sent, and read that of every frame received, even with one flow.
    pub touch: bool,
    /// How long the switch gets to settle on the paths that it has learnt, before the first repeat.
    pub settle: Duration,
    /// CPU to run on.
    pub cpu: Option<usize>,
    /// The switch's CPU: between the two the placement probe runs before and after each repeat.
    pub probe: Option<usize>,
    /// Use huge pages, which must have been reserved.
    pub huge_pages: bool,
    /// Measure before each repeat how fast this CPU copies as much memory in the same turn.
    pub memcpy: bool,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What was measured.
    pub mode: Mode,
    /// Bytes of a frame.
    pub size: u32,
    /// Entries of each ring.
    pub entries: u16,
    /// Frames of a burst.
    pub burst: usize,
    /// Packed rings were agreed on.
    pub packed: bool,
    /// `IN_ORDER` was agreed on.
    pub in_order: bool,
    /// Flows.
    pub flows: u32,
    /// Destination MACs behind each port.
    pub macs: u32,
    /// The first line of every frame was written and read.
    pub touch: bool,
    /// One entry a repeat.
    pub repeats: Vec<Sample>,
}

/// One repeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Round trip of a cache line between the two CPUs in ns before and after, if it was probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ns: Option<[f64; 2]>,
    /// Bytes per ns at which as many blocks of a frame's size as a port has buffers were copied to as many others, in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcpy_gbyte_s: Option<f64>,
    /// How many bytes those blocks have in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcpy_bytes: Option<u64>,
    /// What was counted.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What one repeat counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Millions of frames sent a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_mpps: Option<f64>,
    /// Millions of frames received a second, all directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpps: Option<f64>,
    /// Share of the frames sent that did not arrive, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// Share of the attempts to send that found less room than a burst, in percent: near 100 when the switch is the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_full_percent: Option<f64>,
    /// Traversals in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traversal: Option<Traversals>,
}

/// Percentiles of the time from just before a frame is made available to just after it was found at the other port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Traversals {
    /// How many.
    pub count: u64,
    /// Frames that did not arrive within a second.
    pub lost: u64,
    /// Median.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p99_9_ns: f64,
    /// 99.99th percentile, if it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_99_ns: Option<f64>,
}

/// How long frames may take to get through for the first time: a switch may have to learn, or to be found.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the probe runs each time.
const PROBE: Duration = Duration::from_millis(20);

/// Connects both ports and measures.
pub fn run(options: &LoadOptions) -> Result<Load> {
    check(options)?;
    if let Some(cpu) = options.cpu {
        raw::pin(cpu).with_context(|| format!("cannot run on CPU {cpu}"))?;
    }
    let frames = [0, 1].map(|port| Frames::new(port, options.size, options.flows, options.macs));
    let mut ports = Port::connect_both(options, &frames)?;
    learn(&mut ports, &frames, options, 0..options.macs)?;
    let touches = frames.each_ref().map(|frames| frames.touch(options.touch));
    let mut repeats = Vec::new();
    let blocks = || raw::Blocks::new(options.size as usize, port::buffers(options) as usize);
    let mut blocks = options.memcpy.then(blocks).transpose().context("no memory to copy")?;
    for _ in 0..options.repeats {
        let memcpy_gbyte_s = blocks.as_mut().map(|blocks| blocks.copy(PROBE));
        let before = probe(options)?;
        let figures = measure(options, &mut ports, &mut touches.clone())?;
        let after = probe(options)?;
        repeats.push(Sample {
            probe_ns: before.zip(after).map(|(before, after)| [before, after]),
            memcpy_gbyte_s,
            memcpy_bytes: blocks.as_ref().map(raw::Blocks::bytes),
            figures,
        });
    }
    let [first, _] = &ports;
    Ok(Load {
        mode: options.mode,
        size: options.size,
        entries: options.entries,
        burst: options.burst,
        packed: first.packed(),
        in_order: first.in_order(),
        flows: options.flows,
        macs: options.macs,
        touch: touches[0].is_some(),
        repeats,
    })
}

fn check(options: &LoadOptions) -> Result<()> {
    let in_range = |what, value: u32, least, most| {
        if (least..=most).contains(&value) {
            Ok(())
        } else {
            bail!("{what} {value} is not in {least} to {most}")
        }
    };
    in_range("frame size", options.size, HEADERS, frames::LONGEST)?;
    in_range("burst", options.burst as u32, 1, MAX_BURST as u32)?;
    in_range("number of flows", options.flows, 1, MAX_FLOWS)?;
    in_range("number of MACs", options.macs, 1, MAX_MACS)?;
    in_range("ring size", options.entries.into(), 64, 4096)?;
    if !options.entries.is_power_of_two() {
        bail!("ring size {} is not a power of two", options.entries);
    }
    Ok(())
}

fn probe(options: &LoadOptions) -> Result<Option<f64>> {
    let (Some(switch), Some(own)) = (options.probe, options.cpu) else { return Ok(None) };
    Ok(Some(raw::placement([switch, own], PROBE).context("the placement probe cannot run")?.median))
}

fn measure(
    options: &LoadOptions,
    ports: &mut [Port; 2],
    touches: &mut [Option<Touch>; 2],
) -> Result<Figures> {
    match options.mode {
        Mode::OneWay => throughput::measure(options, ports, touches, false),
        Mode::BothWays => throughput::measure(options, ports, touches, true),
        Mode::Traversal => traversal::measure(options, ports, touches),
    }
}

/// Sends frames from MACs of both ports until each port has received one of each of the other's, unchanged.
fn learn(ports: &mut [Port; 2], frames: &[Frames; 2], options: &LoadOptions, macs: Range<u32>) -> Result<()> {
    let begun = Instant::now();
    for to in [0, 1] {
        let from = 1 - to;
        for mac in macs.clone() {
            let mut touch = frames[from].only(mac);
            loop {
                // One of the other's too: who is known is reached, and not flooded to.
                let mut back = frames[to].only(mac);
                ports[to].send(1, &mut |frame| back.apply(frame))?;
                ports[from].send(1, &mut |frame| touch.apply(frame))?;
                ports.iter().for_each(Port::kick);
                std::thread::sleep(Duration::from_micros(200));
                ports[from].receive(false, &mut |_, _| ())?;
                let mut arrived = false;
                ports[to].receive(true, &mut |frame, _| arrived |= frames[from].is_this(&frame, mac))?;
                if arrived {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    bail!(
                        "no frame gets from port {from} to port {to}: is the switch polling, and does it forward?"
                    );
                }
            }
        }
    }
    std::thread::sleep(options.settle);
    for port in ports {
        while port.receive(false, &mut |_, _| ())? > 0 {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
