//! Status of VMs, ports and the host for users, from the desired and the observed state.

use std::collections::BTreeMap;
use std::path::Path;

use taut_api::confinement::Confinement;
use taut_api::enforcement::{LimitKind, VmReport};
use taut_api::fabric::PortId;
use taut_api::fabric::counters::VmciCounters;
use taut_api::fabric::message::GroupMembers;
use taut_api::latency::Decision;
use taut_api::link::{Link, LinkReason};
use taut_api::multicast::{MulticastFilter, MulticastGroup, MulticastState};
use taut_api::netdev::NetdevStatus;
use taut_api::network::{ExternalPortStatus, NetnsStatus, PortGroupStatus, VSwitchStatus};
use taut_api::pnic::{PnicFacts, PnicStatus};
use taut_api::shares::ResourceStatus;
use taut_api::tune::{HostTune, TuneTest};
use taut_api::uplink::UplinkStatus;
use taut_api::vm::{NicStatus, Phase, Power, VmDesired, VmKind, VmSize, VmStatus, VmciStatus};
use taut_api::vmci::VmciSpec;
use taut_api::{GuestMac, Mtu, Name};
use taut_plan::explain::{explain_latency, explain_machine, explain_resources};
use taut_plan::facts::{InterfaceSeen, MachineSize, Process};
use taut_plan::network::addresses::{effective_address, is_rejected};
use taut_plan::network::coalescing::choose_coalescing;
use taut_plan::network::dense::is_governed;
use taut_plan::network::links::is_taken_down;
use taut_plan::network::lro::choose_lro;
use taut_plan::network::mtu::{short_interface, vswitch_mtu};
use taut_plan::network::shaping::choose_shaping;
use taut_plan::network::vsock_devices;
use taut_plan::resources::Decided;
use taut_plan::{Desired, Owner};
use taut_vm::launch::RunPaths;

use crate::board::{Seen, group_document, queue_pairs_document};
use crate::console::{Console, LogFolder};
use crate::group_folders::GroupFolders;

/// Rest of the reason for a missing device that was added after the start.
const ADDED_LATER: &str = "; it is added at the next start";

/// Returns the status of a VM. `running` has the sizes that running VMs have, and `decided` the
/// decisions for all VMs; `vm` is the VM's document; `run_dir` is the daemon's run directory.
pub(crate) fn vm(
    running: &Desired,
    seen: &Seen,
    decided: &Decided,
    run_dir: &Path,
    name: &Name,
    vm: &VmDesired,
) -> VmStatus {
    let nics: Vec<NicStatus> =
        (0..vm.vm.nics.len()).map(|index| nic(running, seen, name, vm, index)).collect();
    let as_running = running.vms.get(name).unwrap_or(vm);
    let observed = seen.observed.vms.get(name);
    let process = observed.and_then(|seen| seen.process.as_ref());
    let failure = observed.and_then(|seen| seen.failure.as_ref()).or_else(|| seen.refusals.get(name));
    let (phase, reason) = phase(running, seen, name, vm, process, failure);
    let paths = run_paths(run_dir, name);
    let console = process.is_some() && vm.vm.kind == VmKind::Qemu;
    let log = Console::console_log(&LogFolder::at(&seen.log_dir).vm(name), &paths);
    VmStatus {
        phase,
        reason,
        pid: process.map(|process| process.pid),
        // The store knows it.
        owner: 0,
        size: process.and_then(|process| process.machine.size).map(size),
        accelerator: process.map(|process| process.accelerator),
        confinement: process.and_then(|process| confinement(process, seen.report.vms.get(name))),
        agent_socket: process.map(|_| text(&paths.agent())),
        console_socket: console.then(|| text(&paths.console())),
        console_log: log.exists().then(|| text(&log)),
        nics,
        vmci: vmci(running, seen, run_dir, name, vm),
        latency: explain_latency(&seen.observed, &seen.report, decided, name, as_running),
        resources: explain_resources(running, &seen.observed, &seen.report, decided, name, as_running),
        machine: with_vmci_restart(
            explain_machine(running, &seen.observed, &seen.report, name, vm),
            process,
            vm,
        ),
    }
}

