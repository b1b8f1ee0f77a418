//! Throughput: as many frames as the rings take.

use std::time::Instant;

use anyhow::{Result, bail};

use super::frames::Touch;
use super::port::Port;
use super::{Figures, LoadOptions, PATIENCE};

/// Bursts between two readings of the clock.
const BURSTS: usize = 64;

/// Counts so far.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    sent: u64,
    received: u64,
    attempts: u64,
    full: u64,
}

pub(super) fn measure(
    options: &LoadOptions,
    ports: &mut [Port; 2],
    touches: &mut [Option<Touch>; 2],
    both: bool,
) -> Result<Figures> {
    let mut counts = Counts::default();
    let begun = Instant::now();
    let warm = options.duration / 10;
    let mut start = None;
    let (start, base, end) = loop {
        for _ in 0..BURSTS {
            step(options.setup.burst, ports, touches, both, &mut counts)?;
        }
        // The switch should poll. One that sleeps anyway is woken.
        ports.iter().for_each(Port::kick);
        let now = Instant::now();
        match start {
            None if now - begun >= warm => start = Some((now, counts)),
            // On a busy machine the switch may not have run yet.
            Some((start, base))
                if now - start >= options.duration
                    && (counts.received > base.received || now - start > PATIENCE) =>
            {
                break (start, base, now);
            }
            _ => {}
        }
    };
    drain(ports)?;
    let wrong: u64 = ports.iter_mut().map(|port| std::mem::take(&mut port.wrong)).sum();
    if wrong > 0 {
        bail!("{wrong} of {} frames arrived with another length or header", counts.received);
    }
    let millions = (end - start).as_secs_f64() * 1e6;
    let (sent, received) = (counts.sent - base.sent, counts.received - base.received);
    let share = |part: f64, whole: u64| if whole == 0 { 0.0 } else { 100.0 * part / whole as f64 };
    Ok(Figures {
        sent_mpps: Some(sent as f64 / millions),
        mpps: Some(received as f64 / millions),
        loss_percent: Some(share(sent as f64 - received as f64, sent).max(0.0)),
        ring_full_percent: Some(share((counts.full - base.full) as f64, counts.attempts - base.attempts)),
        traversal: None,
    })
}

#[inline]
fn step(
    burst: usize,
    [first, second]: &mut [Port; 2],
    [forth, back]: &mut [Option<Touch>; 2],
    both: bool,
    counts: &mut Counts,
) -> Result<()> {
    send(first, forth, burst, counts)?;
    counts.received += receive(second, forth.is_some())?;
    if both {
        send(second, back, burst, counts)?;
    }
    counts.received += receive(first, back.is_some())?;
    Ok(())
}

#[inline]
fn send(port: &mut Port, touch: &mut Option<Touch>, burst: usize, counts: &mut Counts) -> Result<()> {
    let sent = match touch {
        None => port.send(burst, &mut |_| ())?,
        Some(touch) => port.send(burst, &mut |frame| touch.apply(frame))?,
    };
    counts.sent += sent as u64;
    counts.attempts += 1;
    counts.full += u64::from(port.is_full());
    Ok(())
}

#[inline]
fn receive(port: &mut Port, look: bool) -> Result<u64> {
    if !look {
        return Ok(port.receive(false, &mut |_, _| ())? as u64);
    }
    let mut seen = 0;
    let count = port.receive(true, &mut |frame, _| seen ^= frame.load(0))?;
    std::hint::black_box(seen);
    Ok(count as u64)
}

/// Receives what is still under way, so that the next repeat begins with empty rings.
fn drain(ports: &mut [Port; 2]) -> Result<()> {
    let mut last = Instant::now();
    while last.elapsed().as_millis() < 5 {
        for port in ports.iter_mut() {
            if port.receive(false, &mut |_, _| ())? > 0 {
                last = Instant::now();
            }
        }
    }
    Ok(())
}
