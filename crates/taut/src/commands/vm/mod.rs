//! `taut vm`.

mod added_queue_pairs;
#[cfg(test)]
mod captured;
mod explain;
mod given_up;
mod in_force;
mod log;
mod pending;
mod sensitivity;
mod set;
mod start;
mod stats;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use taut_api::error::ErrorKind;
use taut_api::import::{Fate, ImportedKey};
use taut_api::link::LinkReason;
use taut_api::path;
use taut_api::route::{CreateVm, CreatedVm, SetPower, Vm, VmFormat};
use taut_api::shaping::PortShape;
use taut_api::vm::{NicSpec, NicStatus, Phase, Power, VmKind, VmStatus};
use taut_api::word::counted;
use taut_api::{ApiError, GuestMac, Name};

use crate::client::Client;
use crate::commands::{console, until};
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a VM from a file. For a .vmx file, print what became of each key
    #[command(after_long_help = concat!("A file with every key:\n\n", include_str!("../../../../../demo/vm.toml")))]
    Create {
        /// VM file, TOML or .vmx
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Name of the VM; overrides the name in the file
        #[arg(long)]
        name: Option<Name>,
        /// Start the VM at once, and wait shortly until it runs
        #[arg(long)]
        start: bool,
        /// Port group for vNICs of a .vmx file whose network taut does not know
        #[arg(long)]
        portgroup: Option<Name>,
    },
    /// Show how long all VMs of the host have run and waited for pCPUs, whoever has started them
    Stats(stats::Args),
    /// Start a VM, and wait shortly until it runs
    Start(start::Args),
    /// Ask a VM to power off, and wait until it is off
    Stop {
        /// Name of the VM
        name: Name,
        /// End its process without asking the guest
        #[arg(long)]
        force: bool,
    },
    /// Delete a stopped VM; the image of its disk is kept
    Delete {
        /// Name of the VM
        name: Name,
        /// Stop it first without asking the guest
        #[arg(long)]
        force: bool,
    },
    /// List VMs
    List,
    /// Show one VM with its settings, state and cards
    Show {
        /// Name of the VM
        name: Name,
    },
    /// Explain the decisions for a VM's latency sensitivity, reservations, shares, limits and
    /// placement: each decision with its rule, what is missing, what needs a restart
    Explain {
        /// Name of the VM
        name: Name,
    },
    /// Change settings of a VM in one step: all of them or none. They take effect at once unless
    /// stated otherwise
    Set(Box<set::Settings>),
    /// Show the interfaces and addresses inside the guest
    Addresses {
        /// Name of the VM
        name: Name,
    },
    /// Connect to the serial console; Ctrl-] leaves
    Console {
        /// Name of the VM
        name: Name,
    },
    /// Print the log of the serial console
    Log {
        /// Name of the VM
        name: Name,
        /// Keep printing new output
        #[arg(short, long)]
        follow: bool,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    let format = out.format;
    match command {
        Command::Create { file, name, start, portgroup } => {
            create(client, out, &file, name, start, portgroup)
        }
        Command::Start(args) => start::run(&args, client, out),
        Command::Stop { name, force } => {
            let started_again = stop(client, &name, force)?;
            out.changed(&get(client, &name)?, |vm| {
                if started_again {
                    format!("{name}: has stopped, and was told to start again meanwhile")
                } else {
                    power(vm)
                }
            });
            Ok(())
        }
        Command::Delete { name, force } => {
            if force {
                stop(client, &name, true)?;
            }
            let disk = get(client, &name)?.spec.vm.disk;
            client.delete(&path::VM.of(&name))?;
            let kept = disk.map(|disk| format!("; its disk {} is kept", disk.path)).unwrap_or_default();
            out.deleted("VM", &name, &format!("deleted{kept}"));
            Ok(())
        }
        Command::List => {
            let all: Vec<Vm> = client.get(path::VMS)?;
            output::print(format, &all, |all| {
                let rows: Vec<_> = all.iter().map(row).collect();
                output::table(
                    ["NAME", "KIND", "PHASE", "VCPUS", "MEMORY MIB", "NICS", "PID", "REASON"],
                    &rows,
                )
            });
            Ok(())
        }
        Command::Show { name } => {
            output::print(format, &get(client, &name)?, show);
            Ok(())
        }
        Command::Explain { name } => {
            output::print(format, &get(client, &name)?, explain::text);
            Ok(())
        }
        Command::Stats(args) => stats::run(&args, client, out),
        Command::Set(settings) => set::run(*settings, client, out),
        Command::Addresses { name } => super::agent::addresses(&get(client, &name)?, format),
        Command::Console { name } => {
            let vm = get(client, &name)?;
            let socket = vm.status.console_socket.as_ref().ok_or_else(|| without(&vm, "console"))?;
            console::attach(Path::new(socket))
        }
        Command::Log { name, follow } => log::print(&get(client, &name)?, follow, format),
    }
}

