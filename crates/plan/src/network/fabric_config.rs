//! The fabric's whole wanted configuration: its ports, VMCI devices and threads.

use std::net::Ipv4Addr;

use taut_api::fabric::FabricConfig;
use taut_api::fabric::config::{
    NetworkIoConfig, PortConfig, PortKind, SegmentId, SocketWorker, WorkerConfig, WorkerMode,
};
use taut_api::multicast::MulticastFilter;
use taut_api::network::VSwitchSpec;
use taut_api::network_io::NetworkAllocation;
use taut_api::vm::{NicModel, Power};
use taut_api::{Coalescing, Name};

use super::addresses::effective_address;
use super::coalescing::choose_coalescing;
use super::front_ends::limit_front_end;
use super::links::{is_taken_down, segment_of_its_own};
use super::lro::choose_lro;
use super::mirrors::configure_mirrors;
use super::mtu::limit_packets;
use super::shaping::choose_shaping;
use super::teams::Teams;
use super::uplinks::configure_uplinks;
use super::vsock_devices::configure_vsock_devices;
use crate::facts::{Desired, Observed, Owner};
use crate::placement::problem::Placement;
use crate::placement::workers::Near;

/// Configures a port for each attachment, external port and uplink, and for each vNIC of a VM that
/// is wanted on or still has a process. `near` is where the plan puts the fabric's threads.
pub fn configure_fabric(
    desired: &Desired,
    observed: &Observed,
    placement: &Placement,
    near: Option<&Near>,
) -> FabricConfig {
    let teams = Teams::form(desired);
    let ports = desired.ports().filter_map(|(owner, portgroup, mac)| {
        let kind = kind(desired, observed, &owner)?;
        let group = desired.portgroups.get(portgroup)?;
        let set = effective_address(observed, &owner);
        Some(PortConfig {
            id: desired.numbers.port(&owner)?,
            owner: owner.to_string(),
            kind,
            segment: segment(desired, &owner, &group.vswitch)?,
            vlan: group.vlan.clone(),
            mac,
            effective: set.map(|set| set.mac),
            effective_order: set.map_or(0, |set| set.order),
            ip: ip(desired, &owner),
            security: group.security,
            shaping: choose_shaping(desired, &owner, portgroup).shaping(),
            mac_learning: group.mac_learning,
            coalescing: choose_coalescing(desired, observed, &owner).unwrap_or(Coalescing::Disabled),
            lro: choose_lro(desired, &owner),
            mtu: limit_packets(desired, observed, &owner),
            front_end: limit_front_end(desired, observed, &owner),
            team: teams.of(portgroup).filter(|_| !is_taken_down(desired, &owner)),
            speed: None,
            traffic_class: group.traffic_class,
            allocation: allocation(desired, &owner),
            mirrors: Vec::new(),
        })
    });
    let mut ports: Vec<_> = ports.chain(configure_uplinks(desired, observed)).collect();
    configure_mirrors(desired, &mut ports);
    let workers = desired.workers.count();
    let mode = |mode| sleep_mode(observed, placement, near, mode, workers);
    let near = near.map(|near| near.cpus.iter().copied().collect()).unwrap_or_default();
    FabricConfig {
        revision: 0,
        ports,
        teams: teams.into_configs(),
        network_io: network_io(desired),
        snooping: snooping(desired),
        sockets: configure_vsock_devices(desired, observed),
        workers: WorkerConfig { mode: mode(desired.workers.mode), cpus: desired.workers.cpus.clone(), near },
        socket_worker: SocketWorker { mode: mode(desired.socket_worker.mode), ..desired.socket_worker },
    }
}

/// The segment of a port: that of its vSwitch, or one of its own while its link is down.
fn segment(desired: &Desired, owner: &Owner, vswitch: &Name) -> Option<SegmentId> {
    if is_taken_down(desired, owner) {
        desired.numbers.port(owner).map(segment_of_its_own)
    } else {
        desired.numbers.segment(vswitch)
    }
}

/// Network I/O control of the segments that have it.
fn network_io(desired: &Desired) -> Vec<NetworkIoConfig> {
    let is_on = |(_, spec): &(&Name, &VSwitchSpec)| spec.network_io.enabled;
    let of_vswitch = |(name, spec): (&Name, &VSwitchSpec)| {
        let classes = spec.network_io.classes.clone();
        Some(NetworkIoConfig { segment: desired.numbers.segment(name)?, classes })
    };
    desired.vswitches.iter().filter(is_on).filter_map(of_vswitch).collect()
}

/// The segments with snooping.
fn snooping(desired: &Desired) -> Vec<SegmentId> {
    let snoops = |(_, spec): &(&Name, &VSwitchSpec)| spec.multicast == MulticastFilter::Snooping;
    let of_vswitch = |(name, _)| desired.numbers.segment(name);
    desired.vswitches.iter().filter(snoops).filter_map(of_vswitch).collect()
}

/// The part of each uplink for a port. Only cards of VMs can have another than the default.
fn allocation(desired: &Desired, owner: &Owner) -> NetworkAllocation {
    let Owner::Nic(name, index) = owner else { return NetworkAllocation::default() };
    let nic = desired.vms.get(name).and_then(|vm| vm.vm.nics.get(*index));
    nic.map_or_else(NetworkAllocation::default, |nic| nic.uplink_allocation)
}

