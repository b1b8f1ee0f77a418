//! Properties of plans on arbitrary documents.

use std::collections::BTreeSet;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use taut_api::coalescing::NicCoalescing;
use taut_api::fabric::PortId;
use taut_api::link::{Link, WantedLink};
use taut_api::netdev::NetdevSpec;
use taut_api::network::{ExternalPortSpec, NetnsSpec, PortGroupSpec, Security, SocketRole};
use taut_api::shaping::Shaping;
use taut_api::uplink::UplinkSpec;
use taut_api::vm::{NicSpec, Power, VmDesired, VmKind};
use taut_api::vmci::{Cid, VmciSpec};
use taut_api::{Bytes, Mtu, Name, QueuePairs, Vlan};

use super::*;
use crate::facts::{
    ExternalSeen, FabricSeen, HostSeen, InterfaceSeen, MachineSeen, MachineSize, NetnsSeen, Owner, PortSeen,
    Process, VmSeen,
};
use crate::network::cid::assign_cid;
use crate::network::links::is_taken_down;
use crate::network::mtu::vswitch_mtu;
use crate::network::numbering::assign_numbers;
use crate::resources::disk_limits::wanted_limits;

const TOTAL: Bytes = Bytes::mib(4096);

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn names(prefix: &'static str, count: u8) -> impl Strategy<Value = Name> {
    (0..count).prop_map(move |number| name(&format!("{prefix}{number}")))
}

fn nic() -> impl Strategy<Value = NicSpec> {
    (names("pg", 4), any::<bool>(), any::<bool>()).prop_map(|(portgroup, virtio, up)| {
        let model = if virtio { "virtio" } else { "vmxnet3" };
        let link = if up { "up" } else { "down" };
        let nic = serde_json::json!({ "portgroup": portgroup, "model": model, "link": link });
        serde_json::from_value(nic).unwrap()
    })
}

fn vm() -> impl Strategy<Value = VmDesired> {
    let whether = (any::<bool>(), any::<bool>(), any::<bool>());
    (vec(nic(), 0..4), whether, 1..10_000u64).prop_map(|(nics, (on, micro, vmci), mib)| {
        let mut vm: VmDesired = serde_json::from_str("{}").unwrap();
        vm.vm.nics = nics;
        vm.vm.vmci = vmci.then(VmciSpec::default);
        vm.vm.memory = Bytes::mib(mib);
        vm.vm.kind = if micro { VmKind::Micro } else { VmKind::Qemu };
        vm.power = if on { Power::On } else { Power::Off };
        vm
    })
}

fn desired() -> impl Strategy<Value = Desired> {
    let portgroups = btree_map(
        names("pg", 4),
        (names("sw", 2), 0..3u16).prop_map(|(vswitch, vlan)| PortGroupSpec {
            vswitch,
            vlan: Vlan::Access(vlan),
            security: Security::default(),
            shaping: Shaping::default(),
            mac_learning: None,
            teaming: None,
            traffic_class: taut_api::network_io::TrafficClass::default(),
        }),
        4..5,
    );
    let netns = btree_map(
        names("ns", 3),
        (names("pg", 4), 0..3u8).prop_map(|(portgroup, ip)| NetnsSpec {
            netns: "x".into(),
            portgroup,
            mac: None,
            ip: Some(format!("10.0.0.{}/24", ip + 1).parse().unwrap()),
            gateway: None,
            ifname: "taut0".into(),
        }),
        0..3,
    );
    let external = btree_map(
        names("ex", 3),
        (names("pg", 4), any::<bool>()).prop_map(|(portgroup, listen)| ExternalPortSpec {
            portgroup,
            socket: "/s".into(),
            role: if listen { SocketRole::Listen } else { SocketRole::Connect },
            mac: None,
            offloads: false,
            queues: QueuePairs::default(),
            coalescing: NicCoalescing::HostDefault,
            trusted: false,
        }),
        0..3,
    );
    let netdevs = names("pg", 4).prop_map(|portgroup| NetdevSpec { portgroup, mac: None });
    let netdevs = btree_map(names("vnet", 2), netdevs, 0..2);
    let uplinks = btree_map(names("eth", 2), names("sw", 2).prop_map(UplinkSpec::new), 0..2);
    (btree_map(names("vm", 5), vm(), 0..5), portgroups, netns, external, netdevs, uplinks).prop_map(
        |(vms, portgroups, netns, external, netdevs, uplinks)| {
            let mut desired = Desired { portgroups, netns, external, netdevs, uplinks, ..Desired::default() };
            for (name, mut vm) in vms {
                vm.vm.vmci.iter_mut().for_each(|vmci| assign_cid(&desired, vmci));
                desired.vms.insert(name, vm);
            }
            desired.numbers = assign_numbers(&desired).unwrap();
            desired
        },
    )
}

