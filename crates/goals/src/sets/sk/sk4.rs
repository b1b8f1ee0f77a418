//! SK4: microguest to microguest, beside the raw machine.

use crate::figure::{Bound, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK4",
    what: "request and response, stream, and what the machine itself needs",
    on: "two microguests",
    goals: &[
        Goal::new("SK4-rr", &[Bound::Stated("µs p50"), Bound::Stated("µs p99"), Bound::Stated("µs p99.9")]),
        Goal::new("SK4-stream", &[Bound::Stated("Mbit/s")]),
        Goal::new("SK4-raw", &[Bound::Stated("ns ping-pong"), Bound::Stated("Gbit/s memcpy of 64 KiB")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default())?;
    lab.micro("micro1", "10.80.0.11", "")?;
    lab.micro("micro2", "10.80.0.12", "")?;
    let rr = lab.bench("rr micro1 micro2 --duration 5")?.at("a.median")?;
    let percentiles = [rr.number("p50_us")?, rr.number("p99_us")?, rr.number("p99_9_us")?];
    results.record("SK4-rr", percentiles, format!("{} answers a second", shown(rr.number("per_s")?.round())));
    let stream = lab.bench("stream micro1 micro2 --pattern bulk --duration 5")?;
    results.record("SK4-stream", [stream.number("a.median.mbit_s")?], "");
    let raw = lab.bench("raw")?;
    let memcpy = raw.find("memcpy", &[("size", "65536")])?.number("gbyte_s")? * 8.0;
    results.record("SK4-raw", [raw.number("ping_pong_ns.median")?, memcpy], "");
    Ok(())
}
