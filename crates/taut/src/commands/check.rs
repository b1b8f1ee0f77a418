//! `taut check`: best practices on this host, for a VM, in this guest (SPEC BP).
//!
//! Exit status, for scripts: 0 nothing is bad, 1 something is, 2 it could not be found out.

mod outside;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use taut_api::error::ErrorKind;
use taut_api::path;
use taut_api::route::DaemonInfo;
use taut_api::{ApiError, Name};
use taut_host::check::change::{self, Changed};
use taut_host::ledger::Ledger;
use taut_plan::checklist::{self, Profile, Report};

use crate::client::Client;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// This host, or a captured tree of another. Needs no daemon; with one, what its VMs were promised is looked at as well.
    Host(HostArgs),
    /// A VM, from outside.
    Vm {
        /// The VM.
        name: Name,
        /// What it is for: latency, throughput or dense.
        #[arg(long, default_value_t, value_name = "PROFILE")]
        profile: Profile,
    },
    /// A guest, from inside: the one of a VM, by its agent, or the machine that this runs on. `taut-guest check` does the
    /// same where only that is installed.
    Guest {
        /// The VM; none: this machine.
        name: Option<Name>,
        /// What it is for: latency, throughput or dense.
        #[arg(long, default_value_t, value_name = "PROFILE")]
        profile: Profile,
        /// Where its file system starts.
        #[arg(long, default_value = "/", value_name = "DIR", conflicts_with = "name")]
        root: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// What it is for: latency, throughput or dense.
    #[arg(long, default_value_t, value_name = "PROFILE")]
    profile: Profile,
    /// Where its file system starts: a folder for the captured tree of another machine.
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// Change what can be changed while the host runs. What is replaced is recorded first; a boot undoes it too.
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Give everything that --apply changed the value that it had.
    #[arg(long)]
    undo: bool,
    /// Where the ledger of changed settings is, below --root [default: where tautd has it, if it runs; else /var/lib/taut].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// tautd's own default.
const STATE_DIR: &str = "/var/lib/taut";
/// Something could not be found out.
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
            eprintln!("error: {error}");
            ExitCode::from(NOT_READ)
        }
    }
}

/// Prints the report. Is everything well?
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
        // The report goes to standard output, and is one document.
        eprint!("{}", told("changed", &changed));
        report = look(args, client)?;
    }
    Ok(show(format, &report) && all_done)
}

/// The one ledger of the host: the daemon's, wherever that is.
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
    // A captured tree has nothing to do with the daemon that runs here.
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
    let done = changed.done.iter().map(|path| format!("{verb}: /{path}\n"));
    let failed = changed.failed.iter().map(|(path, why)| format!("not {verb}: /{path}: {why}\n"));
    let held = changed.held.iter().map(|(path, who)| format!("not {verb} while {who} hold it: /{path}\n"));
    let lines: String = done.chain(held).chain(failed).collect();
    if lines.is_empty() { format!("nothing {verb}\n") } else { lines }
}

fn unreadable(root: &Path, error: &(dyn Error + 'static)) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("{} is not the file system of a Linux that can be read", root.display()),
        "--root takes a folder with the machine's /sys and /proc below it",
    )
    .because(error)
}

fn no_ledger(error: &(dyn Error + 'static)) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "nothing was changed: what is replaced has to be recorded first",
        "run it as root, or name a folder that can be written with --state-dir",
    )
    .because(error)
}

#[cfg(test)]
mod tests;