/// The IPv4 address that the document of a port's owner gives it.
fn ip(desired: &Desired, owner: &Owner) -> Option<Ipv4Addr> {
    let net = match owner {
        Owner::Nic(name, index) => desired.vms.get(name)?.vm.nics.get(*index)?.ip,
        Owner::Netns(name) => desired.netns.get(name)?.ip,
        Owner::External(_) | Owner::Netdev(_) | Owner::Uplink(_) | Owner::Vmci(_) => None,
    };
    net.map(|net| net.addr())
}

/// The mode of one of `workers` threads. Where VMs own pCPUs, the fabric's threads have real-time
/// priority on those that are left. If these are no more than the threads, no thread may poll: the
/// process that it waits for may need its pCPU.
fn sleep_mode(
    observed: &Observed,
    placement: &Placement,
    near: Option<&Near>,
    mode: WorkerMode,
    workers: usize,
) -> WorkerMode {
    let owned = placement.exclusive().len();
    let left = match near {
        Some(near) if !near.cpus.is_empty() => near.cpus.len(),
        _ => observed.host.cpus.len().saturating_sub(owned),
    };
    let adaptive = matches!(mode, WorkerMode::Adaptive { .. });
    if owned > 0 && left <= workers && adaptive { WorkerMode::Interrupt } else { mode }
}

/// The kind of the port's other end; `None` while the port is not wanted.
fn kind(desired: &Desired, observed: &Observed, owner: &Owner) -> Option<PortKind> {
    match owner {
        Owner::Nic(name, index) => {
            let vm = desired.vms.get(name)?;
            let runs = observed.process(name).is_some();
            let nic = vm.vm.nics.get(*index).filter(|_| runs || vm.power == Power::On)?;
            Some(match nic.model {
                NicModel::Virtio => {
                    PortKind::VhostUser { offloads: nic.offloads, queue_pairs: nic.queues.get() }
                }
                NicModel::Vmxnet3 | NicModel::E1000 | NicModel::E1000e | NicModel::Vlance => PortKind::Stream,
            })
        }
        Owner::Vmci(_) | Owner::Uplink(_) => None,
        Owner::Netdev(_) => Some(PortKind::Netdev),
        Owner::Netns(_) => Some(PortKind::Tap { offloads: true }),
        Owner::External(name) => {
            let port = desired.external.get(name)?;
            Some(PortKind::VhostUser { offloads: port.offloads, queue_pairs: port.queues.get() })
        }
    }
}

#[cfg(test)]
mod tests {
    use taut_api::host::Cpu;
    use taut_api::network::PortGroupSpec;
    use taut_api::shaping::{Shape, Shaping};
    use taut_api::units::BitRate;

    use super::*;
    use crate::facts::HostSeen;
    use crate::network::numbering::assign_numbers;
    use crate::placement::problem::Grant;

    #[test]
    fn workers_with_real_time_priority_do_not_poll_on_the_last_pcpu() {
        let adaptive = WorkerMode::Adaptive { poll_us: 50 };
        let mode = |owned: &[u32], cpus, mode| {
            let cpu = |id| Cpu { id, package: 0, core: id, node: 0, llc: 0 };
            let host = HostSeen { cpus: (0..cpus).map(cpu).collect(), ..HostSeen::default() };
            let observed = Observed { host, ..Observed::default() };
            let mut desired = Desired::default();
            desired.workers.mode = mode;
            let grant = |cpu: &u32| {
                let vm: Name = format!("vm{cpu}").parse().unwrap();
                (vm, Grant { cpus: vec![*cpu], idle: Vec::new() })
            };
            let placement = Placement { granted: owned.iter().map(grant).collect(), ..Placement::default() };
            configure_fabric(&desired, &observed, &placement, None).workers.mode
        };
        assert_eq!(mode(&[], 2, adaptive), adaptive, "no VM owns a pCPU");
        assert_eq!(mode(&[1], 2, adaptive), WorkerMode::Interrupt);
        assert_eq!(mode(&[1], 3, adaptive), adaptive, "there is a pCPU for others");
        assert_eq!(mode(&[1], 2, WorkerMode::Polling), WorkerMode::Polling, "the user asked for it");
    }

    #[test]
    fn a_vnic_is_shaped_like_its_port_group_unless_it_has_its_own_shaping() {
        let steady = |rate| Shaping { to_guest: Some(Shape::steady(BitRate(rate))), to_switch: None };
        let name = |text: &str| text.parse::<Name>().unwrap();
        let mut desired = Desired::default();
        let lan =
            PortGroupSpec { shaping: steady(1000), ..serde_json::from_str(r#"{"vswitch": "sw"}"#).unwrap() };
        desired.portgroups.insert(name("lan"), lan);
        let nics = serde_json::json!([
            { "portgroup": "lan" },
            { "portgroup": "lan", "shaping": { "to_guest": { "average": "2kbit" } } },
            { "portgroup": "lan", "shaping": { "to_guest": "off" } },
        ]);
        let vm = serde_json::from_value(serde_json::json!({ "nic": nics, "power": "on" })).unwrap();
        desired.vms.insert(name("db"), vm);
        desired.numbers = assign_numbers(&desired).unwrap();
        let config = configure_fabric(&desired, &Observed::default(), &Placement::default(), None);
        let shapes: Vec<_> = config.ports.iter().map(|port| port.shaping).collect();
        assert_eq!(shapes, [steady(1000), steady(2000), Shaping::default()]);
    }
}
