//! `taut bench raw`: figures of the machine without any switch, to compare other results with.

use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_bench::measure::raw;
use taut_bench::report::RawResults;

use super::{args, host};
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Length of the whole measurement in seconds.
    #[arg(long, default_value = "2", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlacementArgs {
    /// The two CPUs.
    #[arg(num_args = 2, required = true, value_names = ["CPU", "CPU2"])]
    cpus: Vec<usize>,
    /// Length of the measurement in seconds.
    #[arg(long, default_value = "0.1", value_parser = args::seconds, value_name = "S")]
    duration: Duration,
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    let host = host::describe(client)?;
    let raw = {
        let _progress = Progress::start("passing a cache line, copying memory");
        raw::measure(args.duration).map_err(|error| unmeasured(&error))?
    };
    output::print(format, &RawResults { raw, host }, RawResults::table);
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
        "this process must be allowed to run on two CPUs",
    )
    .because(error)
}
