//! The program for inside a VM: the agent, and process 1 of a directly booted guest.

mod addresses;
mod agent;
mod check;
mod init;
mod install;
mod patience;
mod port;
mod queue_pairs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

/// taut's program for inside a VM.
#[derive(Debug, Parser)]
#[command(name = "taut-guest", version)]
enum Command {
    /// Answer the host's calls: addresses, load generators, CPU time.
    Agent(agent::AgentArgs),
    /// Give the interfaces the IP addresses that the VM's definition names.
    Addresses,
    /// Print a systemd unit that starts the agent as /usr/local/sbin/taut-guest with the guest.
    Unit,
    /// Check this guest's settings against best practices.
    ///
    /// The report states each setting that differs, and why it matters. Exit status 1 if something
    /// is bad.
    Check(check::CheckArgs),
    /// Install the agent, the preload library and the permission for queue pairs in this VM.
    ///
    /// May be repeated. Prints what it has changed.
    Install(install::InstallArgs),
    /// Print the memory for queue pairs of this VM.
    QueuePairs(queue_pairs::QueuePairsArgs),
    /// Write this program's manual pages to a folder.
    Man {
        /// Folder to write them to
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    if init::is_wanted() {
        init::run();
    }
    let outcome = match Command::parse() {
        Command::Agent(args) => agent::run(&args),
        Command::Addresses => addresses::configure(),
        Command::Unit => {
            print!("{}", install::UNIT);
            Ok(())
        }
        Command::Check(args) => return check::run(&args),
        Command::Install(args) => install::run(&args),
        Command::QueuePairs(args) => return queue_pairs::run(&args),
        Command::Man { dir } => clap_mangen::generate_to(Command::command(), dir),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
