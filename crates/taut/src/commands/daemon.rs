//! `taut daemon` and `taut shutdown`.

use std::time::Duration;

use clap::{Args, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::path;
use taut_api::route::{CallerInfo, DaemonInfo, Shutdown, UpgradedFabric, WorkerInfo};

use crate::client::Client;
use crate::output::{self, Format, Outcome, Output};
use crate::progress::Progress;

/// Longest time between the daemon's answer and its end. It may still be probing KVM.
const END_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the versions and processes of daemon and fabric, the newest revision and the fabric's
    /// workers
    Show,
    /// Replace the running fabric by a new process of the installed program. Virtio cards lose no
    /// frame and no link, VMCI connections go on; emulated cards are reconnected
    UpgradeFabric,
}

#[derive(Debug, Args)]
pub(crate) struct ShutdownArgs {
    /// Stop every VM, detach every namespace and end the fabric first. The stored settings are kept
    #[arg(long)]
    everything: bool,
}

pub(crate) fn run(command: &Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Show => show(client, out.format),
        Command::UpgradeFabric => upgrade_fabric(client, out),
    }
}

fn show(client: &Client, format: Format) -> Outcome {
    let daemon: DaemonInfo = client.get(path::DAEMON)?;
    output::print(format, &daemon, |daemon| {
        let mut text = output::fields(&[
            ("version", daemon.version.clone()),
            ("pid", daemon.pid.to_string()),
            ("fabric pid", daemon.fabric_pid.map_or("none".to_owned(), |pid| pid.to_string())),
            ("fabric version", daemon.fabric_version.clone().unwrap_or("not known".to_owned())),
            ("fabric starts", daemon.fabric_starts.to_string()),
            ("revision", daemon.revision.to_string()),
            ("state", daemon.state_dir.clone()),
            ("tcp", daemon.remote.as_ref().map(|tcp| tcp.address.to_string()).unwrap_or_default()),
            ("sha256", daemon.remote.as_ref().map(|tcp| tcp.fingerprint.clone()).unwrap_or_default()),
            ("you", daemon.caller.as_ref().map(you).unwrap_or_default()),
        ]);
        text += "\n";
        text += &workers(&daemon.workers);
        text
    });
    Ok(())
}

/// Describes the caller.
fn you(you: &CallerInfo) -> String {
    match (&you.token, you.uid) {
        (Some(token), _) => format!("token {token}, {}", you.role),
        (None, Some(uid)) => format!("user {uid}, {}", you.role),
        (None, None) => you.role.to_string(),
    }
}

/// Renders the fabric's workers with their counters since the fabric started.
fn workers(workers: &[WorkerInfo]) -> String {
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let row = |worker: &WorkerInfo| {
        let counters = &worker.counters;
        [
            worker.worker.to_string(),
            worker.cpu.map_or("any".to_owned(), |cpu| cpu.to_string()),
            worker.mode.clone(),
            counters.sleeps.to_string(),
            seconds(counters.sleep_ns),
            seconds(counters.busy_ns),
            counters.bursts.to_string(),
            counters.empty_rounds.to_string(),
            counters.given.to_string(),
        ]
    };
    output::table(
        ["WORKER", "PCPU", "MODE", "SLEEPS", "ASLEEP", "BUSY", "BURSTS", "EMPTY ROUNDS", "GIVEN AWAY"],
        &workers.iter().map(row).collect::<Vec<_>>(),
    )
}

fn upgrade_fabric(client: &Client, out: Output) -> Outcome {
    let upgraded: UpgradedFabric = client.post(path::UPGRADE_FABRIC, &())?;
    out.changed(&upgraded, |upgraded| {
        let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
        output::fields(&[
            ("fabric pid", format!("{}, was {}", upgraded.new_pid, upgraded.old_pid)),
            ("ports", upgraded.ports.to_string()),
            ("prepared in", ms(upgraded.start_us + upgraded.configure_us + upgraded.prepare_us)),
            ("service gap", ms(upgraded.gap_us)),
        ])
        .trim_end()
        .to_owned()
    });
    Ok(())
}

pub(crate) fn shutdown(args: &ShutdownArgs, client: &Client, out: Output) -> Outcome {
    end(args, client)?;
    let ended = serde_json::json!({ "ended": true, "everything": args.everything });
    out.changed(&ended, |_| {
        if args.everything {
            "all VMs, the fabric and tautd have ended".to_owned()
        } else {
            "tautd has ended; VMs and traffic go on".to_owned()
        }
    });
    Ok(())
}

/// Requests the daemon's end and waits for it.
fn end(args: &ShutdownArgs, client: &Client) -> Outcome {
    let _progress = Progress::start("shutting down");
    let process = client.process()?;
    client.post_only(path::SHUTDOWN, &Shutdown { everything: args.everything })?;
    // The daemon answers while it still runs. Callers may remove its directories once this returns,
    // so wait for its end.
    let Some(process) = process else { return Ok(()) };
    let patience = Timespec { tv_sec: END_PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience));
    if ended.is_ok_and(|ended| ended > 0) {
        return Ok(());
    }
    let message =
        format!("the daemon acknowledged the shutdown, but still runs after {} s", END_PATIENCE.as_secs());
    Err(ApiError::new(ErrorKind::Unavailable, message, "read its log, then kill the process tautd"))
}
