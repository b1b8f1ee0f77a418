//! `taut vm set`: what a VM's process is told.

use clap::{Args, ValueEnum};
use taut_api::machine::{AcceleratorChoice, ChangeMachine, HaltSpec};
use taut_api::route::Vm;
use taut_api::{Bytes, Name};

use crate::Outcome;
use crate::client::Client;

/// Accelerator, idle vCPUs, limits of the disk.
#[derive(Debug, Args)]
pub(super) struct Machine {
    /// Who runs its code from its next start on: auto (KVM where a probe finds that it runs guests), kvm or tcg.
    #[arg(long, value_name = "ACCELERATOR", value_parser = accelerator, group = "setting")]
    accelerator: Option<AcceleratorChoice>,
    /// Does an idle vCPU give its pCPU away (ESX: monitor_control.halt_desched)? With off it halts in the guest, once its
    /// pCPUs are its own.
    #[arg(long, value_name = "on|off|default", group = "setting")]
    halt_desched: Option<Switch>,
    /// Does it spin before it halts (ESX: monitor.idleLoopSpinBeforeHalt)?
    #[arg(long, value_name = "on|off|default", group = "setting")]
    halt_spin: Option<Switch>,
    /// For at least so many microseconds (ESX: monitor.idleLoopMinSpinUS, 100).
    #[arg(long, value_name = "US", group = "setting")]
    min_spin_us: Option<u32>,
    /// The most bytes that its disk reads and writes in a second, in force at once: a size, or none.
    #[arg(long, value_name = "SIZE", value_parser = bytes, group = "setting")]
    disk_bandwidth: Option<Bytes>,
    /// The most operations of its disk in a second, in force at once: a number, or none.
    #[arg(long, value_name = "N", value_parser = number, group = "setting")]
    disk_iops: Option<u64>,
}

/// A setting that may be left to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
    Default,
}

impl Switch {
    fn value(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Default => None,
        }
    }
}

fn accelerator(text: &str) -> Result<AcceleratorChoice, &'static str> {
    match text {
        "auto" => Ok(AcceleratorChoice::Auto),
        "kvm" => Ok(AcceleratorChoice::Kvm),
        "tcg" => Ok(AcceleratorChoice::Tcg),
        _ => Err("it is auto, kvm or tcg"),
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    if text == "none" { Ok(Bytes(0)) } else { text.parse().map_err(|error| format!("{error}")) }
}

fn number(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { text.parse().map_err(|_| "it is a number, or none".to_owned()) }
}

pub(super) fn run(settings: &Machine, name: &Name, client: &Client) -> Outcome {
    let Machine { accelerator, halt_desched, halt_spin, min_spin_us, disk_bandwidth, disk_iops } = *settings;
    let mut halt = None;
    if halt_desched.is_some() || halt_spin.is_some() || min_spin_us.is_some() {
        let now: Vm = client.get(&format!("/v1/vms/{name}"))?;
        let now = now.spec.vm.halt;
        halt = Some(HaltSpec {
            desched: halt_desched.map_or(now.desched, Switch::value),
            spin: halt_spin.map_or(now.spin, Switch::value),
            min_spin_us: min_spin_us.or(now.min_spin_us),
        });
    }
    let change = ChangeMachine { accelerator, halt, disk_bandwidth, disk_iops };
    if change == ChangeMachine::default() {
        return Ok(());
    }
    let after: Vm = client.patch(&format!("/v1/vms/{name}/machine"), &change)?;
    let status = after.status.machine.unwrap_or_default();
    // Limits of the disk are on their way.
    let only_limits = change.accelerator.is_none() && change.halt.is_none();
    for missing in status.missing.iter().filter(|_| !only_limits) {
        println!("{name}: {missing}");
    }
    for later in status.decisions.iter().filter(|decision| decision.restart) {
        println!("{name}: {}: taut vm stop {name}; taut vm start {name}", later.decision);
    }
    Ok(())
}