/// Every port of the fabric's configuration.
fn configured(plan: &Plan) -> BTreeSet<PortId> {
    let sockets = plan.fabric.sockets.iter().map(|socket| socket.id);
    plan.fabric.ports.iter().map(|port| port.id).chain(sockets).collect()
}

/// Carries a plan out, as a host and a fabric that never fail would.
fn carry_out(desired: &Desired, observed: &mut Observed, plan: &Plan) {
    let wanted = configured(plan);
    observed.fabric.ports.retain(|port, _| wanted.contains(port));
    for port in wanted {
        observed.fabric.ports.entry(port).or_default();
    }
    for action in &plan.actions {
        match action {
            Action::StartVm(name) => {
                let vm = &desired.vms[name].vm;
                let process = Process {
                    pid: 1,
                    kind: vm.kind,
                    sockets: (0..vm.nics.len()).collect(),
                    vmci: vm.vmci.is_some(),
                    ..Process::default()
                };
                let seen = observed.vms.entry(name.clone()).or_default();
                seen.process = Some(process);
                seen.vmci_socket = vm.vmci.is_some();
                connect(desired, observed, name);
            }
            Action::StopVm(name) => drop(observed.vms.insert(name.clone(), VmSeen::default())),
            Action::ListenForVmci { vm, port } => {
                observed.vms.entry(vm.clone()).or_default().vmci_socket = true;
                attach(observed, *port);
            }
            Action::ListenForHost { vm, port } => {
                observed.vms.entry(vm.clone()).or_default().host_socket = true;
                observed.fabric.ports.get_mut(port).unwrap().host_socket = true;
            }
            Action::LimitDisk(name) => {
                let limits = wanted_limits(&desired.vms[name].vm);
                let process = observed.vms.get_mut(name).and_then(|seen| seen.process.as_mut());
                process.unwrap().machine.disk_limits = limits;
            }
            // No VM here has room for it.
            Action::AddQueuePairs { vm, .. } => panic!("{vm} gets memory for queue pairs"),
            Action::SetLink { vm, index, link } => {
                let port = desired.numbers.port(&Owner::Nic(vm.clone(), *index)).unwrap();
                let process = observed.vms.get_mut(vm).and_then(|seen| seen.process.as_mut()).unwrap();
                let links_down = &mut process.machine.links_down;
                let seen = match link {
                    WantedLink::Up => links_down.remove(index).then_some(Link::Up),
                    WantedLink::Down => links_down.insert(*index).then_some(Link::Down),
                };
                let virtio = !desired.vms[vm].vm.nics[*index].model.is_emulated();
                let state = observed.fabric.ports.get_mut(&port).unwrap();
                state.link = seen.filter(|_| virtio).unwrap_or(state.link);
            }
            Action::ReplugVmci { vm } => connect(desired, observed, vm),
            Action::RemoveVmciSockets { vm } => {
                let seen = observed.vms.get_mut(vm).unwrap();
                seen.host_socket = false;
                seen.vmci_socket &= desired.vms[vm].vm.kind == VmKind::Micro;
            }
            Action::RemoveVm(name) => drop(observed.vms.remove(name)),
            Action::ConnectNic { port, .. } | Action::ConnectVmci { port, .. } => attach(observed, *port),
            Action::AttachNetns { name, port } => {
                let (spec, mtu) = (desired.netns[name].clone(), mtu_of(desired, &Owner::Netns(name.clone())));
                observed.netns.insert(
                    name.clone(),
                    NetnsSeen { spec, made_netns: true, namespace: None, mtu, lost: false },
                );
                attach(observed, *port);
            }
            Action::AttachExternal { name, port } => {
                let spec = desired.external[name].clone();
                observed.external.insert(name.clone(), ExternalSeen { spec });
                attach(observed, *port);
            }
            Action::AttachUplink { name, port } => {
                let mtu_for = mtu_of(desired, &Owner::Uplink(name.clone()));
                let seen = InterfaceSeen { mtu_for, ..InterfaceSeen::default() };
                observed.uplinks.insert(name.clone(), seen);
                attach(observed, *port);
            }
            Action::AttachNetdev { name, port } => {
                let mtu_for = mtu_of(desired, &Owner::Netdev(name.clone()));
                let seen = InterfaceSeen { mtu_for, ..InterfaceSeen::default() };
                observed.netdevs.insert(name.clone(), seen);
                attach(observed, *port);
            }
            Action::DetachNetdev(name) => drop(observed.netdevs.remove(name)),
            Action::DetachUplink(name) => drop(observed.uplinks.remove(name)),
            Action::DetachNetns(name) => drop(observed.netns.remove(name)),
            Action::DetachExternal(name) => drop(observed.external.remove(name)),
            Action::SetMtu(owner) => {
                let mtu = mtu_of(desired, owner);
                match owner {
                    Owner::Netns(name) => observed.netns.get_mut(name).unwrap().mtu = mtu,
                    Owner::Uplink(name) => observed.uplinks.get_mut(name).unwrap().mtu_for = mtu,
                    Owner::Netdev(name) => observed.netdevs.get_mut(name).unwrap().mtu_for = mtu,
                    Owner::Nic(..) | Owner::Vmci(_) | Owner::External(_) => panic!("{owner} is not set"),
                }
            }
        }
    }
}

