//! `taut host`.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde_json::Value;
use taut_api::host::{HostInfo, HostSettings};
use taut_api::path;
use taut_api::route::ChangeHostSettings;
use taut_api::tune::HostTune;

use super::tune;
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show topology, memory, QEMU and accelerator, with the reason for the accelerator
    Show,
    /// List the host's settings, under ESX's names
    Settings,
    /// Restore what was changed on the host for latency-sensitive VMs: pCPUs, interrupts, C-states.
    /// The next change of any setting applies it again
    Restore,
    /// Change settings of the host at once, such as Net.CoalesceScheme=rbc Net.CoalesceParams=4000.
    /// An empty value restores the default
    Set {
        /// Settings and their new values
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Show dense mode: thresholds, readings of the last test, whether it is in force, and the
    /// ports it governs
    Tune,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) fn run(command: &Command, client: &Client, format: Format) -> Outcome {
    match command {
        Command::Show => look(client, format),
        Command::Settings => {
            output::print(format, &client.get::<HostSettings>(path::HOST_SETTINGS)?, settings);
            Ok(())
        }
        Command::Tune => {
            output::print(format, &client.get::<HostTune>(path::HOST_TUNE)?, tune::show);
            Ok(())
        }
        Command::Restore => client.post_only(path::HOST_RESTORE, &()),
        Command::Set { settings: changes } => {
            let changes = ChangeHostSettings(changes.iter().cloned().collect());
            client.patch::<HostSettings>(path::HOST_SETTINGS, &changes).map(drop)
        }
    }
}

fn settings(settings: &HostSettings) -> String {
    let all = serde_json::to_value(settings).expect("our own types are JSON");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let rows = all.as_object().into_iter().flatten().map(|(key, value)| [key.clone(), text(value)]);
    output::table(["SETTING", "VALUE"], &rows.collect::<Vec<_>>())
}

fn look(client: &Client, format: Format) -> Outcome {
    let host: HostInfo = {
        // The first answer waits for the probe that starts a vCPU.
        let _progress = Progress::start("looking at the host");
        client.get(path::HOST)?
    };
    output::print(format, &host, show);
    Ok(())
}

fn show(host: &HostInfo) -> String {
    let count = |key: fn(&taut_api::host::Cpu) -> (u32, u32)| {
        host.cpus.iter().map(key).collect::<BTreeSet<_>>().len()
    };
    let packages = count(|cpu| (cpu.package, 0));
    let cores = count(|cpu| (cpu.package, cpu.core));
    let caches = count(|cpu| (cpu.llc, 0));
    let mut text = output::fields(&[
        ("host", host.hostname.clone()),
        ("system", format!("{}, Linux {}", host.os, host.kernel)),
        ("cpu", host.cpu_model.clone()),
        (
            "topology",
            format!(
                "{} pCPUs on {cores} cores, {packages} packages, {caches} last-level caches, {} NUMA nodes",
                host.cpus.len(),
                host.nodes.len()
            ),
        ),
        (
            "memory",
            format!("{} MiB, {} MiB available", host.memory_total.as_mib(), host.memory_available.as_mib()),
        ),
        ("accelerator", format!("{}: {}", output::word(&host.accelerator.kind), host.accelerator.why)),
        (
            "qemu",
            host.qemu.as_ref().map_or("none found".to_owned(), |q| format!("{} ({})", q.version, q.path)),
        ),
    ]);
    let row = |cpu: &taut_api::host::Cpu| {
        [cpu.id, cpu.package, cpu.core, cpu.node, cpu.llc].map(|number| number.to_string())
    };
    text += "\n";
    text += &output::table(
        ["PCPU", "PACKAGE", "CORE", "NODE", "LLC"],
        &host.cpus.iter().map(row).collect::<Vec<_>>(),
    );
    text
}