/// Returns the walls around a process, with the limits that are in force.
fn confinement(process: &Process, report: Option<&VmReport>) -> Option<Confinement> {
    let mut walls = process.confinement.clone()?;
    let unlimited = report.map(|report| report.unlimited.clone()).unwrap_or_default();
    let limits = process.limits;
    if limits.is_none() {
        walls.missing.push("all limits (an earlier version started it; hint: stop and start it)".to_owned());
    }
    let in_force = |kind| limits.filter(|_| !unlimited.contains_key(&kind));
    walls.memory = in_force(LimitKind::Memory).map(|limits| limits.memory);
    walls.processes = in_force(LimitKind::Processes).map(|limits| limits.processes);
    walls.missing.extend(unlimited.iter().map(|(kind, why)| format!("{kind} ({why})")));
    Some(walls)
}

const fn size(MachineSize { vcpus, memory, .. }: MachineSize) -> VmSize {
    VmSize { vcpus, memory }
}

/// Adds the restart that a running VM needs when its VMCI device was added or removed.
fn with_vmci_restart(
    machine: Option<ResourceStatus>,
    process: Option<&Process>,
    vm: &VmDesired,
) -> Option<ResourceStatus> {
    let decision = match (process.map(|process| process.vmci), vm.vm.vmci.is_some()) {
        (Some(false), true) => "the VMCI device is added when the VM next starts",
        (Some(true), false) => {
            "the VMCI device is cut off now, and removed from the guest when the VM next starts"
        }
        _ => return machine,
    };
    let mut machine = machine.unwrap_or_default();
    machine.decisions.push(Decision {
        decision: decision.to_owned(),
        rule: "VC-1 VM-to-VM sockets: the device is part of the machine that a VM starts with".to_owned(),
        restart: true,
    });
    Some(machine)
}

