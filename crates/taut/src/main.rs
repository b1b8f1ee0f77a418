//! `taut`, the command line: sends requests to `tautd` over its Unix socket and prints the answers.

mod agent;
mod bench;
mod client;
mod commands;
mod output;
mod progress;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use taut_api::ApiError;

use crate::client::Client;
use crate::output::{Format, Output};

/// Run virtual machines on a taut vSwitch, and measure them
#[derive(Debug, Parser)]
#[command(name = "taut", version, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    /// Unix socket of tautd
    #[arg(
        long,
        global = true,
        env = "TAUT_SOCKET",
        default_value = client::SOCKET,
        value_name = "PATH"
    )]
    socket: PathBuf,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// Do not print what a change has put in force
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Manage virtual machines
    #[command(subcommand)]
    Vm(commands::vm::Command),
    /// Manage virtual switches
    #[command(subcommand)]
    Vswitch(commands::vswitch::Command),
    /// Manage port groups of virtual switches
    #[command(subcommand)]
    Portgroup(commands::portgroup::Command),
    /// Connect virtual switches with the outside
    #[command(subcommand)]
    Uplink(commands::uplink::Command),
    /// Show and set the network cards of this host: speed, rings, channels, interrupts, offloads
    #[command(subcommand)]
    Pnic(commands::pnic::Command),
    /// Attach network namespaces to port groups
    #[command(subcommand)]
    Netns(commands::netns::Command),
    /// Put interfaces of this host, such as TAP devices of other VMs, on port groups
    #[command(subcommand)]
    Netdev(commands::netdev::Command),
    /// Show ports and their counters; attach vhost-user front ends that taut did not start
    #[command(subcommand)]
    Port(commands::port::Command),
    /// Show averages of what ports send, receive and drop, over any period
    #[command(subcommand)]
    Net(commands::net::Command),
    /// Capture the frames of a port, as lines or as pcapng
    Capture(commands::capture::Args),
    /// Show VMCI devices and their counters
    #[command(subcommand)]
    Vmci(commands::vmci::Command),
    /// Print the event log, oldest first; a long message is cut, and `-o json` has all of it
    Events(commands::events::Args),
    /// Print who changed what, or check that record
    Audit(commands::audit::Args),
    /// Make, list and delete tokens for access over TCP
    #[command(subcommand)]
    Token(commands::token::Command),
    /// Measure between VMs, microguests, network namespaces and the host
    #[command(subcommand)]
    Bench(bench::Command),
    /// Show and change the host: topology, accelerator, settings, dense mode
    #[command(subcommand)]
    Host(commands::host::Command),
    /// Measure how much of its pCPUs a VM really gets, and what disturbs it
    Latency(commands::latency::Args),
    /// Watch the host, its VMs and ports, as with esxtop; needs no daemon except for ports
    Top(commands::top::Args),
    /// Check host, VM or guest against best practices
    #[command(subcommand)]
    Check(commands::check::Command),
    /// Show the daemon, or upgrade the running fabric
    #[command(subcommand)]
    Daemon(commands::daemon::Command),
    /// End the daemon; VMs and traffic continue unless --everything is given
    Shutdown(commands::daemon::ShutdownArgs),
    /// Print a script for a shell that completes commands, options and names
    Completions(commands::completions::CompletionsArgs),
    /// Write manual pages, one file per command, and those of tautd and taut-guest
    Man(commands::man::ManArgs),
}

