//! `taut completions`: prints a script with which a shell asks `taut` itself for candidates.
//!
//! The shell runs `taut` with the variable [`VARIABLE`] and the words so far. Names of VMs,
//! vSwitches, uplinks, port groups and attachments come from the daemon. Without a daemon there are
//! no names and no message. The host's settings are known without it.

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
use taut_api::host::{HostSetting, HostSettings};
use taut_api::{ApiError, Name, path};

use crate::bench::EndPoint;
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

/// Source of an argument's candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Names of the resources at this path.
    Names(&'static str),
    /// Names of the VMs that have a VMCI device.
    VmciDevices,
    /// End points of measurements.
    EndPoints,
    /// Network interfaces of this host.
    Interfaces,
    /// The host's settings with the words that they accept.
    Settings,
}

/// Lets the arguments that take a name of a resource or a setting be completed.
fn with_names(command: Command, parent: &str) -> Command {
    let group = command.get_name().to_owned();
    let command = command.mut_args(|arg| match source(parent, &group, &arg) {
        Some(source) => arg.add(ArgValueCandidates::new(move || source.candidates())),
        None => arg,
    });
    command.mut_subcommands(|below| with_names(below, &group))
}

/// Returns the source of an argument's candidates.
fn source(parent: &str, command: &str, arg: &Arg) -> Option<Source> {
    let value = arg.get_value_parser().type_id();
    if value == TypeId::of::<EndPoint>() {
        return Some(Source::EndPoints);
    }
    let is_name = value == TypeId::of::<Name>();
    let path = match (parent, command, arg.get_id().as_str()) {
        ("host", "set", "settings") => return Some(Source::Settings),
        ("vmci", "show", "name") => return Some(Source::VmciDevices),
        ("uplink", "add", "name") | ("netdev", "attach", "name") | ("pnic", "show" | "set", "name") => {
            return Some(Source::Interfaces);
        }
        // New names, and names inside a guest.
        ("vm" | "vswitch" | "portgroup" | "netns" | "port", "create" | "attach", "name") => None,
        (_, _, "portgroup" | "default_portgroup") | ("portgroup", _, "name") => Some(path::PORTGROUPS),
        (_, _, "vswitch") | ("vswitch", _, "name") => Some(path::VSWITCHES),
        ("vm" | "check", _, "name") | ("taut", "latency", "vm") => Some(path::VMS),
        ("netns", _, "name") => Some(path::NETNS),
        ("netdev", "show" | "set" | "detach", "name") => Some(path::NETDEVS),
        ("uplink", "show" | "set" | "remove", "name") => Some(path::UPLINKS),
        ("pnic", "reset", "name") => Some(path::PNICS),
        ("port", "show", "port") | ("taut", "capture", "port") => Some(path::PORTS),
        ("token", "delete", "name") => Some(path::TOKENS),
        ("port", _, "name") => Some(path::EXTERNAL_PORTS),
        ("bench", _, _) if is_name => Some(path::VMS),
        _ => None,
    };
    path.map(Source::Names)
}

impl Source {
    fn candidates(self) -> Vec<CompletionCandidate> {
        let words = match self {
            Self::Names(path) => read(path).iter().filter_map(name).collect(),
            Self::VmciDevices => vmci_devices(&read(path::VMS)),
            Self::EndPoints => end_points(&read(path::VMS), &read(path::NETNS)),
            Self::Interfaces => interfaces(),
            Self::Settings => settings(),
        };
        words.into_iter().map(CompletionCandidate::new).collect()
    }
}

/// Returns the name of a resource, or the owner of a port.
fn name(one: &Value) -> Option<String> {
    one.get("name").or_else(|| one.get("owner"))?.as_str().map(str::to_owned)
}

fn vmci_devices(vms: &[Value]) -> Vec<String> {
    vms.iter().filter(|vm| vm["spec"]["vmci"].is_object()).filter_map(name).collect()
}

fn end_points(vms: &[Value], attachments: &[Value]) -> Vec<String> {
    let namespaces = attachments.iter().filter_map(|netns| netns["spec"]["netns"].as_str());
    let mut namespaces: Vec<_> = namespaces.map(|netns| format!("netns/{netns}")).collect();
    // A namespace may have several attachments.
    namespaces.sort();
    namespaces.dedup();
    vms.iter().filter_map(name).chain(namespaces).chain(["host".to_owned()]).collect()
}

