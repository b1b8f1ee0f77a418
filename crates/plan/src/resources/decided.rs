//! Decisions about all VMs together. The plan acts on them and explanations read from them.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;
use taut_api::enforcement::{GroupSettings, HostReport};

use super::shares::share_cpu_and_memory;
use crate::facts::{Desired, Observed};
use crate::placement::affinity::bind_shared_vcpus;
use crate::placement::exclusive::place_exclusive_vcpus;
use crate::placement::problem::Placement;
use crate::placement::workers::{Near, place_fabric_threads};

/// The decisions. Placement examines every VM, so whoever explains many VMs decides once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// The owners of pCPUs, and the VMs for which there were not enough.
    pub placement: Placement,
    /// The pCPUs that the vCPUs of each other VM are bound to, where its `[placement]` names some.
    pub shared_cpus: BTreeMap<Name, BTreeSet<u32>>,
    /// The control group of each running VM; empty while no VM needs one.
    pub groups: BTreeMap<Name, GroupSettings>,
    /// The node of the fabric's threads that the user has not bound; `None` is any.
    pub near: Option<Near>,
}

impl Decided {
    /// Runs the rules.
    pub fn new(desired: &Desired, observed: &Observed, report: &HostReport) -> Self {
        let placement = place_exclusive_vcpus(desired, observed, report);
        let shared_cpus = bind_shared_vcpus(desired, observed, &placement);
        let near = place_fabric_threads(desired, observed, &placement);
        Self { placement, shared_cpus, groups: share_cpu_and_memory(desired, observed), near }
    }
}