fn mtu_of(desired: &Desired, owner: &Owner) -> Option<Mtu> {
    vswitch_mtu(desired, owner)
}

/// Connects QEMU to its device's socket, on which the fabric must listen.
fn connect(desired: &Desired, observed: &mut Observed, vm: &Name) {
    if desired.vms[vm].vm.vmci.is_none() || desired.vms[vm].vm.kind == VmKind::Micro {
        return;
    }
    let port = desired.numbers.port(&Owner::Vmci(vm.clone())).unwrap();
    let state = observed.fabric.ports.get_mut(&port).unwrap();
    assert!(state.attached && observed.vms[vm].vmci_socket, "QEMU would not start");
    state.session = true;
}

fn attach(observed: &mut Observed, port: PortId) {
    let state = observed.fabric.ports.get_mut(&port).expect("only configured ports are attached");
    state.attached = true;
    state.link = Link::Up;
}

fn fresh() -> Observed {
    let host = HostSeen { memory_total: TOTAL, probed: true, ..HostSeen::default() };
    let fabric = FabricSeen { ready: true, ..FabricSeen::default() };
    Observed { host, fabric, ..Observed::default() }
}

/// Plans and carries out until nothing changes.
fn settle(desired: &Desired, observed: &mut Observed) {
    for _ in 0..10 {
        let before = observed.clone();
        carry_out(desired, observed, &plan(desired, &before, &HostReport::default()));
        if *observed == before {
            return;
        }
    }
    panic!("it never settles: {:?}", plan(desired, observed, &HostReport::default()).actions);
}

