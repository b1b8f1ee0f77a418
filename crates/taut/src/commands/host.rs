//! `taut host`.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde_json::Value;
use taut_api::host::{HostInfo, HostSetting, HostSettings};
use taut_api::path;
use taut_api::route::ChangeHostSettings;
use taut_api::statistics::{HostStatistics, Period};
use taut_api::tune::HostTune;
use taut_api::word::counted;

use super::tune;
use crate::client::Client;
use crate::output::{self, Format, Outcome, Output};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show topology, memory, QEMU and accelerator, with the reason for the accelerator
    Show,
    /// Show averages of pCPUs, memory and swapping over a period
    Stats {
        /// The period before now: a number of seconds, or a number with s, m, h or d, up to 366d
        #[arg(long, default_value_t)]
        period: Period,
    },
    /// List the host's settings, under ESX's names, with their defaults and allowed values
    #[command(after_long_help = described())]
    Settings,
    /// Restore what was changed on the host for latency-sensitive VMs: pCPUs, interrupts, C-states.
    /// The next change of any setting applies it again
    Restore,
    /// Change settings of the host at once, such as Net.CoalesceScheme=rbc Net.CoalesceParams=4000.
    /// The value default, or an empty one, restores the default
    #[command(after_long_help = described())]
    Set {
        /// Settings and their new values
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Show dense mode: thresholds, readings of the last test, when the next one is, whether it is
    /// in force, and the ports it governs. Dense mode saves CPU time and costs response time: a
    /// request and its answer wait for up to 16 ms
    Tune,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) fn run(command: &Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Show => look(client, out.format),
        Command::Stats { period } => {
            let path = format!("{}?period={period}", path::HOST_STATISTICS);
            output::print(out.format, &client.get::<HostStatistics>(&path)?, statistics);
            Ok(())
        }
        Command::Settings => {
            output::print(out.format, &client.get::<HostSettings>(path::HOST_SETTINGS)?, settings);
            Ok(())
        }
        Command::Tune => {
            output::print(out.format, &client.get::<HostTune>(path::HOST_TUNE)?, tune::show);
            Ok(())
        }
        Command::Restore => {
            client.post_only(path::HOST_RESTORE, &())?;
            let restored = serde_json::json!({ "restored": true });
            out.changed(&restored, |_| "host: every file that taut changed is as before".to_owned());
            Ok(())
        }
        Command::Set { settings: changes } => {
            let changes = ChangeHostSettings(changes.iter().cloned().collect());
            let now: HostSettings = client.patch(path::HOST_SETTINGS, &changes)?;
            out.changed(&now, |now| in_force(now, changes.0.keys()));
            Ok(())
        }
    }
}

/// Renders averages of the host. Values that the kernel does not tell are left out.
fn statistics(host: &HostStatistics) -> String {
    let percent = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1} %"));
    let mib = |value: Option<f64>| {
        value.map_or(String::new(), |bytes| format!("{:.0} MiB", bytes / f64::from(1 << 20)))
    };
    let rate = |value: Option<f64>| value.map_or(String::new(), |bytes| format!("{:.2} MB/s", bytes / 1e6));
    output::fields(&[
        ("seconds", ((host.covered_ms + 500) / 1000).to_string()),
        ("cpu busy", percent(host.cpu_busy_percent)),
        ("cpu idle", percent(host.cpu_idle_percent)),
        ("cpu stolen", percent(host.cpu_steal_percent)),
        ("some task waited for a cpu", percent(host.cpu_waiting_percent)),
        ("memory used", mib(host.memory_used_bytes)),
        ("memory available", mib(host.memory_available_bytes)),
        ("swap used", mib(host.swap_used_bytes)),
        ("read from swap", rate(host.swap_in_bytes_per_s)),
        ("written to swap", rate(host.swap_out_bytes_per_s)),
    ])
}

