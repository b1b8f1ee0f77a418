//! A small C program that writes messages of one size in a loop. It also copies memory, which tells
//! what a guest could reach at most.

use std::path::PathBuf;

use super::iperf3::Streams;
use super::{SERVER, Way, run_in, sample, serve, until_it_works};
use crate::lab::Lab;
use crate::machine::{Command, Text};
use crate::reason::Measured;

const SOURCE: &str = include_str!("write_loop.c");
const PORT: u16 = 5301;
/// Bytes of memory that are copied: as many as a part of the cache.
const COPIED: u32 = 1 << 20;

/// Compiles the program, and returns its path.
pub(in super::super) fn build(lab: &mut Lab) -> Measured<PathBuf> {
    let compiler = lab.tool("cc")?;
    let program = lab.folder().join("write_loop");
    let source = program.with_extension("c");
    lab.machine().write(&source, SOURCE)?;
    let command = Command::new(compiler).args("-std=gnu11 -O2 -Wall -pthread -o");
    lab.run(&command.arg(&program).arg(&source))?;
    Ok(program)
}

/// Starts a server for each of these ways, and waits until they serve.
pub(in super::super) fn start(lab: &mut Lab, ways: &[Way]) -> Measured<()> {
    for &way in ways {
        serve(lab, way, "write-loop-server", &format!("write_loop serve {}", way.port(PORT)))?;
        until_it_works(lab, "the C program's server answers", |lab| {
            mbit_s(lab, way, Streams { size: 256, sessions: 1, seconds: 1 }).map(drop)
        })?;
    }
    Ok(())
}

/// Measures streams from a to b: Mbit/s that the server has received.
pub(in super::super) fn mbit_s(lab: &mut Lab, way: Way, streams: Streams) -> Measured<f64> {
    let Streams { size, sessions, seconds } = streams;
    let port = way.port(PORT);
    let command = format!("write_loop send {SERVER} {port} {size} {sessions} {seconds}");
    sample(lab, way, |lab| {
        let command = way.variables() + &command;
        moved(&run_in(lab, "a", "write-loop", &command, u64::from(seconds) + 60)?)
    })
}

/// Measures memcpy of 1 MiB in guest a, in Mbit/s.
pub(in super::super) fn memcpy_mbit_s(lab: &mut Lab) -> Measured<f64> {
    Ok(moved(&run_in(lab, "a", "memcpy", &format!("write_loop copy {COPIED} 0.5"), 60)?)?.0)
}

/// Reads Mbit/s and bytes of a report.
fn moved(text: &Text) -> Measured<(f64, f64)> {
    let report = text.json()?;
    let (bytes, seconds) = (report.number("bytes")?, report.number("seconds")?);
    Ok((crate::figure::ratio(bytes * 8.0 / 1e6, seconds)?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_bytes_and_seconds() {
        let of = |text: &str| moved(&Text::from(text));
        assert_eq!(of("{\"bytes\": 1000000, \"seconds\": 2.000000}"), Ok((4.0, 1e6)));
        for text in ["", "{\"bytes\": 1}", "{\"bytes\": 1, \"seconds\": 0}", "{\"bytes\": 0, \"seconds\": 1}"]
        {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