proptest! {
    #[test]
    fn a_carried_out_plan_leaves_nothing_to_do(desired in desired()) {
        let mut observed = fresh();
        settle(&desired, &mut observed);
        let again = plan(&desired, &observed, &HostReport::default());
        prop_assert_eq!(&again.actions, &[]);
        let mut after = observed.clone();
        carry_out(&desired, &mut after, &again);
        prop_assert_eq!(plan(&desired, &after, &HostReport::default()), again);
        prop_assert_eq!(after, observed);
    }

    #[test]
    fn everything_no_longer_wanted_is_removed(before in desired(), mut after in desired()) {
        let mut observed = fresh();
        settle(&before, &mut observed);
        after.numbers = before.numbers;
        after.numbers = assign_numbers(&after).unwrap();
        settle(&after, &mut observed);
        for (name, seen) in &observed.vms {
            prop_assert!(after.vms.contains_key(name));
            prop_assert!(seen.process.is_none() || after.vms[name].power == Power::On);
            prop_assert!(!seen.host_socket || after.vms[name].vm.vmci.is_some());
        }
        prop_assert_eq!(observed.netns.keys().collect::<Vec<_>>(), after.netns.keys().collect::<Vec<_>>());
        prop_assert_eq!(observed.uplinks.keys().collect::<Vec<_>>(), after.uplinks.keys().collect::<Vec<_>>());
        prop_assert_eq!(observed.external.keys().collect::<Vec<_>>(), after.external.keys().collect::<Vec<_>>());
        let wanted = configured(&plan(&after, &observed, &HostReport::default()));
        prop_assert_eq!(observed.fabric.ports.keys().copied().collect::<BTreeSet<_>>(), wanted);
    }

    #[test]
    fn port_numbers_are_unique_and_keep_their_owners(before in desired(), mut after in desired()) {
        after.numbers = before.numbers.clone();
        let numbers = assign_numbers(&after).unwrap();
        let unique: BTreeSet<_> = numbers.ports.values().collect();
        prop_assert_eq!(unique.len(), numbers.ports.len());
        let owners = after.ports().count() + after.sockets().count() + after.uplinks.len();
        prop_assert_eq!(numbers.ports.len(), owners);
        for (owner, number) in &numbers.ports {
            prop_assert!(before.numbers.ports.get(owner).is_none_or(|old| old == number), "{} was renumbered", owner);
        }
    }

    #[test]
    fn segments_are_equal_iff_vswitches_are_and_both_links_are_up(desired in desired()) {
        let down: BTreeSet<String> = desired
            .ports()
            .filter(|(owner, ..)| is_taken_down(&desired, owner))
            .map(|(owner, ..)| owner.to_string())
            .collect();
        let vswitch = |owner: &str| {
            let grouped = desired.ports().find(|(found, _, _)| found.to_string() == owner);
            let grouped = grouped.map(|(_, group, _)| &desired.portgroups[group].vswitch);
            let uplink = || &desired.uplinks[&name(owner.strip_prefix("uplink/").unwrap())].vswitch;
            grouped.unwrap_or_else(uplink).clone()
        };
        let ports = plan(&desired, &fresh(), &HostReport::default()).fabric.ports;
        for a in &ports {
            for b in &ports {
                let apart = down.contains(&a.owner) || down.contains(&b.owner);
                let together = if apart { a.id == b.id } else { vswitch(&a.owner) == vswitch(&b.owner) };
                prop_assert_eq!(a.segment == b.segment, together);
            }
        }
    }

    #[test]
    fn a_vm_that_is_off_failed_or_too_big_is_not_started(desired in desired(), failed in names("vm", 5)) {
        let mut observed = fresh();
        observed.vms.insert(failed.clone(), VmSeen { failure: Some("burnt".into()), ..VmSeen::default() });
        let plan = plan(&desired, &observed, &HostReport::default());
        for action in &plan.actions {
            if let Action::StartVm(name) = action {
                let vm = &desired.vms[name];
                prop_assert_eq!(vm.power, Power::On);
                prop_assert_ne!(name, &failed);
                prop_assert!(vm.vm.memory.0 <= TOTAL.0);
            }
        }
        for (name, vm) in &desired.vms {
            let refused = plan.refusals.iter().find(|refusal| refusal.vm == *name);
            prop_assert_eq!(refused.is_some(), vm.power == Power::On && vm.vm.memory.0 > TOTAL.0);
            if let Some(refusal) = refused {
                prop_assert!(refusal.reason.contains(&vm.vm.memory.to_string()));
                prop_assert!(refusal.reason.contains(&TOTAL.to_string()));
            }
        }
    }

    #[test]
    fn nothing_is_attached_before_the_fabric_is_ready(desired in desired()) {
        let mut observed = fresh();
        settle(&desired, &mut observed);
        let attached = observed.fabric.ports.values().filter(|state| state.attached).count();
        observed.fabric.ports.values_mut().for_each(|state| state.attached = false);
        observed.fabric.ready = false;
        prop_assert_eq!(plan(&desired, &observed, &HostReport::default()).actions, []);
        observed.fabric.ready = true;
        let again = plan(&desired, &observed, &HostReport::default()).actions.len();
        prop_assert_eq!(again, attached, "each port is attached again");
    }
}