/// Renders each setting with its value, default, allowed values and effect.
fn settings(settings: &HostSettings) -> String {
    let (now, default) = (values(settings), values(&HostSettings::default()));
    let row = |HostSetting { key, allowed, effect }: HostSetting| {
        [key.to_owned(), text(&now[key]), text(&default[key]), allowed.to_owned(), effect.to_owned()]
    };
    let rows = HostSettings::ALL.map(row);
    output::table(["SETTING", "VALUE", "DEFAULT", "ALLOWED", "EFFECT"], &rows)
}

/// Describes all settings, for the help.
fn described() -> String {
    let default = values(&HostSettings::default());
    let row = |HostSetting { key, allowed, effect }: HostSetting| {
        [key.to_owned(), text(&default[key]), allowed.to_owned(), effect.to_owned()]
    };
    let rows = HostSettings::ALL.map(row);
    format!("Settings:\n{}", output::table(["SETTING", "DEFAULT", "ALLOWED", "EFFECT"], &rows))
}

fn values(settings: &HostSettings) -> Value {
    serde_json::to_value(settings).expect("our own types are JSON")
}

/// Renders a value; an empty one is shown as two quotes.
fn text(value: &Value) -> String {
    match value.as_str() {
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

/// Renders the given settings in one line; an empty value is shown as two quotes.
fn in_force<'a>(settings: &HostSettings, keys: impl Iterator<Item = &'a String>) -> String {
    let all = serde_json::to_value(settings).expect("our own types are JSON");
    let each = keys.map(|key| match all[key].as_str() {
        Some("") | None => format!("{key}=\"\""),
        Some(value) => format!("{key}={value}"),
    });
    format!("host: {}", each.collect::<Vec<_>>().join(", "))
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
                "{} on {}, {}, {}, {}",
                counted(host.cpus.len(), "pCPU"),
                counted(cores, "core"),
                counted(packages, "package"),
                counted(caches, "last-level cache"),
                counted(host.nodes.len(), "NUMA node")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_leave_out_what_the_kernel_does_not_tell() {
        let host = HostStatistics {
            covered_ms: 300_400,
            to_ms: 0,
            cpu_busy_percent: Some(25.04),
            cpu_idle_percent: Some(74.96),
            cpu_steal_percent: Some(0.0),
            cpu_waiting_percent: None,
            memory_used_bytes: Some(3.0 * 1024_f64.powi(3)),
            memory_available_bytes: Some(1024_f64.powi(3)),
            swap_used_bytes: Some(0.0),
            swap_in_bytes_per_s: Some(1_234_567.0),
            swap_out_bytes_per_s: Some(0.0),
        };
        insta::assert_snapshot!(statistics(&host), @r"
        seconds                     300
        cpu busy                    25.0 %
        cpu idle                    75.0 %
        cpu stolen                  0.0 %
        memory used                 3072 MiB
        memory available            1024 MiB
        swap used                   0 MiB
        read from swap              1.23 MB/s
        written to swap             0.00 MB/s
        ");
    }

    #[test]
    fn settings_are_shown_with_their_defaults_and_allowed_values() {
        let dense = serde_json::json!({ "Net.NetTuneInterval": "5", "Net.Vmxnet3SwLRO": "0" });
        let table = settings(&serde_json::from_value(dense).unwrap());
        insta::assert_snapshot!(table, @r#"
        SETTING               VALUE     DEFAULT   ALLOWED                                     EFFECT
        Net.CoalesceScheme    rbc       rbc       disabled, static, rbc, adapt                interrupt coalescing of cards that follow the host
        Net.CoalesceParams    ""        ""        static: 1 to 64; rbc: 100 to 100000; empty  packets (64) or interrupts a second (4000) of the scheme
        Net.Vmxnet3SwLRO      0         1         0, 1                                        large receive offload, off or on, for cards that enable it
        Net.NetTuneHostMode   default   default   default, dense                              dense mode: never, or while the load reaches all thresholds
        Net.NetTuneInterval   5         60        1 to 3600                                   seconds between two tests of the load
        Net.NetTuneThreshold  1n 2n 50  1n 2n 50  VMS VCPUS PERCENT                           running VMs, their vCPUs, use of all pCPUs; 2n is twice the pCPUs
        "#);
        assert!(described().contains("disabled, static, rbc, adapt"), "{}", described());
    }
}