fn main() -> ExitCode {
    commands::completions::answer(Cli::command);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let arguments: Vec<_> = std::env::args().skip(1).collect();
            return usage::explain(error, &Cli::command(), &arguments);
        }
    };
    let format = cli.output;
    match run(cli) {
        Ok(status) => status,
        Err(error) => {
            output::print_error(format, &error);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, ApiError> {
    let client = Client::new(cli.socket);
    let format = cli.output;
    let out = Output { format, quiet: cli.quiet };
    let outcome = match cli.command {
        Command::Vm(command) => commands::vm::run(command, &client, out),
        Command::Vswitch(command) => commands::vswitch::run(command, &client, out),
        Command::Portgroup(command) => commands::portgroup::run(command, &client, out),
        Command::Uplink(command) => commands::uplink::run(command, &client, out),
        Command::Pnic(command) => commands::pnic::run(command, &client, out),
        Command::Netns(command) => commands::netns::run(command, &client, out),
        Command::Netdev(command) => commands::netdev::run(command, &client, out),
        Command::Port(command) => commands::port::run(command, &client, out),
        Command::Net(command) => commands::net::run(command, &client, out),
        Command::Capture(args) => commands::capture::run(&args, &client, out),
        Command::Vmci(command) => commands::vmci::run(&command, &client, format),
        Command::Events(args) => commands::events::run(&args, &client, format),
        Command::Audit(args) => commands::audit::run(&args, &client, format),
        Command::Token(command) => commands::token::run(command, &client, out),
        Command::Bench(command) => bench::run(command, &client, format),
        Command::Host(command) => commands::host::run(&command, &client, out),
        Command::Latency(args) => commands::latency::run(&args, &client, format),
        Command::Top(args) => commands::top::run(&args, client),
        // The exit status of `taut check` is its answer.
        Command::Check(command) => return Ok(commands::check::run(&command, &client, format)),
        Command::Daemon(command) => commands::daemon::run(&command, &client, out),
        Command::Shutdown(args) => commands::daemon::shutdown(&args, &client, out),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args, Cli::command()),
    };
    outcome.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Arg;

    use super::*;

    /// Returns the names of the command's own options and of those of all commands below it.
    fn own_options(command: &clap::Command) -> Vec<String> {
        let own = command.get_arguments().filter(|arg| !arg.is_global_set()).map(name).collect::<Vec<_>>();
        command.get_subcommands().flat_map(own_options).chain(own).collect()
    }

    fn name(arg: &Arg) -> String {
        arg.get_id().to_string()
    }

    /// Returns whether the words after `taut` in a text are a command with options that exist.
    fn is_a_command(words: &str) -> bool {
        let mut command = Cli::command();
        command.build();
        let mut command = &command;
        for word in words.split_whitespace() {
            if let Some(option) = word.strip_prefix("--") {
                let long = option.split('=').next().unwrap_or(option);
                if !command.get_arguments().any(|arg| arg.get_long() == Some(long)) {
                    return false;
                }
            } else if command.has_subcommands() {
                let Some(found) = command.find_subcommand(word) else { return false };
                command = found;
            }
        }
        true
    }

    /// Returns all Rust files below a folder.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let below = folders.iter().flat_map(|folder| sources(folder));
        below
            .chain(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs")))
            .collect()
    }

    #[test]
    fn every_command_that_is_named_to_users_exists() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let readme = std::fs::read_to_string(crates.join("../README.md")).unwrap();
        // The measurements have no users' texts, and write options before commands.
        let texts = sources(crates).into_iter().filter(|file| !file.starts_with(crates.join("goals")));
        let texts = texts.map(|file| std::fs::read_to_string(file).unwrap());
        let mut named = Vec::new();
        for text in texts.chain([readme]) {
            for rest in text.split("`taut ").skip(1) {
                let words = rest.split(['`', ';', '…', '"', '\n', '(']).next().unwrap_or_default();
                named.push(words.to_owned());
            }
        }
        assert!(named.len() > 50, "{named:?}");
        named.retain(|words| !is_a_command(words));
        assert!(named.is_empty(), "no such commands: {named:?}");
        assert!(!is_a_command("help vm create") && !is_a_command("vm create --fiel"));
    }

    #[test]
    fn no_command_takes_a_global_options_name() {
        let cli = Cli::command();
        let global: Vec<_> = cli.get_arguments().filter(|arg| arg.is_global_set()).map(name).collect();
        assert!(global.contains(&"socket".to_owned()), "{global:?}");
        let own = own_options(&cli);
        assert!(own.contains(&"socket_size".to_owned()));
        let taken: Vec<_> = own.iter().filter(|name| global.contains(name)).collect();
        assert!(taken.is_empty(), "{taken:?}");
        cli.debug_assert();
    }
}
