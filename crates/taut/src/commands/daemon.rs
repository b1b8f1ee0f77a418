//! `taut daemon` and `taut shutdown`.

use clap::{Args, Subcommand};
use taut_api::route::{DaemonInfo, Shutdown, UpgradedFabric};

use crate::Outcome;
use crate::client::Client;
use crate::output::{self, Format};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Who answers: version, processes, newest revision.
    Show,
    /// Replaces the running fabric by a new process of the installed program; no frame is lost, no link goes down.
    UpgradeFabric,
}

#[derive(Debug, Args)]
pub(crate) struct ShutdownArgs {
    /// Stop every VM, detach every namespace and end the fabric first. What the store wants is kept.
    #[arg(long)]
    everything: bool,
}

pub(crate) fn run(command: &Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Show => show(client, format),
        Command::UpgradeFabric => upgrade_fabric(client, format),
    }
}

fn show(client: &Client, format: Format) -> Outcome {
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

fn upgrade_fabric(client: &Client, format: Format) -> Outcome {
    let upgraded: UpgradedFabric = client.post("/v1/upgrade-fabric", &())?;
    output::print(format, &upgraded, |upgraded| {
        let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
        output::fields(&[
            ("fabric pid", format!("{}, was {}", upgraded.new_pid, upgraded.old_pid)),
            ("ports", upgraded.ports.to_string()),
            ("prepared in", ms(upgraded.start_us + upgraded.configure_us + upgraded.prepare_us)),
            ("stood still for", ms(upgraded.gap_us)),
        ])
    });
    Ok(())
}

pub(crate) fn shutdown(args: &ShutdownArgs, client: &Client) -> Outcome {
    let _progress = Progress::start("shutting down");
    client.post_only("/v1/shutdown", &Shutdown { everything: args.everything })
}