/// Returns the paths of a VM's run directory.
fn run_paths(run_dir: &Path, name: &Name) -> RunPaths {
    RunPaths::new(run_dir.join("vms").join(name.as_str()))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the status of a VMCI device, without its counters.
fn vmci(desired: &Desired, seen: &Seen, run_dir: &Path, name: &Name, vm: &VmDesired) -> Option<VmciStatus> {
    let VmciSpec { cid, group, .. } = vm.vm.vmci.as_ref()?;
    let cid = (*cid)?;
    let owner = Owner::Vmci(name.clone());
    let port = desired.numbers.port(&owner);
    let (link, why) = link(seen, port);
    let process = seen.observed.vms.get(name).and_then(|seen| seen.process.as_ref());
    // While the VM is off, nothing can be expected to connect.
    let is_expected = |why: &String| {
        is_off(desired, seen, name)
            && matches!(LinkReason::of(link, why), LinkReason::NotConnected | LinkReason::NothingAttached)
    };
    let why = why.filter(|why| !is_expected(why));
    let reason = match process {
        Some(process) if !process.vmci => Some(LinkReason::NoDevice.as_str().to_owned() + ADDED_LATER),
        _ => seen.problems.get(&owner.to_string()).cloned().or(why),
    };
    // A device may be up although its group has no sockets, or its queue pairs are not used.
    let group_problem = group.as_ref().and_then(|_| seen.problems.get(&group_document(name)));
    let has_queue_pairs = process.is_some_and(|process| process.queue_pairs.is_some());
    let gets_queue_pairs = process.is_some_and(|process| {
        let wanted = vm.vm.queue_pairs();
        process.adds_queue_pairs || (wanted.0 > 0 && wanted <= process.queue_pairs_room)
    });
    let queue_pairs_problem = seen.problems.get(&queue_pairs_document(name));
    let queue_pairs_problem = queue_pairs_problem.filter(|_| has_queue_pairs || gets_queue_pairs);
    let unused = port.and_then(|port| seen.observed.fabric.ports.get(&port)?.unused_queue_pairs.as_ref());
    let unused = unused.filter(|_| has_queue_pairs);
    let others = group_problem.into_iter().chain(queue_pairs_problem).chain(unused).cloned();
    let reasons = reason.filter(|_| link != Link::Up).into_iter().chain(others);
    let reasons: Vec<String> = reasons.collect();
    let group_socket = group.as_ref().filter(|_| group_problem.is_none());
    Some(VmciStatus {
        cid,
        port: port.map_or(0, |port| u32::from(port.0)),
        link,
        reason: match reasons.as_slice() {
            [] if is_off(desired, seen, name) => Some(powered_off(name)),
            [] => None,
            reasons => Some(reasons.join("; ")),
        },
        socket: text(&run_paths(run_dir, name).vmci()),
        group_socket: group_socket.map(|_| text(&GroupFolders::at(run_dir).socket(name))),
        queue_pairs: process.and_then(|process| process.queue_pairs).map(|memory| memory.size),
        queue_pairs_room: process
            .filter(|process| process.queue_pairs.is_none())
            .map(|process| process.queue_pairs_room)
            .filter(|room| room.0 > 0),
        counters: VmciCounters::default(),
    })
}

fn phase(
    desired: &Desired,
    seen: &Seen,
    name: &Name,
    vm: &VmDesired,
    process: Option<&Process>,
    failure: Option<&String>,
) -> (Phase, Option<String>) {
    match (vm.power, process) {
        (_, Some(process)) if process.stopping => (Phase::Stopping, None),
        (Power::Off, Some(_)) => (Phase::Stopping, None),
        (Power::Off, None) => (Phase::Stopped, None),
        (Power::On, None) if failure.is_some() => (Phase::Failed, failure.cloned()),
        (Power::On, None) if !seen.observed.host.probed && vm.vm.kind == VmKind::Qemu => {
            (Phase::Starting, Some("probing whether KVM runs guests on this host".to_owned()))
        }
        (Power::On, None) => {
            let step = seen.starts.get(name).map(ToString::to_string);
            (Phase::Starting, waits_for_vmci(desired, seen, name, vm).or(step))
        }
        (Power::On, Some(process)) => {
            let unattached = |index: &usize| {
                let port = desired.numbers.port(&Owner::Nic(name.clone(), *index));
                !port.is_some_and(|port| seen.observed.attached(port))
            };
            match (0..vm.vm.nics.len()).find(unattached) {
                Some(index) => {
                    (Phase::Starting, Some(format!("nic{index} is not connected to its port yet")))
                }
                None if !process.ready => (Phase::Starting, Some(still_starting(process.kind).to_owned())),
                None => (Phase::Running, None),
            }
        }
    }
}

/// What a process of this kind has not done yet although its ports are up.
const fn still_starting(kind: VmKind) -> &'static str {
    match kind {
        VmKind::Qemu => "QEMU is allocating memory, opening disks and making devices",
        VmKind::Micro => "the microguest does not listen for its callers yet",
    }
}

/// Returns why QEMU is not started: the fabric does not listen for its VMCI device yet.
fn waits_for_vmci(desired: &Desired, seen: &Seen, name: &Name, vm: &VmDesired) -> Option<String> {
    if vsock_devices::can_start(desired, &seen.observed, name, vm) {
        return None;
    }
    let owner = Owner::Vmci(name.clone());
    let refused = desired.numbers.port(&owner).and_then(|port| seen.refused_ports.get(&port));
    let why = seen.problems.get(&owner.to_string()).or(refused);
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("the fabric does not listen for its VMCI device yet{why}"))
}

fn nic(desired: &Desired, seen: &Seen, name: &Name, vm: &VmDesired, index: usize) -> NicStatus {
    let owner = Owner::Nic(name.clone(), index);
    let spec = &vm.vm.nics[index];
    let port = desired.numbers.port(&owner);
    let (link, reason) = port_link(desired, seen, &owner);
    let mac = spec.mac.unwrap_or_else(|| owner.derived_mac());
    let effective_mac = effective_address(&seen.observed, &owner).map(|set| set.mac);
    NicStatus {
        mac,
        guest_mac: GuestMac {
            effective_mac,
            mac_rejected: effective_mac.is_some_and(|to| is_rejected(desired, &spec.portgroup, mac, to)),
            mac_taken: false,
        },
        portgroup: spec.portgroup.clone(),
        port: port.map_or(0, |port| u32::from(port.0)),
        link,
        reason,
        coalescing: choose_coalescing(desired, &seen.observed, &owner),
        lro: choose_lro(desired, &owner),
        shaping: choose_shaping(desired, &owner, &spec.portgroup),
    }
}

