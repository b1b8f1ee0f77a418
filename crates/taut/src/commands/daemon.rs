//! `taut daemon` and `taut shutdown`.

use clap::{Args, Subcommand};
use taut_api::route::{DaemonInfo, Shutdown};

use crate::Outcome;
use crate::client::Client;
use crate::output::{self, Format};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Who answers: version, processes, newest revision.
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct ShutdownArgs {
    /// Stop every VM, detach every namespace and end the fabric first. What the store wants is kept.
    #[arg(long)]
    everything: bool,
}

pub(crate) fn run(command: &Command, client: &Client, format: Format) -> Outcome {
    let Command::Show = command;
    let daemon: DaemonInfo = client.get("/v1/daemon")?;
    output::print(format, &daemon, |daemon| {
        output::fields(&[
            ("version", daemon.version.clone()),
            ("pid", daemon.pid.to_string()),
            ("fabric pid", daemon.fabric_pid.map_or("none".to_owned(), |pid| pid.to_string())),
            ("fabric starts", daemon.fabric_starts.to_string()),
            ("revision", daemon.revision.to_string()),
        ])
    });
    Ok(())
}

pub(crate) fn shutdown(args: &ShutdownArgs, client: &Client) -> Outcome {
    let _progress = Progress::start("shutting down");
    client.post_only("/v1/shutdown", &Shutdown { everything: args.everything })
}
