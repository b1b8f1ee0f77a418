//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// The daemon of taut: VMs, vSwitches and their ports on this host.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Where what users want is kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/taut")]
    pub(crate) state_dir: PathBuf,
    /// Where sockets, logs and process numbers are; empty after a boot.
    #[arg(long, value_name = "DIR", default_value = "/run/taut")]
    pub(crate) run_dir: PathBuf,
    /// Where taut's other programs are [default: where this one is].
    #[arg(long, value_name = "DIR")]
    pub(crate) libexec: Option<PathBuf>,
    /// CPUs that the fabric's workers are bound to, one worker each, such as `2,3` [default: one worker, anywhere].
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pub(crate) fabric_cpus: Vec<u32>,
    /// Print the description of the HTTP API and exit.
    #[arg(long)]
    pub(crate) print_openapi: bool,
}
