//! A load generator for vhost-user switches: two ports, one CPU, frames that the switch is to
//! forward from one port to the other (spec row VN-1).
//!
//! The generator runs the driver end of the rings as cheaply as possible
//! (`taut_virtq::driver::burst`), so that the switch is the limit. Any switch will do: taut,
//! OVS-DPDK, DPDK's vhost library alone.
//!
//! Before measuring, it sends frames both ways until they arrive, so that a learning switch has
//! learnt, and compares one frame of each port byte for byte. While measuring, it checks length and
//! header of every frame.

mod frames;
mod options;
mod pacing;
mod port;
mod results;
mod throughput;
mod traversal;

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub use frames::{HEADERS, MAX_FLOWS, MAX_MACS};
pub use options::{LoadOptions, Mode, Setup};
pub use pacing::{Asked, Paced, Pacing};
pub use results::{Figures, Load, Sample, Traversals};

use crate::measure::raw;
use frames::{Frames, Touch};
use port::Port;

/// Time that frames may take to arrive for the first time: the switch may have to start or to
/// learn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length of each run of the placement probe.
const PROBE: Duration = Duration::from_millis(20);

/// Connects both ports and measures.
pub fn run(options: &LoadOptions) -> Result<Load> {
    let setup = &options.setup;
    setup.check()?;
    if let Some(cpu) = options.cpu {
        raw::pin(cpu).with_context(|| format!("cannot run on CPU {cpu}"))?;
    }
    let frames = [0, 1].map(|port| Frames::new(port, setup.size, setup.flows, setup.macs));
    let mut ports = Port::connect_both(options, &frames)?;
    learn(&mut ports, &frames, options, 0..setup.macs)?;
    prepare(&mut ports, &frames, setup)?;
    let touches = frames.each_ref().map(|frames| match setup.prepared {
        0 => frames.touch(setup.touch),
        _ => None,
    });
    let mut repeats = Vec::new();
    let blocks = || raw::Blocks::new(setup.size as usize, port::buffers(setup) as usize);
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
    let (packed, in_order) = (first.packed(), first.in_order());
    let setup = Setup { packed, in_order, touch: touches[0].is_some(), ..setup.clone() };
    Ok(Load { setup, repeats })
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
    match options.setup.mode {
        Mode::OneWay => throughput::measure(options, ports, touches, false),
        Mode::BothWays => throughput::measure(options, ports, touches, true),
        Mode::Traversal => traversal::measure(options, ports, touches),
    }
}

/// Sends frames between all MACs of both ports until each port has received one from every MAC of
/// the other, unchanged.
fn learn(ports: &mut [Port; 2], frames: &[Frames; 2], options: &LoadOptions, macs: Range<u32>) -> Result<()> {
    let begun = Instant::now();
    for to in [0, 1] {
        let from = 1 - to;
        for mac in macs.clone() {
            let mut touch = frames[from].only(mac);
            loop {
                // A frame in the other direction lets the switch learn where `to` is, so that it
                // does not flood.
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
                        "no frame gets from port {from} to port {to} within {} s: the switch does not poll \
                         or does not forward",
                        PATIENCE.as_secs()
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

/// Sends every buffer once, with addresses and flow written into it. Buffers are used round-robin,
/// so that the frames stay as they are from then on.
fn prepare(ports: &mut [Port; 2], frames: &[Frames; 2], setup: &Setup) -> Result<()> {
    for from in [0, 1] {
        let Some(mut touch) = frames[from].touch(true) else { continue };
        let begun = Instant::now();
        let mut left = setup.prepared as usize;
        while left > 0 {
            left -= ports[from].send(left.min(setup.burst), &mut |frame| touch.apply(frame))?;
            ports.iter().for_each(Port::kick);
            for port in ports.iter_mut() {
                port.receive(false, &mut |_, _| ())?;
            }
            if begun.elapsed() > PATIENCE {
                bail!("{left} of {} prepared frames could not be sent", setup.prepared);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
