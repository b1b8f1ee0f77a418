//! The plan: everything that has to be done, put together from the rules.

use std::collections::BTreeMap;

use taut_api::Name;
use taut_api::enforcement::{HostPlan, HostReport};
use taut_api::fabric::FabricConfig;

use crate::facts::{Action, Desired, Observed, Refusal};
use crate::network::attachments::attach_and_detach_ports;
use crate::network::fabric_config::configure_fabric;
use crate::network::links::set_links;
use crate::network::vsock_devices::serve_vsock_devices;
use crate::placement::problem::Grant;
use crate::resources::Decided;
use crate::resources::added_queue_pairs::add_queue_pairs;
use crate::resources::disk_limits::limit_disks;
use crate::resources::host_plan::share_host;
use crate::resources::memory::refuse_oversized_vms;
use crate::resources::processes::start_and_stop_vms;

/// The outcome of [`plan()`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps to take in this order, after the fabric has its configuration. A step that fails does
    /// not affect the others, and is planned again.
    pub actions: Vec<Action>,
    /// VMs that are wanted on and are not started.
    pub refusals: Vec<Refusal>,
    /// The fabric's whole wanted configuration. The sender counts its revision.
    pub fabric: FabricConfig,
    /// The wanted state of the host.
    pub host: HostPlan,
    /// Exclusive pCPUs of VMs that run or are about to start.
    pub exclusive: BTreeMap<Name, Grant>,
}

/// Plans the steps by which what is observed becomes what is desired. `report` is what enforcement
/// of the last plan left on the host.
pub fn plan(desired: &Desired, observed: &Observed, report: &HostReport) -> Plan {
    let added = add_queue_pairs(desired, observed);
    let running = desired.as_running(observed);
    let desired = &*running;
    let decided = Decided::new(desired, observed, report);
    let refusals = refuse_oversized_vms(desired, &observed.host);
    let actions = [
        start_and_stop_vms(desired, observed, &refusals),
        serve_vsock_devices(desired, observed),
        limit_disks(desired, observed),
        added,
        set_links(desired, observed),
        attach_and_detach_ports(desired, observed),
    ]
    .concat();
    let starting = actions.iter().filter_map(|action| match action {
        Action::StartVm(name) => Some(name.clone()),
        _ => None,
    });
    let host = share_host(desired, observed, &decided, starting.collect());
    Plan {
        actions,
        refusals,
        fabric: configure_fabric(desired, observed, &decided.placement, decided.near.as_ref()),
        host,
        exclusive: decided.placement.granted,
    }
}

#[cfg(test)]
mod tests;
