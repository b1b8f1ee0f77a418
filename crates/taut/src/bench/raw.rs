//! `taut bench raw`: the machine without any switch, beside which the other results are read.

use std::time::Duration;

use serde::Serialize;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_bench::measure::raw::{self, Raw};
use taut_bench::report::Host;

use super::{args, host};
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds that all of it takes.
    #[arg(long, default_value = "2", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlacementArgs {
    /// The two CPUs.
    #[arg(num_args = 2, required = true, value_names = ["CPU", "CPU2"])]
    cpus: Vec<usize>,
    /// Seconds that it takes.
    #[arg(long, default_value = "0.1", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    raw: Raw,
    host: Host,
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    let host = host::describe(client)?;
    let raw = {
        let _progress = Progress::start("passing a cache line, copying memory");
        raw::measure(args.duration).map_err(|error| unmeasured(&error))?
    };
    output::print(format, &Answer { raw, host }, table);
    Ok(())
}

pub(super) fn placement(args: &PlacementArgs, format: Format) -> Outcome {
    let cpus = <[usize; 2]>::try_from(args.cpus.as_slice()).expect("clap takes two");
    let spread = raw::placement(cpus, args.duration).map_err(|error| unmeasured(&error))?;
    output::print(format, &spread, |spread| format!("{:.1} ns\n", spread.median));
    Ok(())
}

fn unmeasured(error: &std::io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the machine could not be measured",
        "it takes two CPUs that this process may run on",
    )
    .because(error)
}

fn table(Answer { raw, host }: &Answer) -> String {
    let [first, second] = raw.cpus;
    let mut text = match raw.ping_pong_ns {
        None => "cache line: there is only one CPU to use\n".to_owned(),
        Some(spread) => {
            let figures = [spread.min, spread.median, spread.p99].map(|ns| format!("{ns:.1}"));
            let [min, median, p99] = figures;
            let rows = [[format!("CPU {first} ↔ CPU {second}"), min, median, p99]];
            output::table(["CACHE LINE ROUND TRIP", "MIN NS", "MEDIAN NS", "P99 NS"], &rows)
        }
    };
    let rows: Vec<_> = raw
        .memcpy
        .iter()
        .map(|copying| {
            [
                format!("{} B", copying.size),
                format!("{:.1}", copying.gbyte_s),
                format!("{:.0}", copying.gbyte_s * 8.0),
            ]
        })
        .collect();
    text += "\n";
    text += &output::table(["COPIED AT A TIME", "GB/S", "GBIT/S"], &rows);
    text + &format!("\non  {host}\n")
}

#[cfg(test)]
mod tests {
    use taut_bench::measure::raw::{Copying, Spread};

    use super::*;

    #[test]
    fn raw_figures_as_table() {
        let raw = Raw {
            cpus: [0, 1],
            ping_pong_ns: Some(Spread { min: 112.26, median: 140.0, p99: 260.5 }),
            memcpy: vec![Copying { size: 1518, gbyte_s: 61.44 }, Copying { size: 1 << 20, gbyte_s: 9.96 }],
        };
        let host = Host {
            hostname: "lab1".to_owned(),
            cpu_model: "Example CPU".to_owned(),
            cpus: 2,
            os: "Debian".to_owned(),
            kernel: "6.18.0".to_owned(),
            accelerator: "tcg".to_owned(),
            qemu: None,
            taut: "0.1.0".to_owned(),
        };
        insta::assert_snapshot!(table(&Answer { raw, host }), @"
        CACHE LINE ROUND TRIP  MIN NS  MEDIAN NS  P99 NS
        CPU 0 ↔ CPU 1           112.3      140.0   260.5

        COPIED AT A TIME  GB/S  GBIT/S
        1518 B            61.4     492
        1048576 B         10.0      80

        on  lab1: 2 × Example CPU, Debian, Linux 6.18.0, tcg, taut 0.1.0
        ");
    }
}