/// Reads the VM from the daemon.
pub(crate) fn get(client: &Client, name: &Name) -> Result<Vm, ApiError> {
    client.get(&path::VM.of(name))
}

fn create(
    client: &Client,
    out: Output,
    file: &Path,
    name: Option<Name>,
    start: bool,
    default_portgroup: Option<Name>,
) -> Outcome {
    let unreadable = |error: std::io::Error| {
        ApiError::new(
            ErrorKind::Invalid,
            format!("cannot read {}", file.display()),
            "check the path and its permissions",
        )
        .because(&error)
    };
    let text = String::from_utf8_lossy(&std::fs::read(file).map_err(unreadable)?).into_owned();
    let path = std::path::absolute(file).map_err(unreadable)?;
    let base_dir = path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let is_vmx = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("vmx"));
    let format_of_file = if is_vmx { VmFormat::Vmx } else { VmFormat::Toml };
    let power = if start { Power::On } else { Power::Off };
    let request = CreateVm { name, format: format_of_file, text, base_dir, power, default_portgroup };
    let mut created: CreatedVm = client.post(path::VMS, &request)?;
    let started = if start { start::await_process(client, &created.vm.name).map(Some) } else { Ok(None) };
    let state = started.as_ref().ok().and_then(Option::as_ref).map(start::state);
    if let Ok(Some(vm)) = &started {
        created.vm = vm.clone();
    }
    out.changed(&created, |created| {
        let mut lines = vec![format!("created {}", summary(&created.vm))];
        if !created.imported.is_empty() {
            let keys: Vec<_> = created.imported.iter().map(fate).collect();
            lines.push(output::table(["KEY", "VALUE", "RESULT", "NOTE"], &keys).trim_end().to_owned());
        }
        lines.extend(state);
        lines.join("\n")
    });
    started.map(drop).map_err(|error| {
        let hint = format!("VM {0} is created: remove the cause, then `taut vm start {0}`", created.vm.name);
        ApiError { hint: format!("{}; {hint}", error.hint), ..error }
    })
}

/// Returns the name of a new VM and how its size was understood.
fn summary(vm: &Vm) -> String {
    let spec = &vm.spec.vm;
    format!(
        "{}: {}, {} of memory, {}",
        vm.name,
        counted(spec.vcpus, "vCPU"),
        spec.memory,
        counted(spec.nics.len(), "network card")
    )
}

fn fate(key: &ImportedKey) -> [String; 4] {
    let (fate, note) = match &key.fate {
        Fate::Understood { field } => ("understood", format!("→ {field}")),
        Fate::Mapped { field, note } => ("mapped", format!("→ {field}: {note}")),
        Fate::Reported { note } => ("no effect", note.clone()),
        Fate::Ignored => ("ignored", "unknown to taut".to_owned()),
    };
    [key.key.clone(), key.value.clone(), fate.to_owned(), note]
}

/// Stops a VM; returns whether it was told to start again meanwhile.
fn stop(client: &Client, name: &Name, force: bool) -> Result<bool, ApiError> {
    let asked: Vm = client.post(&path::VM_POWER.of(name), &SetPower { power: Power::Off, force })?;
    until(&format!("{name} has stopped"), || {
        let vm = get(client, name)?;
        let has_ended = vm.status.pid.is_none() || vm.status.pid != asked.status.pid;
        Ok(match vm.spec.power {
            Power::Off => (vm.status.phase == Phase::Stopped).then_some(false),
            Power::On => has_ended.then_some(true),
        })
    })
}

/// Renders the power state in one line.
fn power(vm: &Vm) -> String {
    let pid = vm.status.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("VM {}: {}{pid}", vm.name, output::word(&vm.status.phase))
}

/// Returns the error for a VM that has no console or no log of it.
fn without(vm: &Vm, what: &str) -> ApiError {
    let name = &vm.name;
    match vm.spec.vm.kind {
        VmKind::Micro => ApiError::new(
            ErrorKind::Conflict,
            format!("{name} is a microguest, which has no {what}: no operating system runs in it"),
            format!("`taut vm show {name}` and `taut events` show its state"),
        ),
        VmKind::Qemu => ApiError::new(
            ErrorKind::Conflict,
            format!("{name} has no {what} now"),
            format!("start it: taut vm start {name}"),
        ),
    }
}

