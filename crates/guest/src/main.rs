//! The binary for inside a VM: workload end points and agent, and process 1 of a directly booted guest.

mod addresses;
mod agent;
mod check;
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
    /// Best practices, seen from inside: what is set otherwise, why that matters. Exit status 1 when something is bad.
    Check(check::CheckArgs),
}

fn main() -> ExitCode {
    if init::is_wanted() {
        init::run();
    }
    let outcome = match Command::parse() {
        Command::Agent(args) => agent::run(&args),
        Command::Addresses => addresses::configure(),
        Command::Check(args) => return check::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
