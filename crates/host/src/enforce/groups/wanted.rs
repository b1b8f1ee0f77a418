//! VMs that get control groups.

use std::collections::BTreeMap;

use taut_api::Name;
use taut_api::enforcement::{GroupSettings, HostPlan, ProcessLimits};

use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cgroup::group_name;

/// A VM that gets a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a Name,
    pub(super) pid: u32,
    /// Shares, limits and reservations that its user has set.
    pub(super) settings: Option<&'a GroupSettings>,
    /// Limits of its process.
    pub(super) limits: Option<&'a ProcessLimits>,
}

impl Wanted<'_> {
    /// Returns the name of its group.
    pub(super) fn group(&self) -> String {
        group_name(self.name, self.pid)
    }

    /// Returns whether it needs a group of this controller.
    pub(super) fn needs(&self, controller: &Controller) -> bool {
        controller.is_for(self.settings, self.limits)
    }

    /// Returns whether its memory must not be swapped out.
    pub(super) fn no_swap(&self) -> bool {
        self.settings.is_some_and(|settings| settings.no_swap)
    }
}

/// Sorts VMs by the names of their groups.
pub(super) fn by_group<'a>(wanted: &[Wanted<'a>]) -> BTreeMap<String, Wanted<'a>> {
    wanted.iter().map(|vm| (vm.group(), *vm)).collect()
}

/// Returns the VMs that get a group.
pub(super) fn wanted(plan: &HostPlan) -> Vec<Wanted<'_>> {
    let vms = plan.vms.iter().map(|(name, vm)| Wanted {
        name,
        pid: vm.pid,
        settings: vm.group.as_ref(),
        limits: vm.limits.as_ref(),
    });
    vms.filter(|vm| vm.settings.is_some() || vm.limits.is_some()).collect()
}
