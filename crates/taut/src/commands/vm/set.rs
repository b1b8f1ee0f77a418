//! `taut vm set`: settings of a VM that exists.

use clap::{ArgGroup, Args};
use taut_api::Name;
use taut_api::coalescing::NicCoalescing;
use taut_api::placement::Numbers;
use taut_api::resources::{CpuReservation, MemoryReservation};
use taut_api::route::{ChangeLatency, ChangeNic, ChangeResources, ChangeVmci, Vm};
use taut_api::shares::{CpuLimit, MemoryLimit, Shares};
use taut_api::vm::LatencySensitivity;

use super::machine::{self, Machine};
use crate::Outcome;
use crate::client::Client;

/// What is set, and of which VM.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("setting").required(true).multiple(true)))]
pub(crate) struct Settings {
    /// Its name.
    name: Name,
    /// The card, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    nic: usize,
    /// Moderation of the card's interrupts and kicks: disabled, static[:PACKETS], rbc[:INTERRUPTS_PER_SECOND],
    /// adapt; default: the host's.
    #[arg(long, value_name = "SCHEME", group = "setting")]
    coalescing: Option<NicCoalescing>,
    /// Merge TCP segments for the card (large receive offload)?
    #[arg(long, value_name = "on|off", value_parser = on_or_off, group = "setting")]
    lro: Option<bool>,
    /// Latency sensitivity, in force at once: normal, high (exclusive pCPUs, siblings idle) or high-ht (two vCPUs share a core).
    #[arg(long, value_name = "LEVEL", value_parser = level, group = "setting")]
    latency_sensitivity: Option<LatencySensitivity>,
    /// CPU kept for it: full, none, a percentage such as 50%, or MHz such as 2400MHz.
    #[arg(long, value_name = "AMOUNT", group = "setting")]
    cpu_reservation: Option<CpuReservation>,
    /// Memory kept for it: full, none, or a size.
    #[arg(long, value_name = "SIZE", group = "setting")]
    memory_reservation: Option<MemoryReservation>,
    /// How much it counts when there is too little CPU, in force at once: low, normal, high, or a number.
    #[arg(long, value_name = "SHARES", group = "setting")]
    cpu_shares: Option<Shares>,
    /// The most CPU that it gets, in force at once: none, a percentage such as 50%, or MHz.
    #[arg(long, value_name = "AMOUNT", group = "setting")]
    cpu_limit: Option<CpuLimit>,
    /// How much it counts when there is too little memory, in force at once: low, normal, high, or a number.
    #[arg(long, value_name = "SHARES", group = "setting")]
    memory_shares: Option<Shares>,
    /// The most memory that it gets, in force at once: none, or a size.
    #[arg(long, value_name = "SIZE", group = "setting")]
    memory_limit: Option<MemoryLimit>,
    /// How much its disk counts beside others' while their device is busy, in force at once: low, normal, high, or a number.
    #[arg(long, value_name = "SHARES", group = "setting")]
    disk_shares: Option<Shares>,
    #[command(flatten)]
    machine: Machine,
    /// NUMA nodes of the host for its vCPUs and memory, which is moved there while it runs, unless on huge pages: any, or such as 0-1.
    #[arg(long, value_name = "NODES", group = "setting")]
    numa_nodes: Option<Numbers>,
    /// pCPUs that its vCPUs run on, exclusive or not, in force at once: any, or such as 2,4-7.
    #[arg(long, value_name = "CPUS", group = "setting")]
    cpu_affinity: Option<Numbers>,
    /// Most vCPUs on a virtual NUMA node, from its next start on; 0 for no such limit.
    #[arg(long, value_name = "N", group = "setting")]
    vcpus_per_node: Option<u32>,
    /// Give it a VMCI device, from its next start on.
    #[arg(long, group = "setting")]
    vmci: bool,
    /// Take its VMCI device: cut off at once, gone for the guest after its next start.
    #[arg(long, group = "setting", conflicts_with_all = ["vmci", "vmci_domains", "vmci_unrestricted",
        "vmci_connections", "vmci_half_open"])]
    no_vmci: bool,
    /// VMCI domains that it is in; VMs with a domain in common may talk.
    #[arg(long, value_name = "A,B|none", value_parser = domains, group = "setting")]
    vmci_domains: Option<Domains>,
    /// May it talk over VMCI to every other unrestricted VM?
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        group = "setting")]
    vmci_unrestricted: Option<bool>,
    /// Most VMCI connections at a time.
    #[arg(long, value_name = "N", group = "setting")]
    vmci_connections: Option<u32>,
    /// Most of them that nobody has accepted yet.
    #[arg(long, value_name = "N", group = "setting")]
    vmci_half_open: Option<u32>,
}

/// A list of domains, as one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Domains(Vec<Name>);

fn domains(text: &str) -> Result<Domains, String> {
    if text == "none" {
        return Ok(Domains(Vec::new()));
    }
    let names = text.split(',').map(|name| name.parse::<Name>().map_err(|error| error.to_string()));
    names.collect::<Result<_, _>>().map(Domains)
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is on or off"),
    }
}

fn level(text: &str) -> Result<LatencySensitivity, &'static str> {
    match text {
        "normal" => Ok(LatencySensitivity::Normal),
        "high" => Ok(LatencySensitivity::High),
        "high-ht" => Ok(LatencySensitivity::HighHt),
        _ => Err("it is normal, high or high-ht"),
    }
}

