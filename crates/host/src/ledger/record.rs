//! Records of the parts of enforcement beside changed files, to undo their changes after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use taut_api::Name;
use taut_api::pnic::{PnicParameter, PnicSettings};

use super::Holder;
use crate::kernel::netlink::ethtool::link::LinkSettings;
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

/// A network card whose settings were changed, or are about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CardRecord {
    /// Present name of the interface.
    pub(crate) name: String,
    /// Number of the interface, which tells it from a later one of its name.
    pub(crate) index: u32,
    /// The settings that each holder wants; a later holder's setting is in force.
    pub(crate) claims: BTreeMap<Holder, PnicSettings>,
    /// The link before the first change to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<LinkSettings>,
    /// Parameters that were changed, and their values before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parameters: BTreeMap<PnicParameter, u32>,
    /// Features that were changed, under the kernel's names, and whether each was asked for before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) features: BTreeMap<String, bool>,
}

impl CardRecord {
    /// Makes the record of a card of which nothing is changed yet.
    pub(crate) const fn new(name: String, index: u32) -> Self {
        Self {
            name,
            index,
            claims: BTreeMap::new(),
            link: None,
            parameters: BTreeMap::new(),
            features: BTreeMap::new(),
        }
    }
}
