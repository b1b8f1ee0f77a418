//! The fabric's whole wanted state: a port or a VMCI device for everything that runs or is to run.

use taut_api::Coalescing;
use taut_api::fabric::FabricConfig;
use taut_api::fabric::config::{PortConfig, PortKind, SocketWorker, WorkerConfig, WorkerMode};
use taut_api::shaping::Shaping;
use taut_api::vm::{NicModel, Power};

use crate::{Decided, Desired, Observed, Owner, coalescing, lro, vmci};

/// One port for each attachment and for each card of a VM that is wanted or still has its process.
pub fn rule(desired: &Desired, observed: &Observed, decided: &Decided) -> FabricConfig {
    let ports = desired.ports().filter_map(|(owner, portgroup, mac)| {
        let kind = kind(desired, observed, &owner)?;
        let group = desired.portgroups.get(portgroup)?;
        Some(PortConfig {
            id: desired.numbers.port(&owner)?,
            owner: owner.to_string(),
            kind,
            segment: desired.numbers.segment(&group.vswitch)?,
            vlan: group.vlan.clone(),
            mac,
            security: group.security,
            shaping: shaping(desired, &owner).unwrap_or(group.shaping),
            mac_learning: group.mac_learning,
            coalescing: coalescing::rule(desired, observed, &owner).unwrap_or(Coalescing::Disabled),
            lro: lro::rule(desired, &owner),
        })
    });
    let workers = desired.workers.count();
    let near = decided.near.as_ref().map(|near| near.cpus.iter().copied().collect()).unwrap_or_default();
    FabricConfig {
        revision: 0,
        ports: ports.collect(),
        sockets: vmci::config(desired, observed),
        workers: WorkerConfig {
            mode: mode(observed, decided, desired.workers.mode, workers),
            cpus: desired.workers.cpus.clone(),
            near,
        },
        socket_worker: SocketWorker {
            mode: mode(observed, decided, desired.socket_worker.mode, workers),
            ..desired.socket_worker
        },
    }
}

/// When a worker sleeps, of so many. Where VMs own pCPUs, workers go before everybody else on those that are left; then, if these are not
/// more than the workers, none keeps one busy only to wait there: what it waits for may need it.
fn mode(observed: &Observed, decided: &Decided, mode: WorkerMode, workers: usize) -> WorkerMode {
    let owned = decided.placement.exclusive().len();
    let left = match &decided.near {
        Some(near) if !near.cpus.is_empty() => near.cpus.len(),
        _ => observed.cpus.len().saturating_sub(owned),
    };
    let waits = matches!(mode, WorkerMode::Adaptive { .. });
    if owned > 0 && left <= workers && waits { WorkerMode::Interrupt } else { mode }
}

/// Shaping that a card has of its own, instead of its port group's.
fn shaping(desired: &Desired, owner: &Owner) -> Option<Shaping> {
    let Owner::Nic(name, index) = owner else { return None };
    desired.vms.get(name)?.vm.nics.get(*index)?.shaping
}

/// What is at the other end; `None` while nothing is to be.
fn kind(desired: &Desired, observed: &Observed, owner: &Owner) -> Option<PortKind> {
    match owner {
        Owner::Nic(name, index) => {
            let vm = desired.vms.get(name)?;
            let runs = observed.vms.get(name).is_some_and(|seen| seen.process.is_some());
            let nic = vm.vm.nics.get(*index).filter(|_| runs || vm.power == Power::On)?;
            Some(match nic.model {
                NicModel::Virtio => {
                    PortKind::VhostUser { offloads: nic.offloads, queue_pairs: nic.queues.get() }
                }
                NicModel::Vmxnet3 | NicModel::E1000 | NicModel::E1000e | NicModel::Vlance => PortKind::Stream,
            })
        }
        Owner::Vmci(_) => None,
        Owner::Netns(_) => Some(PortKind::Tap { offloads: true }),
        Owner::External(name) => {
            let port = desired.external.get(name)?;
            Some(PortKind::VhostUser { offloads: port.offloads, queue_pairs: port.queues.get() })
        }
    }
}
