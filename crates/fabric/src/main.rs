//! `taut-fabric`: the data plane process, which `tautd` starts. See [`taut_fabric`].

use std::io::{IsTerminal, Write as _};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::Context;
use taut_api::fabric::counters::FILE_SIZE;
use taut_fabric::control::Control;
use taut_fabric::sys::inherited::Inherited;
use taut_fabric::sys::{descriptor, sandbox};
use taut_virtq::counters::SharedWords;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a backtrace: the sandbox forbids the files that it would be made of.
            let _ = writeln!(std::io::stderr(), "Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    if std::env::args().nth(1).is_some_and(|word| word == "--version") {
        return Ok(writeln!(std::io::stdout(), "taut-fabric {}", env!("CARGO_PKG_VERSION"))?);
    }
    // Older kernels name a program that was executed by its descriptor after that number.
    let _ = rustix::thread::set_name(c"taut-fabric");
    let inherited = Inherited::take()?;
    let filter = EnvFilter::try_from_env("TAUT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // They would be reported on standard error, too, and end the process if that is full.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let words = SharedWords::map(inherited.counters.as_fd(), FILE_SIZE as usize / 8)
        .context("the counters file cannot be mapped")?;
    drop(inherited.counters);
    // Workers inherit this. By default the kernel may add 50 µs to each timed sleep.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).context("cannot make timers exact")?;
    descriptor::prepare().context("/proc/self/fd cannot be opened")?;
    sandbox::enter()?;
    let control = Control::new(inherited.control, words).context("the worker cannot be started")?;
    control.run().context("waiting for events failed")
}
