//! `taut completions`: prints a script with which a shell asks `taut` itself for candidates.
//!
//! The shell runs `taut` with the variable [`VARIABLE`] and the words so far. Names of VMs,
//! vSwitches, port groups and attachments come from the daemon. Without a daemon there are no names
//! and no message.

use std::any::TypeId;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use serde_json::Value;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, Name, path};

use crate::client::{Client, SOCKET};
use crate::output::{self, Outcome};

/// Environment variable that makes `taut` print candidates; its value is the shell.
const VARIABLE: &str = "TAUT_COMPLETE";
/// Longest wait for the daemon. A user who types must not notice it.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

/// Prints the script that connects the shell with this program.
pub(crate) fn run(args: &CompletionsArgs) -> Outcome {
    let shell = format!("{:?}", args.shell).to_ascii_lowercase();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).expect("every listed shell has a script");
    let mut script = Vec::new();
    let written = completer.write_registration(VARIABLE, "taut", "taut", "taut", &mut script);
    written.map_err(|error| {
        ApiError::new(ErrorKind::Internal, "cannot write the script", "report this as a fault of taut")
            .because(&error)
    })?;
    output::write(&String::from_utf8_lossy(&script));
    Ok(())
}

/// Answers a shell that asks for candidates, and ends the process; returns if none asks.
pub(crate) fn answer(taut: fn() -> Command) {
    CompleteEnv::with_factory(|| with_names(taut(), "")).var(VARIABLE).bin("taut").complete();
}

/// Lets the arguments that take a name of a resource be completed with the daemon's names.
fn with_names(command: Command, parent: &str) -> Command {
    let group = command.get_name().to_owned();
    let command = command.mut_args(|arg| match names(parent, &group, &arg) {
        Some(path) => arg.add(ArgValueCandidates::new(move || candidates(path))),
        None => arg,
    });
    command.mut_subcommands(|below| with_names(below, &group))
}

/// Returns the path of the resources that an argument names.
fn names(parent: &str, command: &str, arg: &Arg) -> Option<&'static str> {
    let is_name = arg.get_value_parser().type_id() == TypeId::of::<Name>();
    match (parent, command, arg.get_id().as_str()) {
        // New names, and names inside a guest.
        ("vm" | "vswitch" | "portgroup" | "netns" | "port", "create" | "attach", "name") => None,
        (_, _, "portgroup" | "default_portgroup") | ("portgroup", _, "name") => Some(path::PORTGROUPS),
        (_, _, "vswitch") | ("vswitch", _, "name") => Some(path::VSWITCHES),
        ("vm" | "check" | "vmci", _, "name") | ("taut", "latency", "vm") => Some(path::VMS),
        ("netns", _, "name") => Some(path::NETNS),
        ("port", "show", "port") => Some(path::PORTS),
        ("port", _, "name") => Some(path::EXTERNAL_PORTS),
        ("bench", _, _) if is_name => Some(path::VMS),
        _ => None,
    }
}

/// Reads the names of all resources below a path; none if no daemon answers in time.
fn candidates(path: &'static str) -> Vec<CompletionCandidate> {
    let (done, answered) = mpsc::channel();
    let client = Client::new(socket(std::env::args()));
    // The thread ends with the process if the daemon does not answer.
    thread::spawn(move || {
        let _ = done.send(client.get::<Vec<Value>>(path).unwrap_or_default());
    });
    let all = answered.recv_timeout(PATIENCE).unwrap_or_default();
    all.iter()
        .filter_map(|one| one.get("name").or_else(|| one.get("owner"))?.as_str())
        .map(CompletionCandidate::new)
        .collect()
}

/// Returns the daemon's socket as the words on the command line and the environment name it.
fn socket(words: impl Iterator<Item = String>) -> PathBuf {
    let words: Vec<_> = words.collect();
    let joined = words.iter().find_map(|word| word.strip_prefix("--socket=").map(str::to_owned));
    let apart = words.iter().position(|word| word == "--socket").and_then(|at| words.get(at + 1).cloned());
    let named = joined.or(apart).or_else(|| std::env::var("TAUT_SOCKET").ok());
    named.unwrap_or_else(|| SOCKET.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    /// Returns the arguments that take a name and have no source of names, as `command arg`.
    fn without_source(command: &Command, parent: &str) -> Vec<String> {
        let group = command.get_name();
        let takes_name = |arg: &&Arg| arg.get_value_parser().type_id() == TypeId::of::<Name>();
        let own =
            command.get_arguments().filter(takes_name).filter(|arg| names(parent, group, arg).is_none());
        let own: Vec<_> = own.map(|arg| format!("{parent} {group} {}", arg.get_id())).collect();
        let below = command.get_subcommands().flat_map(|below| without_source(below, group));
        own.into_iter().chain(below).collect()
    }

    #[test]
    fn every_argument_that_names_a_resource_is_completed() {
        let new = [
            "vm create name",
            "vswitch create name",
            "portgroup create name",
            "netns attach name",
            "port attach name",
        ];
        assert_eq!(without_source(&Cli::command(), ""), new, "only new names have no candidates");
        with_names(Cli::command(), "").debug_assert();
    }

    #[test]
    fn the_socket_is_the_one_that_the_command_line_names() {
        let of = |line: &str| socket(line.split(' ').map(str::to_owned));
        assert_eq!(of("taut -- taut --socket /a vm show"), PathBuf::from("/a"));
        assert_eq!(of("taut -- taut vm show --socket=/b"), PathBuf::from("/b"));
    }
}
