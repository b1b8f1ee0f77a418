//! The binary for inside a VM: workload end points and agent, and process 1 of a directly booted guest.

mod addresses;
mod agent;
mod init;
mod patience;
mod port;

use std::process::ExitCode;

use clap::Parser;

/// What runs inside a VM of taut.
#[derive(Debug, Parser)]
#[command(name = "taut-guest", version)]
enum Command {
    /// Answer the host's calls: addresses, load generators, CPU time.
    Agent(agent::AgentArgs),
    /// Give the interfaces the addresses that the VM's file names.
    Addresses,
}

fn main() -> ExitCode {
    if init::is_wanted() {
        init::run();
    }
    let outcome = match Command::parse() {
        Command::Agent(args) => agent::run(&args),
        Command::Addresses => addresses::configure(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
