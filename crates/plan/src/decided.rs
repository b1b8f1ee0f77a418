//! What one run of the rules decides for all VMs together: the plan acts on it, and what a VM is told is read from it.
//!
//! Placing everybody takes a look at every VM; so whoever explains many VMs has it done once.

use std::collections::{BTreeMap, BTreeSet};

use taut_api::Name;

use crate::placement::Placement;
use crate::shares::Entitlement;
use crate::workers::Near;
use crate::{Desired, Observed, affinity, latency, shares, workers};

/// The decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// Who owns which pCPUs, and who would and does not.
    pub placement: Placement,
    /// pCPUs that the vCPUs of each other VM are bound to, where its `[placement]` names some.
    pub bound: BTreeMap<Name, BTreeSet<u32>>,
    /// What each running VM is to get of CPU and memory; empty while nobody asks for anything.
    pub entitled: BTreeMap<Name, Entitlement>,
    /// Where the fabric's threads run that are left to the plan, if not anywhere.
    pub near: Option<Near>,
}

impl Decided {
    /// Runs the rules.
    pub fn new(desired: &Desired, observed: &Observed) -> Self {
        let placement = latency::rule(desired, observed);
        let bound = affinity::rule(desired, observed, &placement);
        let near = workers::rule(desired, observed, &placement);
        Self { placement, bound, entitled: shares::rule(desired, observed), near }
    }
}