/// Returns whether an owner's port exists: cards of VMs that are off have a number, but no port.
pub(crate) fn port_exists(desired: &Desired, seen: &Seen, owner: &Owner) -> bool {
    let Owner::Nic(vm, _) = owner else { return true };
    !is_off(desired, seen, vm)
}

/// Returns whether a VM is off: it has no process, and is to have none.
fn is_off(desired: &Desired, seen: &Seen, vm: &Name) -> bool {
    let runs = seen.observed.vms.get(vm).is_some_and(|vm| vm.process.is_some());
    !runs && desired.vms.get(vm).is_none_or(|vm| vm.power == Power::Off)
}

/// Returns the reason for the link of a device whose VM is off.
fn powered_off(vm: &Name) -> String {
    format!("{}: taut vm start {vm}", LinkReason::PoweredOff.as_str())
}

/// Returns the link of an owner's port, and why it is not up or not as the user wants it.
pub(crate) fn port_link(desired: &Desired, seen: &Seen, owner: &Owner) -> (Link, Option<String>) {
    match owner {
        Owner::Nic(vm, index) if is_taken_down(desired, owner) => {
            let problem = seen.problems.get(&owner.to_string());
            let problem = problem.map(|problem| format!("; {problem}")).unwrap_or_default();
            let reason = format!(
                "{}: taut vm set {vm} --nic {index} --link up{problem}",
                LinkReason::TakenDown.as_str()
            );
            (Link::Down, Some(reason))
        }
        Owner::Nic(vm, _) if is_off(desired, seen, vm) => (Link::Down, Some(powered_off(vm))),
        _ => link(seen, desired.numbers.port(owner)),
    }
}

/// Why a port whose front end has harmed the fabric stays down, after the word for it.
const QUARANTINED: &str = ", because its front end has harmed the fabric; restart its VM, or detach the port and \
                           attach it again";

/// Returns the link of a port, and why it is not up.
fn link(seen: &Seen, port: Option<PortId>) -> (Link, Option<String>) {
    let Some(port) = port else { return (Link::Down, None) };
    match seen.observed.fabric.ports.get(&port) {
        Some(_) if seen.observed.is_quarantined(port) => {
            (Link::Down, Some(LinkReason::Quarantined.as_str().to_owned() + QUARANTINED))
        }
        Some(state) => (state.link, state.reason.clone()),
        None => (Link::Down, seen.refused_ports.get(&port).cloned()),
    }
}

/// Returns the status of a namespace attachment.
pub(crate) fn netns(desired: &Desired, seen: &Seen, name: &Name) -> NetnsStatus {
    let owner = Owner::Netns(name.clone());
    let port = desired.numbers.port(&owner);
    let (link, why) = link(seen, port);
    let has_device = port.is_some_and(|port| seen.observed.attached(port));
    let observed = seen.observed.netns.get(name);
    let lost = observed.is_some_and(|seen| seen.lost);
    let attached = has_device && link == Link::Up && !lost;
    // Until its device is attached, a port is down for a moment only; that is not worth a reason.
    let gone = lost.then(|| "its interface is gone from the namespace".to_owned());
    let why = gone.or(why.filter(|_| has_device));
    NetnsStatus {
        attached,
        made_netns: observed.is_some_and(|seen| seen.made_netns),
        reason: seen.problems.get(&owner.document()).cloned().or(why).filter(|_| !attached),
    }
}

/// Returns the status of an external port.
pub(crate) fn external(desired: &Desired, seen: &Seen, name: &Name) -> ExternalPortStatus {
    let owner = Owner::External(name.clone());
    let port = desired.numbers.port(&owner);
    let (link, why) = link(seen, port);
    let reason = seen.problems.get(&owner.document()).cloned().or(why).filter(|_| link != Link::Up);
    ExternalPortStatus { port: port.map(|port| u32::from(port.0)), link, reason }
}

