//! Traversal: the time that one frame takes.

use std::time::{Duration, Instant};

use anyhow::Result;
use quanta::Clock;

use super::frames::Touch;
use super::port::Port;
use super::{Figures, LoadOptions, PATIENCE, Traversals};
use crate::measure::latencies::Latencies;

/// A frame that takes longer is lost.
const LOST: Duration = Duration::from_secs(1);
/// Reads of the ring between two checks whether the switch sleeps.
const POLLS: u32 = 1 << 12;

pub(super) fn measure(
    options: &LoadOptions,
    [first, second]: &mut [Port; 2],
    [touch, _]: &mut [Option<Touch>; 2],
) -> Result<Figures> {
    // The CPU's time stamp counter: the kernel's clock would take a tenth of the measured time.
    let clock = Clock::new();
    let mut latencies = Latencies::new();
    let mut lost = 0;
    let warm = Instant::now() + options.duration / 10;
    let end = warm + options.duration;
    loop {
        let now = Instant::now();
        // On a busy machine a single frame may take longer than the whole measurement should.
        if now >= end && (latencies.count() > 0 || now >= end + PATIENCE) {
            break;
        }
        std::thread::sleep(options.pause);
        let begun = clock.raw();
        while first.send(1, &mut |frame| {
            if let Some(touch) = touch {
                touch.apply(frame);
            }
        })? == 0
        {}
        if !options.pause.is_zero() {
            first.kick();
        }
        let mut polls = 0u32;
        let arrived = loop {
            if second.receive(false, &mut |_, _| ())? > 0 {
                break true;
            }
            polls += 1;
            if polls.is_multiple_of(POLLS) {
                first.kick();
                if clock.delta(begun, clock.raw()) > LOST {
                    break false;
                }
            }
        };
        let took = clock.delta(begun, clock.raw());
        if !arrived {
            lost += 1;
        } else if now >= warm {
            latencies.record(took);
        }
    }
    let at = |quantile| latencies.quantile_us(quantile) * 1000.0;
    let traversal = Traversals {
        count: latencies.count(),
        lost,
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p99_9_ns: at(0.999),
        p99_99_ns: Some(at(0.9999)),
    };
    Ok(Figures { traversal: Some(traversal), ..Figures::default() })
}