#[test]
fn a_changed_namespace_attachment_is_detached_and_attached() {
    let spec: NetnsSpec = serde_json::from_str(r#"{"netns": "a", "portgroup": "lan"}"#).unwrap();
    let lan: PortGroupSpec = serde_json::from_str(r#"{"vswitch": "sw"}"#).unwrap();
    let mut desired = Desired::default();
    desired.portgroups.insert(name("lan"), lan);
    desired.netns.insert(name("a"), spec);
    desired.numbers = assign_numbers(&desired).unwrap();
    let mut observed = fresh();
    settle(&desired, &mut observed);
    desired.netns.get_mut(&name("a")).unwrap().ip = Some("10.0.0.9/24".parse().unwrap());
    let actions = plan(&desired, &observed, &HostReport::default()).actions;
    assert_eq!(
        actions,
        [Action::DetachNetns(name("a")), Action::AttachNetns { name: name("a"), port: PortId(0) }]
    );
    // A changed port group needs a new configuration of the fabric and no new device.
    settle(&desired, &mut observed);
    desired.portgroups.insert(name("other"), desired.portgroups[&name("lan")].clone());
    desired.netns.get_mut(&name("a")).unwrap().portgroup = name("other");
    assert_eq!(plan(&desired, &observed, &HostReport::default()).actions, []);
}

/// A running QEMU VM whose VMCI device is connected to the fabric, and the device's port.
fn with_vmci() -> (Desired, Observed, PortId) {
    let mut desired = Desired::default();
    let mut vm: VmDesired = serde_json::from_value(serde_json::json!({ "power": "on", "vmci": {} })).unwrap();
    assign_cid(&desired, vm.vm.vmci.as_mut().unwrap());
    desired.vms.insert(name("db"), vm);
    desired.numbers = assign_numbers(&desired).unwrap();
    let mut observed = fresh();
    settle(&desired, &mut observed);
    let port = desired.numbers.port(&Owner::Vmci(name("db"))).unwrap();
    (desired, observed, port)
}

#[test]
fn qemu_starts_after_the_fabric_listens_for_its_vmci_device() {
    let (desired, _, port) = with_vmci();
    let (vm, mut observed) = (name("db"), fresh());
    let first = plan(&desired, &observed, &HostReport::default());
    assert_eq!(first.actions, [], "the fabric does not have the device yet");
    carry_out(&desired, &mut observed, &first);
    let second = plan(&desired, &observed, &HostReport::default());
    let (listen, host) =
        (Action::ListenForVmci { vm: vm.clone(), port }, Action::ListenForHost { vm: vm.clone(), port });
    assert_eq!(second.actions, [host, listen]);
    carry_out(&desired, &mut observed, &second);
    assert_eq!(plan(&desired, &observed, &HostReport::default()).actions, [Action::StartVm(vm)]);
}

#[test]
fn a_vmci_device_that_lost_the_fabric_is_replugged() {
    let (desired, mut observed, port) = with_vmci();
    let vm = name("db");
    // Both the fabric and the daemon were restarted, and no session was handed over.
    *observed.fabric.ports.get_mut(&port).unwrap() = PortSeen::default();
    let actions = plan(&desired, &observed, &HostReport::default()).actions;
    let host = Action::ListenForHost { vm: vm.clone(), port };
    assert_eq!(actions, [host, Action::ListenForVmci { vm: vm.clone(), port }]);
    let listen = plan(&desired, &observed, &HostReport::default());
    carry_out(&desired, &mut observed, &listen);
    assert_eq!(plan(&desired, &observed, &HostReport::default()).actions, [Action::ReplugVmci { vm }]);
    settle(&desired, &mut observed);
}

#[test]
fn a_vmci_device_is_added_at_the_next_start_and_removed_at_once() {
    let (mut desired, mut observed, port) = with_vmci();
    let vm = name("db");
    let vmci = desired.vms.get_mut(&vm).unwrap().vm.vmci.take();
    assert_eq!(plan(&desired, &observed, &HostReport::default()).fabric.sockets, []);
    settle(&desired, &mut observed);
    assert!(observed.vms[&vm].process.is_some());
    desired.vms.get_mut(&vm).unwrap().vm.vmci = vmci;
    let socket = |observed: &Observed| {
        let sockets = plan(&desired, observed, &HostReport::default()).fabric.sockets;
        sockets.into_iter().map(|socket| (socket.id, socket.owner, socket.cid)).next()
    };
    let is = Some((port, "vm/db/vmci".to_owned(), Cid::FIRST));
    assert_eq!(socket(&observed), is, "the process still has it");
    observed.vms.get_mut(&vm).unwrap().process.as_mut().unwrap().vmci = false;
    assert_eq!(socket(&observed), None);
    observed.vms.insert(vm, VmSeen::default());
    assert_eq!(socket(&observed), is);
}

#[test]
fn a_vm_keeps_the_pcpus_of_the_vcpus_that_it_runs_with() {
    let cpu = |id| taut_api::host::Cpu { id, package: 0, core: id, node: 0, llc: 0 };
    let mut observed = fresh();
    observed.host.cpus = (0..6).map(cpu).collect();
    let vm = serde_json::json!({
        "power": "on", "vcpus": 2, "memory": "64MiB", "memory_reservation": "full",
        "cpu": { "reservation": "full" }, "latency_sensitivity": "high",
    });
    let document: VmDesired = serde_json::from_value(vm).unwrap();
    let size = Some(MachineSize::of(&document.vm));
    let machine = MachineSeen { size, ..MachineSeen::default() };
    let process = Process { pid: 7, machine, ..Process::default() };
    observed.vms.insert(name("vm0"), VmSeen { process: Some(process), ..VmSeen::default() });
    let mut desired = Desired { vms: [(name("vm0"), document)].into(), ..Desired::default() };
    let owned = |desired: &Desired, observed: &Observed| {
        plan(desired, observed, &HostReport::default()).exclusive[&name("vm0")].cpus.len()
    };
    assert_eq!(owned(&desired, &observed), 2);
    desired.vms.get_mut(&name("vm0")).unwrap().vm.vcpus = 4;
    assert_eq!(owned(&desired, &observed), 2, "the process has two vCPUs");
    observed.vms.clear();
    assert_eq!(owned(&desired, &observed), 4, "the next one has four");
}

#[test]
fn the_host_keeps_devices_of_a_vm_until_its_start_has_failed() {
    let vm = serde_json::json!({ "power": "on", "passthrough": [{ "address": "3b:00.0" }] });
    let vms = [(name("vm0"), serde_json::from_value(vm).unwrap())].into();
    let (mut desired, mut observed) = (Desired { vms, ..Desired::default() }, fresh());
    let host = |desired: &Desired, observed: &Observed| plan(desired, observed, &HostReport::default()).host;
    let both = |host: HostPlan| (host.vms.into_keys().collect::<Vec<_>>(), host.starting);
    assert_eq!(both(host(&desired, &observed)), (vec![], [name("vm0")].into()), "it has no process yet");
    let running = VmSeen { process: Some(Process::default()), ..VmSeen::default() };
    observed.vms.insert(name("vm0"), running);
    assert_eq!(both(host(&desired, &observed)), (vec![name("vm0")], [].into()));
    let failed = VmSeen { failure: Some("QEMU has ended".to_owned()), ..VmSeen::default() };
    observed.vms.insert(name("vm0"), failed);
    assert_eq!(both(host(&desired, &observed)), (vec![], [].into()));
    observed.vms.clear();
    desired.vms.get_mut(&name("vm0")).unwrap().power = Power::Off;
    assert_eq!(both(host(&desired, &observed)), (vec![], [].into()), "it was given up");
}