/// Returns the status of an interface on a port group. Its link is that of the interface.
pub(crate) fn netdev(desired: &Desired, seen: &Seen, name: &Name) -> NetdevStatus {
    let owner = Owner::Netdev(name.clone());
    let observed = seen.observed.netdevs.get(name);
    let InterfacePort { port, attached, link, reason } = interface(desired, seen, &owner, observed, name);
    NetdevStatus {
        port,
        attached,
        link,
        reason,
        mtu: observed.map(|seen| seen.mtu),
        vswitch_mtu: missed_mtu(desired, seen, &owner),
        lost: observed.map_or(0, |seen| seen.lost_frames),
    }
}

/// Returns the status of an uplink. Its link is that of its interface.
pub(crate) fn uplink(desired: &Desired, seen: &Seen, name: &Name) -> UplinkStatus {
    let owner = Owner::Uplink(name.clone());
    let observed = seen.observed.uplinks.get(name);
    let InterfacePort { port, attached, link, reason } = interface(desired, seen, &owner, observed, name);
    let vswitch = desired.uplinks.get(name).and_then(|spec| desired.vswitches.get(&spec.vswitch));
    let speed_mbit = observed.and_then(|seen| seen.speed_mbit);
    let has_network_io = vswitch.is_some_and(|vswitch| vswitch.network_io.enabled);
    UplinkStatus {
        port,
        attached,
        link,
        reason,
        mac: observed.and_then(|seen| seen.mac),
        speed_mbit,
        network_io: has_network_io.then_some(attached && speed_mbit.is_some() && seen.has_network_io),
        mtu: observed.map(|seen| seen.mtu),
        vswitch_mtu: missed_mtu(desired, seen, &owner),
        xdp: observed.and_then(|seen| seen.xdp),
        missing: observed.map(|seen| seen.missing.clone()).unwrap_or_default(),
        lost: observed.map_or(0, |seen| seen.lost_frames),
    }
}

/// Returns the MTU of the vSwitch of an interface that has a smaller one.
fn missed_mtu(desired: &Desired, seen: &Seen, owner: &Owner) -> Option<Mtu> {
    short_interface(desired, &seen.observed, owner).and_then(|_| vswitch_mtu(desired, owner))
}

/// Returns the status of a network card, of which `card` is known. `is_settled` tells whether the
/// last report is about its present settings.
pub(crate) fn pnic(
    desired: &Desired,
    seen: &Seen,
    name: &Name,
    card: Option<PnicFacts>,
    is_settled: bool,
) -> PnicStatus {
    let problems = seen.report.cards.get(name).cloned();
    let has_settings = desired.pnics.get(name).is_some_and(|settings| !settings.is_empty());
    PnicStatus {
        card,
        vswitch: desired.uplinks.get(name).map(|uplink| uplink.vswitch.clone()),
        in_force: is_settled && problems.as_ref().map_or(!has_settings, Vec::is_empty),
        problems: problems.unwrap_or_default(),
    }
}

/// Port of an interface.
struct InterfacePort {
    port: Option<u32>,
    attached: bool,
    link: Link,
    /// Reason of what is wrong.
    reason: Option<String>,
}

/// Returns the state of the port of an interface, whatever its role.
fn interface(
    desired: &Desired,
    seen: &Seen,
    owner: &Owner,
    observed: Option<&InterfaceSeen>,
    name: &Name,
) -> InterfacePort {
    let port = desired.numbers.port(owner);
    let (served, why) = link(seen, port);
    let has_device = port.is_some_and(|port| seen.observed.attached(port));
    let is_refused = port.is_some_and(|port| seen.refused_ports.contains_key(&port));
    let lost = observed.and_then(|seen| seen.lost.clone());
    let attached = has_device && served == Link::Up && lost.is_none();
    let has_carrier = observed.is_some_and(|seen| seen.has_carrier);
    let path = why.clone().filter(|_| served == Link::Up);
    let problem =
        seen.problems.get(&owner.document()).cloned().or(lost).or(why.filter(|_| has_device || is_refused));
    let reason = match observed {
        _ if !attached => problem,
        Some(seen) if !seen.is_up => {
            Some(format!("{}; hint: ip link set {name} up", LinkReason::InterfaceDown.as_str()))
        }
        _ if has_carrier => path,
        _ => Some(format!("{}: no cable, or nothing at its other end", LinkReason::NoCarrier.as_str())),
    };
    let link = if attached && has_carrier { Link::Up } else { Link::Down };
    InterfacePort { port: port.map(|port| u32::from(port.0)), attached, link, reason }
}