fn row(vm: &Vm) -> [String; 8] {
    [
        vm.name.to_string(),
        output::word(&vm.spec.vm.kind),
        output::word(&vm.status.phase),
        vm.spec.vm.vcpus.to_string(),
        vm.spec.vm.memory.as_mib().to_string(),
        vm.spec.vm.nics.len().to_string(),
        vm.status.pid.map(|pid| pid.to_string()).unwrap_or_default(),
        vm.status.reason.as_deref().unwrap_or_default().lines().next().unwrap_or_default().to_owned(),
    ]
}

/// Renders a card's address with its gateway.
fn address(nic: &NicSpec) -> String {
    let gateway = nic.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    nic.ip.map(|ip| format!("{ip}{gateway}")).unwrap_or_default()
}

/// Renders the address that the guest's driver has set; empty if it is not known.
fn effective_address(port: &NicStatus) -> String {
    let GuestMac { effective_mac, mac_rejected, mac_taken } = port.guest_mac;
    let remark = match (mac_rejected, mac_taken) {
        (true, _) => " (rejected)",
        (false, true) => " (refused)",
        (false, false) => "",
    };
    effective_mac.map(|mac| format!("{mac}{remark}")).unwrap_or_default()
}

/// Describes the walls around a VM's process; empty without a process.
fn confinement(status: &VmStatus) -> String {
    match (&status.confinement, status.pid) {
        (Some(walls), _) => walls.to_string(),
        (None, Some(_)) => "none: an earlier version started it; stop and start it".to_owned(),
        (None, None) => String::new(),
    }
}

fn show(vm: &Vm) -> String {
    let (spec, status) = (&vm.spec.vm, &vm.status);
    let boot = spec.boot.as_ref().map(|boot| boot.kernel.clone()).unwrap_or_default();
    let disk = spec
        .disk
        .as_ref()
        .map(|disk| format!("{} ({})", disk.path, output::word(&disk.format)))
        .unwrap_or_default();
    let mut text = output::fields(&[
        ("name", vm.name.to_string()),
        ("kind", output::word(&spec.kind)),
        ("power", output::word(&vm.spec.power)),
        ("phase", output::word(&status.phase)),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("pid", status.pid.map(|pid| pid.to_string()).unwrap_or_default()),
        ("owner", if status.owner == 0 { String::new() } else { format!("user {}", status.owner) }),
        ("accelerator", status.accelerator.map(|accelerator| accelerator.to_string()).unwrap_or_default()),
        ("confinement", confinement(status)),
        ("vcpus", spec.vcpus.to_string()),
        ("memory", spec.memory.to_string()),
        ("kernel", boot),
        ("disk", disk),
        ("memory reserved", spec.memory_reservation.to_string()),
        ("cpu reserved", spec.cpu.reservation.to_string()),
        ("memory limit, shares", format!("{}, {}", spec.memory_limit, spec.memory_shares)),
        ("cpu limit, shares", format!("{}, {}", spec.cpu.limit, spec.cpu.shares)),
        ("latency sensitivity", sensitivity::text(vm)),
        ("at next start", pending::decisions(vm).join("; ")),
        ("console log", status.console_log.clone().unwrap_or_default()),
        ("revision", vm.revision.to_string()),
    ]);
    let shape = |shape: PortShape| shape.to_string();
    let nics = spec.nics.iter().zip(&status.nics).map(|(nic, port)| {
        [
            port.mac.to_string(),
            effective_address(port),
            nic.portgroup.to_string(),
            output::word(&nic.model),
            address(nic),
            port.port.to_string(),
            output::word(&port.link),
            port.coalescing.map(|coalescing| coalescing.to_string()).unwrap_or_default(),
            if port.lro { "on" } else { "off" }.to_owned(),
            shape(port.shaping.to_switch),
            shape(port.shaping.to_guest),
            if nic.uplink_allocation.is_default() {
                String::new()
            } else {
                nic.uplink_allocation.to_string()
            },
            port.reason.clone().unwrap_or_default(),
        ]
    });
    text += "\n";
    text += &output::table(
        [
            "MAC",
            "EFFECTIVE MAC",
            "PORTGROUP",
            "MODEL",
            "IP",
            "PORT",
            "LINK",
            "COALESCING",
            "LRO",
            "TO SWITCH",
            "TO GUEST",
            "UPLINKS",
            "REASON",
        ],
        &nics.collect::<Vec<_>>(),
    );
    for (index, nic) in status.nics.iter().enumerate() {
        if let Some(reason) = &nic.reason {
            text += &format!("nic{index}: see {}\n", LinkReason::of(nic.link, reason).guide());
        }
    }
    if status.vmci.is_some() {
        text += "\n";
        text += &super::vmci::table(std::slice::from_ref(vm));
    }
    text
}
