//! Loads a switch while a command replaces it again and again. Prints the fate of all frames as
//! JSON.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use taut_bench::restart::{RestartOptions, run};

/// Loads a vhost-user switch while a command replaces it again and again.
#[derive(Debug, Parser)]
struct Arguments {
    /// Sockets of the ports, two for each pair.
    #[arg(required = true)]
    sockets: Vec<PathBuf>,
    /// Command for `sh -c` that replaces the switch.
    #[arg(long)]
    command: String,
    /// Number of restarts.
    #[arg(long, default_value_t = 10)]
    events: u32,
    /// Time between two restarts in milliseconds.
    #[arg(long, default_value_t = 300)]
    settle_ms: u64,
    /// Listen on the sockets, and have the switch connect.
    #[arg(long)]
    listen: bool,
    /// Entries of each ring.
    #[arg(long, default_value_t = 256)]
    ring: u16,
    /// Half of the ports ask for packed rings.
    #[arg(long)]
    packed: bool,
}

fn main() -> Result<()> {
    let Arguments { sockets, command, events, settle_ms, listen, ring, packed } = Arguments::parse();
    let settle = Duration::from_millis(settle_ms);
    let restarts = run(&RestartOptions { sockets, listen, command, events, settle, ring, packed })?;
    println!("{}", serde_json::to_string_pretty(&restarts)?);
    Ok(())
}