/// Returns the status of a port group.
pub(crate) fn portgroup(desired: &Desired, name: &Name) -> PortGroupStatus {
    let on_it = desired.ports().filter(|(_, group, _)| *group == name).map(|(owner, ..)| owner);
    let owners: Vec<Owner> = on_it.collect();
    let has_own = |owner: &&Owner| choose_shaping(desired, owner, name).has_own();
    PortGroupStatus {
        ports: owners.len() as u32,
        own_shaping: owners.iter().filter(has_own).map(Owner::to_string).collect(),
    }
}

/// Returns the status of a vSwitch.
pub(crate) fn vswitch(desired: &Desired, seen: &Seen, name: &Name) -> VSwitchStatus {
    let on_it = |group: &Name| desired.portgroups.get(group).is_some_and(|group| group.vswitch == *name);
    let owners: Vec<Owner> =
        desired.ports().filter(|(_, group, _)| on_it(group)).map(|(owner, ..)| owner).collect();
    let snoops = desired.vswitches.get(name).is_some_and(|spec| spec.multicast == MulticastFilter::Snooping);
    VSwitchStatus {
        ports: owners.len() as u32,
        multicast: snoops.then(|| multicast(desired, seen, name, &owners)),
    }
}

/// Returns the multicast groups of a vSwitch with these ports.
fn multicast(desired: &Desired, seen: &Seen, name: &Name, owners: &[Owner]) -> MulticastState {
    let segment = desired.numbers.segment(name);
    let Some(seen) = segment.and_then(|segment| seen.groups.get(&segment)) else {
        return MulticastState::default();
    };
    let numbers: BTreeMap<PortId, &Owner> =
        owners.iter().filter_map(|owner| Some((desired.numbers.port(owner)?, owner))).collect();
    let names = |ports: &[PortId]| -> Vec<String> {
        ports.iter().filter_map(|port| numbers.get(port)).map(ToString::to_string).collect()
    };
    let group = |GroupMembers { vlan, group, ports }: &GroupMembers| MulticastGroup {
        vlan: *vlan,
        group: *group,
        members: names(ports),
    };
    MulticastState {
        groups: seen.groups.iter().map(group).filter(|group| !group.members.is_empty()).collect(),
        more_groups: seen.more,
        routers: names(&seen.routers),
    }
}

/// Returns the status of dense mode on a host with `pcpus` pCPUs.
pub(crate) fn tune(desired: &Desired, seen: &Seen, pcpus: u32) -> HostTune {
    let settings = &desired.host;
    let state = seen.observed.tune.clone();
    let guests = desired.ports().map(|(owner, ..)| owner);
    let guests = guests.filter(|owner| choose_coalescing(desired, &seen.observed, owner).is_some());
    let (governed, others): (Vec<_>, Vec<_>) = guests.partition(|owner| is_governed(desired, owner));
    let text = |owners: Vec<Owner>| owners.iter().map(Owner::to_string).collect();
    // Stored settings are valid, so the default is never used.
    let interval_s = settings.tune_interval().unwrap_or(60);
    HostTune {
        mode: settings.tune_mode,
        interval_s,
        next_test_ms: seen.tune_interval_began_ms.map(|began| began + u64::from(interval_s) * 1000),
        threshold: settings.tune_threshold.clone(),
        pcpus,
        limits: settings.tune_threshold().unwrap_or_default().resolve(pcpus),
        held: state.test.as_ref().map(TuneTest::held),
        state,
        governs: text(governed),
        leaves_alone: text(others),
    }
}
