//! Records of the parts of enforcement beside changed files, to undo their changes after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use taut_api::Name;

use crate::kernel::scheduler::Class;

/// Control groups made for VMs, or about to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    /// The folder of each group, and the folder of the group that its process was in before.
    pub(crate) made: BTreeMap<PathBuf, PathBuf>,
    /// Controllers that were enabled for the subgroups of a folder (cgroup v2).
    #[serde(default)]
    pub(crate) switched_on: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl GroupRecord {
    /// Returns whether nothing is left to undo.
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.switched_on.is_empty()
    }
}

/// Processes whose threads were given real-time priority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PriorityRecord {
    /// The processes, and how they were scheduled before.
    pub(crate) processes: BTreeMap<u32, ScheduledBefore>,
    /// Real-time budgets of control groups that were changed, and the content of each file before.
    #[serde(default)]
    pub(crate) files: BTreeMap<PathBuf, String>,
}

/// How a process was scheduled before it was given real-time priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduledBefore {
    /// Start of the process in clock ticks since boot; tells it from a later one with its number.
    pub(crate) began: u64,
    /// Class of its first thread, to which all its threads return.
    pub(crate) class: Class,
}

impl PriorityRecord {
    /// Returns whether nothing is left to undo.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.files.is_empty()
    }
}

/// A PCI device taken from the host for a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TakenDevice {
    /// The VM that has the device.
    pub(crate) vm: Name,
    /// The driver that the device had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// The whole content of its `driver_override` before.
    pub(crate) driver_override: String,
}
