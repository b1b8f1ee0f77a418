//! `taut vm set`: changes settings of a VM in one request. The options are declared in
//! `api/src/patch.rs`.

use clap::{ArgGroup, Args};
use taut_api::Name;
use taut_api::latency::Decision;
use taut_api::patch::{NicPatch, VmPatch, is_default};
use taut_api::path;
use taut_api::route::Vm;

use super::in_force::in_force;
use super::{added_queue_pairs, get, given_up};
use crate::client::Client;
use crate::commands::settle;
use crate::output::{Outcome, Output};

/// The VM and its new settings.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("setting").required(true).multiple(true)),
    override_usage = "taut vm set <NAME> <SETTING>..."
)]
pub(crate) struct Settings {
    /// Name of the VM
    name: Name,
    /// Network card that --portgroup, --link, --coalescing, --lro, --to-switch and --to-guest apply
    /// to, counted from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    nic: usize,
    #[command(flatten)]
    card: NicPatch,
    #[command(flatten)]
    patch: VmPatch,
}

impl Settings {
    /// Returns the VM's name and the request.
    fn into_request(self) -> (Name, VmPatch) {
        let Self { name, nic, card, mut patch } = self;
        if card != NicPatch::default() {
            patch.nics.insert(nic, card);
        }
        (name, patch)
    }
}

pub(super) fn run(settings: Settings, client: &Client, out: Output) -> Outcome {
    let (name, patch) = settings.into_request();
    let removed = match patch.vmci.present {
        Some(false) => get(client, &name)?.spec.vm.vmci,
        _ => None,
    };
    let answer: Vm = client.patch(&path::VM.of(&name), &patch)?;
    settle(client, answer.revision);
    // The change is made, also if the daemon has ended or the VM is gone by now.
    let mut after = get(client, &name).unwrap_or(answer);
    if patch.vmci.queue_pairs.is_some() {
        after = added_queue_pairs::wait(client, after)?;
    }
    out.changed(&after, |after| {
        let line = format!("VM {name}: {}", in_force(&patch, after));
        let removed = removed.as_ref().map(|device| given_up::vmci(&name, device));
        let rest = removed.into_iter().chain(consequences(&patch, after.clone()));
        let rest = rest.map(|rest| format!("{name}: {rest}"));
        [line].into_iter().chain(rest).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Lists what is missing for the changed settings, and what needs a restart of the VM. What takes
/// the daemon longer than the wait for it, such as a move of memory, is missing until it is done.
fn consequences(patch: &VmPatch, after: Vm) -> Vec<String> {
    let VmPatch { nics: _, latency, resources, machine, placement, vmci } = patch;
    let name = after.name;
    let mut lines = Vec::new();
    let mut report = |missing: Vec<String>, decisions: &[Decision]| {
        lines.extend(missing);
        let later = decisions.iter().filter(|decision| decision.restart);
        lines.extend(
            later.map(|later| format!("{}: taut vm stop {name}; taut vm start {name}", later.decision)),
        );
    };
    if !is_default(latency) {
        let status = after.status.latency.unwrap_or_default();
        report(status.missing, &status.decisions);
    }
    if !is_default(resources) || !is_default(placement) {
        let status = after.status.resources.unwrap_or_default();
        report(status.missing, &status.decisions);
    }
    let status = after.status.machine.unwrap_or_default();
    // A limit of the disk counts as missing only until the daemon has passed it to QEMU.
    let lasting = machine.accelerator.is_some() || !is_default(&machine.halt);
    // A latency sensitivity that was taken back leaves settings behind in the process.
    if !is_default(machine) || !is_default(vmci) || !is_default(latency) {
        report(if lasting { status.missing } else { Vec::new() }, &status.decisions);
    }
    lines
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
    fn a_request_needs_a_setting_and_no_contradiction() {
        for bad in [
            "db1",
            "db1 --nic 1",
            "db1 --vmci maybe",
            "db1 --vmci on --vmci off",
            "db1 --vmci-domains a,,b",
            "db1 --vmci-unrestricted=perhaps",
            "db1 --lro maybe",
            "db1 --link off",
            "db1 --to-guest fast",
            "db1 --to-switch peak=1Mbit",
            "db1 --vmci-cid many",
            "db1 --vmci-group a/b",
            "db1 --vcpus many",
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
            "db1 --vmci on --vmci-unrestricted",
            "db1 --vmci off",
            "db1 --vmci=on --lro --min-spin-us default",
            "db1 --vcpus-per-node none --vmci-connections default --vmci-half-open default",
            "db1 --disk-bandwidth off --cpu-limit off --memory-reservation off --vmci-domains off",
            "db1 --nic 1 --portgroup web --link down",
            "db1 --nic 1 --to-guest average=10Mbit,peak=20Mbit,burst=1MiB --to-switch off",
            "db1 --to-guest default --to-switch none",
            "db1 --vmci on --vmci-cid 7 --vmci-domains shop",
            "db1 --vmci-cid default",
            "db1 --vmci-group web",
            "db1 --vmci-group none",
            "db1 --vcpus 4 --memory 512MiB",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn domains_are_a_list_or_none() {
        let of = |args: &str| parse(args).unwrap().patch.vmci.domains.map(|domains| domains.0);
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!(of("db1 --vmci-domains a,b"), Some(vec![name("a"), name("b")]));
        assert_eq!(of("db1 --vmci-domains none"), Some(Vec::new()));
        assert_eq!(of("db1 --vmci"), None);
        let unrestricted = |args: &str| parse(args).unwrap().patch.vmci.unrestricted;
        assert_eq!(unrestricted("db1 --vmci-unrestricted"), Some(true));
        assert_eq!(unrestricted("db1 --vmci-unrestricted off"), Some(false));
    }
}
