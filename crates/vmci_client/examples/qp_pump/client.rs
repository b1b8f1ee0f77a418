//! Connects, measures, prints.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};

use crate::arguments::{Connect, Measure};
use crate::line::Line;
use crate::opening::{Opening, Pattern, Report, Wanted};

/// Round trips before those that count.
const WARM_UP: u64 = 20;

pub(crate) fn run(options: &Connect) -> Result<()> {
    let mut results = Vec::new();
    for size in &options.size {
        let size = usize::try_from(*size).context("size")?;
        ensure!(size <= 64 << 20, "writes of {size} bytes");
        for measure in &options.measure {
            let line = connect(options)?;
            results.push(match measure {
                Measure::Stream => stream(line, size, options)?,
                Measure::Rr => rr(line, size, options)?,
            });
        }
    }
    println!("{}", serde_json::to_string_pretty(&json!({ "results": results }))?);
    Ok(())
}

fn connect(options: &Connect) -> Result<Line> {
    let until = Instant::now() + Duration::from_secs(options.wait);
    loop {
        let line = match &options.tcp {
            Some(host) => Line::connect_tcp(host, options.port),
            None => Line::connect(options.cid, options.port, options.attaching.options().as_ref()),
        };
        match line {
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(200)),
            line => return line,
        }
    }
}

/// Sends until the number of bytes or the time is reached, and waits for the server's report.
fn stream(mut line: Line, size: usize, options: &Connect) -> Result<Value> {
    let wanted = if options.check { Wanted::CheckedStream } else { Wanted::Stream };
    Opening { wanted, size: size as u32 }.write(&mut line)?;
    let pattern = Pattern::new(size);
    let (begin, cpu) = (Instant::now(), cpu()?);
    let end = begin + Duration::from_secs(options.seconds);
    let mut sent = 0;
    while sent < options.bytes {
        let len = size.min((options.bytes - sent) as usize);
        line.write_all(pattern.from(if options.check { sent } else { 0 }, len))?;
        sent += len as u64;
        if (sent / size as u64).is_multiple_of(64) && Instant::now() > end {
            break;
        }
    }
    line.finish()?;
    let report = Report::read(&mut line).context("the server's report")?;
    let seconds = begin.elapsed().as_secs_f64();
    if report.bytes != sent {
        bail!("{sent} bytes were sent, and {} arrived", report.bytes);
    }
    Ok(json!({
        "measure": "stream",
        "own": line.kind(),
        "peer": report.kind,
        "not_attached": line.reason,
        "size": size,
        "bytes": sent,
        "seconds": seconds,
        "mbit_s": sent as f64 * 8.0 / seconds / 1e6,
        "cpu_seconds": cpu_since(cpu)?,
        "checked": options.check,
    }))
}

/// Sends messages and waits for each to come back.
fn rr(mut line: Line, size: usize, options: &Connect) -> Result<Value> {
    Opening { wanted: Wanted::Rr, size: size as u32 }.write(&mut line)?;
    let report = Report::read(&mut line).context("the server's greeting")?;
    let mut message: Vec<u8> = (0..size).map(|at| at as u8).collect();
    let mut times = Histogram::<u64>::new(3)?;
    let mut begin = Instant::now();
    let mut before = cpu()?;
    let end = begin + Duration::from_secs(options.seconds);
    for round in 0..options.rounds + WARM_UP {
        if round == WARM_UP {
            (begin, before) = (Instant::now(), cpu()?);
        }
        let sent = Instant::now();
        message[0] = round as u8;
        line.write_all(&message)?;
        message[0] = !message[0];
        line.read_exact(&mut message)?;
        ensure!(message[0] == round as u8, "another message has come back");
        if round >= WARM_UP {
            times.saturating_record(sent.elapsed().as_nanos() as u64);
        }
        if Instant::now() > end {
            break;
        }
    }
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_since(before)?);
    line.finish()?;
    let quantile = |at: f64| times.value_at_quantile(at) as f64 / 1e3;
    Ok(json!({
        "measure": "rr",
        "own": line.kind(),
        "peer": report.kind,
        "not_attached": line.reason,
        "size": size,
        "rounds": times.len(),
        "seconds": seconds,
        "rounds_per_second": times.len() as f64 / seconds,
        "mean_us": times.mean() / 1e3,
        "p50_us": quantile(0.5),
        "p90_us": quantile(0.9),
        "p99_us": quantile(0.99),
        "max_us": times.max() as f64 / 1e3,
        "cpu_seconds": cpu,
    }))
}

/// CPU time of this process since it was `before`, in seconds.
fn cpu_since(before: Duration) -> Result<f64> {
    Ok(cpu()?.saturating_sub(before).as_secs_f64())
}

/// CPU time of this process.
fn cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros)?))
}
