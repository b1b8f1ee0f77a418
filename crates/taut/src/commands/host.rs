//! `taut host`.

use std::collections::BTreeSet;

use clap::Subcommand;
use taut_api::host::HostInfo;

use crate::Outcome;
use crate::client::Client;
use crate::output::{self, Format};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Topology, memory, QEMU, and how vCPUs run here with the observation behind it.
    Show,
}

pub(crate) fn run(command: &Command, client: &Client, format: Format) -> Outcome {
    let Command::Show = command;
    let host: HostInfo = {
        // The first answer waits for the probe that starts a vCPU.
        let _progress = Progress::start("looking at the host");
        client.get("/v1/host")?
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