/// Returns the names of this host's network interfaces; none if they cannot be read.
fn interfaces() -> Vec<String> {
    let found = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Returns each setting with each of its words, or without a value if it takes numbers.
fn settings() -> Vec<String> {
    let of = |HostSetting { key, allowed, .. }: HostSetting| {
        let words: Vec<_> = allowed.split(", ").collect();
        let are_words =
            words.iter().all(|word| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        let words = if are_words { words } else { vec![""] };
        words.into_iter().map(move |word| format!("{key}={word}"))
    };
    HostSettings::ALL.into_iter().flat_map(of).collect()
}

/// Reads all resources below a path; none if no daemon answers in time.
fn read(path: &'static str) -> Vec<Value> {
    let (done, answered) = mpsc::channel();
    let client = Client::new(socket(std::env::args()));
    // The thread ends with the process if the daemon does not answer.
    thread::spawn(move || {
        let _ = done.send(client.get::<Vec<Value>>(path).unwrap_or_default());
    });
    answered.recv_timeout(PATIENCE).unwrap_or_default()
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
    use serde_json::json;

    use super::*;
    use crate::Cli;

    /// Returns the arguments that take a name and have no source of names, as `command arg`.
    fn without_source(command: &Command, parent: &str) -> Vec<String> {
        let group = command.get_name();
        let named = [TypeId::of::<Name>(), TypeId::of::<EndPoint>()];
        let takes_name = |arg: &&Arg| named.iter().any(|id| arg.get_value_parser().type_id() == *id);
        let own =
            command.get_arguments().filter(takes_name).filter(|arg| source(parent, group, arg).is_none());
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
            "token create name",
        ];
        assert_eq!(without_source(&Cli::command(), ""), new, "only new names have no candidates");
        with_names(Cli::command(), "").debug_assert();
    }

    #[test]
    fn first_hour_a_word_is_offered_only_where_it_fits() {
        let vm = |name: &str, vmci: Value| json!({ "name": name, "spec": { "vmci": vmci } });
        let vms = [vm("db1", json!({ "cid": 7 })), vm("plain", Value::Null)];
        assert_eq!(vmci_devices(&vms), ["db1"]);
        let attachment = |name: &str| json!({ "name": name, "spec": { "netns": "fw" } });
        let attachments = [attachment("fw"), attachment("fw-outside")];
        assert_eq!(end_points(&vms, &attachments), ["db1", "plain", "netns/fw", "host"]);
        let settings = settings();
        for word in ["Net.CoalesceScheme=rbc", "Net.NetTuneHostMode=dense", "Net.NetTuneInterval="] {
            assert!(settings.iter().any(|setting| setting == word), "{word}: {settings:?}");
        }
        assert!(settings.iter().all(|setting| !setting.contains(' ')), "{settings:?}");
    }

    #[test]
    fn first_hour_measurements_and_settings_have_a_source() {
        let taut = Cli::command();
        let of = |group: &str, command: &str, arg: &str| {
            let below = taut.find_subcommand(group).and_then(|group| group.find_subcommand(command)).unwrap();
            let arg = below.get_arguments().find(|found| found.get_id() == arg).unwrap();
            source(group, command, arg)
        };
        assert_eq!(of("bench", "rr", "sender"), Some(Source::EndPoints));
        assert_eq!(of("bench", "vsock", "receiver"), Some(Source::EndPoints));
        assert_eq!(of("host", "set", "settings"), Some(Source::Settings));
        assert_eq!(of("vmci", "show", "name"), Some(Source::VmciDevices));
        assert_eq!(of("vm", "show", "name"), Some(Source::Names(path::VMS)));
        let capture = taut.find_subcommand("capture").unwrap();
        let port = capture.get_arguments().find(|found| found.get_id() == "port").unwrap();
        assert_eq!(source("taut", "capture", port), Some(Source::Names(path::PORTS)));
    }

    #[test]
    fn the_socket_is_the_one_that_the_command_line_names() {
        let of = |line: &str| socket(line.split(' ').map(str::to_owned));
        assert_eq!(of("taut -- taut --socket /a vm show"), PathBuf::from("/a"));
        assert_eq!(of("taut -- taut vm show --socket=/b"), PathBuf::from("/b"));
    }
}