pub(super) fn run(settings: Settings, client: &Client) -> Outcome {
    let Settings { name, nic, coalescing, lro, vmci, no_vmci, .. } = settings;
    let card = ChangeNic { coalescing, lro };
    if card != ChangeNic::default() {
        let _: Vm = client.patch(&format!("/v1/vms/{name}/nics/{nic}"), &card)?;
    }
    let latency = ChangeLatency {
        latency_sensitivity: settings.latency_sensitivity,
        cpu_reservation: settings.cpu_reservation,
        memory_reservation: settings.memory_reservation,
    };
    if latency != ChangeLatency::default() {
        let after: Vm = client.patch(&format!("/v1/vms/{name}/latency"), &latency)?;
        let status = after.status.latency.unwrap_or_default();
        for missing in status.missing {
            println!("{name}: {missing}");
        }
        for later in status.decisions.iter().filter(|decision| decision.restart) {
            println!("{name}: {}: taut vm stop {name}; taut vm start {name}", later.decision);
        }
    }
    let resources = ChangeResources {
        cpu_shares: settings.cpu_shares,
        cpu_limit: settings.cpu_limit,
        memory_shares: settings.memory_shares,
        memory_limit: settings.memory_limit,
        disk_shares: settings.disk_shares,
        nodes: settings.numa_nodes,
        cpus: settings.cpu_affinity,
        vcpus_per_node: settings.vcpus_per_node,
    };
    if resources != ChangeResources::default() {
        let after: Vm = client.patch(&format!("/v1/vms/{name}/resources"), &resources)?;
        let status = after.status.resources.unwrap_or_default();
        for missing in status.missing {
            println!("{name}: {missing}");
        }
        for later in status.decisions.iter().filter(|decision| decision.restart) {
            println!("{name}: {}: taut vm stop {name}; taut vm start {name}", later.decision);
        }
    }
    machine::run(&settings.machine, &name, client)?;
    let device = ChangeVmci {
        present: if no_vmci { Some(false) } else { vmci.then_some(true) },
        domains: settings.vmci_domains.map(|domains| domains.0),
        unrestricted: settings.vmci_unrestricted,
        connections: settings.vmci_connections,
        half_open: settings.vmci_half_open,
    };
    if device != ChangeVmci::default() {
        let path = format!("/v1/vms/{name}");
        let before: Vm = client.get(&path)?;
        let after: Vm = client.patch(&format!("{path}/vmci"), &device)?;
        if let Some(hint) = restart(&before, &after) {
            println!("{hint}");
        }
    }
    Ok(())
}

/// What a running VM's user has to know of a device that came or went.
fn restart(before: &Vm, after: &Vm) -> Option<String> {
    after.status.pid?;
    let name = &after.name;
    let what = match (before.spec.vm.vmci.is_some(), after.spec.vm.vmci.is_some()) {
        (false, true) => "a VMCI device that it was not started with comes",
        (true, false) => "it is cut off from VMCI, and its device goes",
        _ => return None,
    };
    Some(format!("{name} runs: {what} with its next start: taut vm stop {name}; taut vm start {name}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn parse(args: &str) -> Result<Settings, clap::Error> {
        let line = Line::try_parse_from(format!("set {args}").split_whitespace())?;
        Ok(line.settings)
    }

    #[test]
    fn something_has_to_be_set_and_contradictions_are_refused() {
        for bad in [
            "db1",
            "db1 --nic 1",
            "db1 --vmci --no-vmci",
            "db1 --no-vmci --vmci-domains x",
            "db1 --vmci-domains a,,b",
            "db1 --vmci-unrestricted=perhaps",
            "db1 --lro maybe",
            "db1 --latency-sensitivity low",
            "db1 --cpu-reservation 200%",
            "db1 --accelerator xen",
            "db1 --halt-desched maybe",
            "db1 --disk-iops many",
            "db1 --cpu-shares 0",
            "db1 --cpu-limit 0%",
            "db1 --memory-limit full",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for good in [
            "db1 --latency-sensitivity high-ht --cpu-reservation full --memory-reservation full",
            "db1 --lro on",
            "db1 --accelerator kvm --halt-desched off --halt-spin default --min-spin-us 50",
            "db1 --disk-bandwidth 10MiB --disk-iops none",
            "db1 --cpu-shares high --cpu-limit 1200MHz --memory-shares 500 --memory-limit none",
            "db1 --coalescing adapt",
            "db1 --vmci --vmci-unrestricted",
            "db1 --no-vmci",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn domains_are_a_list_or_none() {
        let of = |args: &str| parse(args).unwrap().vmci_domains.map(|domains| domains.0);
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!(of("db1 --vmci-domains a,b"), Some(vec![name("a"), name("b")]));
        assert_eq!(of("db1 --vmci-domains none"), Some(Vec::new()));
        assert_eq!(of("db1 --vmci"), None);
        let unrestricted = |args: &str| parse(args).unwrap().vmci_unrestricted;
        assert_eq!(unrestricted("db1 --vmci-unrestricted"), Some(true));
        assert_eq!(unrestricted("db1 --vmci-unrestricted=false"), Some(false));
    }
}
