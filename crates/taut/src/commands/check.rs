//! `taut check`: compares host, VM or guest with best practices.
//!
//! The exit status is for scripts: 0 if no finding is bad, 1 if one is, 2 if the check itself
//! failed.

mod outside;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use taut_api::error::ErrorKind;
use taut_api::path;
use taut_api::route::DaemonInfo;
use taut_api::{ApiError, Name};
use taut_host::check::change::{self, Changed, ChangedSetting};
use taut_host::ledger::Ledger;
use taut_plan::checklist::{self, Profile, Report};

use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check this host, or a captured file tree of another. Works without a daemon; with one, its
    /// VMs' reservations are checked as well
    Host(HostArgs),
    /// Check a VM from outside
    Vm {
        /// Name of the VM
        name: Name,
        /// Purpose to check for: latency, throughput or dense [default: latency for a
        /// latency-sensitive VM, else dense while dense mode is on, else throughput]
        #[arg(long, value_name = "PROFILE")]
        profile: Option<Profile>,
    },
    /// Check a guest from inside: a VM through its agent, or this machine. Where only taut-guest is
    /// installed, `taut-guest check` does the same
    Guest {
        /// Name of the VM; without it, this machine
        name: Option<Name>,
        /// Purpose to check for: latency, throughput or dense
        #[arg(long, default_value_t, value_name = "PROFILE")]
        profile: Profile,
        /// Root of the file tree to check
        #[arg(long, default_value = "/", value_name = "DIR", conflicts_with = "name")]
        root: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Purpose to check for: latency, throughput or dense
    #[arg(long, default_value_t, value_name = "PROFILE")]
    profile: Profile,
    /// Root of the file tree to check: / or the folder of a captured tree
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// Change settings that can be changed while the host runs, and print each file and each
    /// setting of a network card with its old and new value. Old values are recorded first; a
    /// reboot also undoes the changes
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Restore the old value of everything that --apply changed
    #[arg(long)]
    undo: bool,
    /// Folder of the ledger of changed settings, below --root [default: that of the running tautd,
    /// else /var/lib/taut]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Default state directory of `tautd`.
const STATE_DIR: &str = "/var/lib/taut";
/// Exit status of a check that failed.
const NOT_READ: u8 = 2;

pub(crate) fn run(command: &Command, client: &Client, format: Format) -> ExitCode {
    let outcome = match command {
        Command::Host(args) => host(args, client, format),
        Command::Vm { name, profile } => {
            outside::vm(client, name, *profile).map(|report| show(format, &report))
        }
        Command::Guest { name: Some(name), profile, .. } => outside::guest(client, name, *profile, format),
        Command::Guest { profile, root, .. } => guest(root, *profile).map(|report| show(format, &report)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::print_error(format, &error);
            ExitCode::from(NOT_READ)
        }
    }
}

/// Prints the report and returns whether no finding is bad.
fn show(format: Format, report: &Report) -> bool {
    output::print(format, report, ToString::to_string);
    report.summary.bad == 0
}

fn host(args: &HostArgs, client: &Client, format: Format) -> Result<bool, ApiError> {
    let ledger = ledger(args, client)?;
    if args.undo {
        let changed = change::undo(&ledger).map_err(|error| no_ledger(&error))?;
        output::print(format, &changed, |changed| told("given back", changed));
        return Ok(changed.failed.is_empty());
    }
    let mut report = look(args, client)?;
    let mut all_done = true;
    if args.apply {
        let changed = change::apply(&ledger, &report.changes()).map_err(|error| no_ledger(&error))?;
        all_done = changed.failed.is_empty();
        // Standard output carries only the report, which is one document.
        eprint!("{}", told("changed", &changed));
        report = look(args, client)?;
    }
    Ok(show(format, &report) && all_done)
}

/// Opens the host's ledger, which the daemon shares: in the daemon's state directory if it runs.
fn ledger(args: &HostArgs, client: &Client) -> Result<Ledger, ApiError> {
    let folder = match &args.state_dir {
        Some(folder) => folder.clone(),
        None if args.root == Path::new("/") => match client.get::<DaemonInfo>(path::DAEMON) {
            Err(error) if error.kind == ErrorKind::Unavailable => PathBuf::from(STATE_DIR),
            daemon => PathBuf::from(daemon?.state_dir),
        },
        None => PathBuf::from(STATE_DIR),
    };
    Ok(Ledger::new(&args.root, &args.root.join(folder.strip_prefix("/").unwrap_or(&folder))))
}

fn look(args: &HostArgs, client: &Client) -> Result<Report, ApiError> {
    let mut facts = taut_host::check::host(&args.root).map_err(|error| unreadable(&args.root, &error))?;
    // A captured tree is unrelated to the daemon that runs here.
    if args.root == Path::new("/") {
        facts.commitment = outside::commitment(client)?;
    }
    Ok(checklist::host(&facts, args.profile))
}

fn guest(root: &Path, profile: Profile) -> Result<Report, ApiError> {
    let facts = taut_host::check::guest(root).map_err(|error| unreadable(root, &error))?;
    Ok(checklist::guest(&facts, profile))
}

fn told(verb: &str, changed: &Changed) -> String {
    let done = changed.done.iter().map(|ChangedSetting { setting, from, to }| {
        if from == to {
            format!("{verb}: {setting}: {to}\n")
        } else {
            format!("{verb}: {setting}: {from} → {to}\n")
        }
    });
    let failed = changed.failed.iter().map(|(setting, why)| format!("not {verb}: {setting}: {why}\n"));
    let held =
        changed.held.iter().map(|(setting, who)| format!("not {verb} while {who} hold it: {setting}\n"));
    let lines: String = done.chain(held).chain(failed).collect();
    if lines.is_empty() { format!("nothing {verb}\n") } else { lines }
}

fn unreadable(root: &Path, error: &(dyn Error + 'static)) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("{} is not a readable Linux file tree", root.display()),
        "--root takes a folder that contains the machine's /sys and /proc",
    )
    .because(error)
}

fn no_ledger(error: &(dyn Error + 'static)) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "nothing was changed, because the old values cannot be recorded",
        "run taut as root, or give a writable folder with --state-dir",
    )
    .because(error)
}

#[cfg(test)]
mod tests;
