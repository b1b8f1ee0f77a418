//! Records of running VMs for the next daemon.

use std::collections::BTreeSet;
use std::fs;

use serde::{Deserialize, Serialize};
use taut_api::enforcement::ProcessLimits;
use taut_api::machine::{DiskLimits, VmAccelerator};
use taut_api::vm::VmKind;
use taut_api::{Bytes, MacAddr, Mtu};
use taut_plan::facts::{MachineSize, SetAddress};
use taut_vm::launch::{RunPaths, Tuning};

use super::added_queue_pairs::PendingMemory;
use super::queue_pairs::QueuePairFile;
use crate::process::Identity;

/// The record of a running VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) identity: Identity,
    #[serde(flatten)]
    pub(super) facts: Facts,
}

/// What a daemon has to know of a running VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) kind: VmKind,
    pub(super) accelerator: VmAccelerator,
    /// True if it was started with a VMCI device.
    #[serde(default)]
    pub(super) vmci: bool,
    /// Memory for queue pairs, if it has any.
    #[serde(default)]
    pub(super) queue_pairs: Option<QueuePairFile>,
    /// Most memory for queue pairs that can be added while it runs without any.
    #[serde(default)]
    pub(super) queue_pairs_room: Bytes,
    /// Memory for queue pairs that is being added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pending_queue_pairs: Option<PendingMemory>,
    #[serde(default)]
    pub(super) tuning: Tuning,
    /// Limits of its disk.
    #[serde(default)]
    pub(super) disk_limits: DiskLimits,
    /// vCPUs and memory that it was started with, and memory that is being or was added.
    #[serde(default)]
    pub(super) size: Option<MachineSize>,
    /// Limits of its process; `None` if an earlier version started it.
    #[serde(default)]
    pub(super) limits: Option<ProcessLimits>,
    /// Indices of the cards whose link QEMU has taken down.
    #[serde(default)]
    pub(super) links_down: BTreeSet<usize>,
    /// Address that the guest's driver has set for each card, where QEMU tells it.
    #[serde(default)]
    pub(super) addresses: Vec<Option<MacAddr>>,
    /// Place of each of these addresses in the order in which all of them were set; none of an
    /// earlier version's.
    #[serde(default)]
    pub(super) address_orders: Vec<u64>,
    /// MTU that the guest was told for each card by its index; none of an earlier version's. A map
    /// would have keys that serde reads as text in a flattened record.
    #[serde(default)]
    pub(super) mtus: Vec<(usize, Mtu)>,
    /// QEMU has finished starting.
    #[serde(default = "ready_without_record")]
    pub(super) ready: bool,
    /// Indices of the cards whose sockets are in the network namespace of its process.
    #[serde(default)]
    pub(super) private_cards: BTreeSet<usize>,
    /// Images of its disk: the one that the disk names, then those below.
    #[serde(default)]
    pub(super) images: Vec<ImageFile>,
    /// User of its process; `None` if an earlier version started it as root.
    #[serde(default)]
    pub(super) user: Option<u32>,
    /// Walls around its process that this host lacks.
    #[serde(default)]
    pub(super) missing_walls: Vec<String>,
    /// The process waits behind its walls, or is about to become its program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) waiting: bool,
}

/// An image of a VM's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageFile {
    /// Name of its file, or a description for users.
    pub(super) name: String,
    /// Device and inode of its file.
    #[serde(default)]
    pub(super) file: Option<(u64, u64)>,
}

impl Facts {
    /// Takes over the addresses of its cards, and returns those before. `place` is the next place
    /// in the order in which drivers set addresses.
    pub(super) fn set_addresses(
        &mut self,
        addresses: &[Option<MacAddr>],
        mut place: u64,
    ) -> Vec<Option<MacAddr>> {
        let before = std::mem::replace(&mut self.addresses, addresses.to_vec());
        self.address_orders.resize(addresses.len(), 0);
        for (index, order) in self.address_orders.iter_mut().enumerate() {
            if before.get(index) != addresses.get(index) {
                *order = place;
                place += 1;
            }
        }
        before
    }

    /// Returns the addresses of its cards, where they are known.
    pub(super) fn set_by_drivers(&self) -> Vec<Option<SetAddress>> {
        let order = |index: usize| self.address_orders.get(index).copied().unwrap_or_default();
        let cards = self.addresses.iter().enumerate();
        cards.map(|(index, mac)| mac.map(|mac| SetAddress { mac, order: order(index) })).collect()
    }
}

/// A VM counts as started if an earlier version of the daemon, which did not record it, left it.
const fn ready_without_record() -> bool {
    true
}

impl Record {
    /// Reads the record of a VM that has or had a process.
    pub(super) fn read(paths: &RunPaths) -> Option<Self> {
        serde_json::from_slice(&fs::read(paths.pid()).ok()?).ok()
    }
}
