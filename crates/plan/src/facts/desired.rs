//! Everything that users asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use taut_api::fabric::config::{SocketWorker, WorkerConfig};
use taut_api::host::HostSettings;
use taut_api::netdev::NetdevSpec;
use taut_api::network::{ExternalPortSpec, NetnsSpec, PortGroupSpec, VSwitchSpec};
use taut_api::pnic::{Offload, PnicSettings};
use taut_api::uplink::{UplinkBackend, UplinkSpec};
use taut_api::vm::{LatencySensitivity, Power, VmDesired};
use taut_api::{MacAddr, Name};

use super::numbers::Numbers;
use super::observed::Observed;
use super::owner::Owner;
use super::vm::MachineSize;

/// The documents of the store, and the numbers of the ports and segments that they describe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// Virtual machines.
    pub vms: BTreeMap<Name, VmDesired>,
    /// vSwitches.
    pub vswitches: BTreeMap<Name, VSwitchSpec>,
    /// Port groups.
    pub portgroups: BTreeMap<Name, PortGroupSpec>,
    /// Network namespaces on TAP ports.
    pub netns: BTreeMap<Name, NetnsSpec>,
    /// Ports for vhost-user front ends that taut does not start.
    pub external: BTreeMap<Name, ExternalPortSpec>,
    /// Interfaces on port groups, by their names.
    pub netdevs: BTreeMap<Name, NetdevSpec>,
    /// Uplinks, by the names of their interfaces.
    pub uplinks: BTreeMap<Name, UplinkSpec>,
    /// Settings of network cards, by the names of their interfaces.
    pub pnics: BTreeMap<Name, PnicSettings>,
    /// Settings of the host.
    pub host: HostSettings,
    /// Port and segment numbers, as assigned when the documents were written.
    pub numbers: Numbers,
    /// Configuration of the fabric's workers.
    pub workers: WorkerConfig,
    /// Configuration of the fabric's thread for VMCI sockets.
    pub socket_worker: SocketWorker,
}

impl Desired {
    /// Returns the settings of the network cards that have any. A document without settings is like
    /// none. A card that is an uplink by XDP sockets merges no segments, unless its document says
    /// that it does: merged ones do not fit into the memory of frames, and the kernel itself
    /// switches merging off, without switching it on again.
    pub fn card_settings(&self) -> BTreeMap<Name, PnicSettings> {
        let set = self.pnics.iter().filter(|(_, settings)| !settings.is_empty());
        let mut set: BTreeMap<Name, PnicSettings> =
            set.map(|(name, settings)| (name.clone(), settings.clone())).collect();
        for (name, _) in self.uplinks.iter().filter(|(_, uplink)| uplink.backend == UplinkBackend::Xdp) {
            set.entry(name.clone()).or_default().offloads.entry(Offload::Lro).or_insert(false);
        }
        set
    }

    /// VMs whose user wants them on.
    pub fn vms_on(&self) -> impl Iterator<Item = (&Name, &VmDesired)> {
        self.vms.iter().filter(|(_, vm)| vm.power == Power::On)
    }

    /// Returns whether the VM's latency sensitivity is `high` or `high-ht`.
    pub fn is_latency_sensitive(&self, vm: &Name) -> bool {
        let level = self.vms.get(vm).map(|vm| vm.vm.latency_sensitivity);
        level.is_some_and(|level| level != LatencySensitivity::Normal)
    }

    /// Returns the documents with the vCPUs and memory that running VMs have. What a user changed
    /// since takes effect at the next start.
    pub fn as_running(&self, observed: &Observed) -> Cow<'_, Self> {
        self.with_sizes(observed, |_, running| running)
    }

    /// Returns the documents with the larger of what each running VM has and what its next start
    /// gives it: the host has promised both.
    pub fn as_promised(&self, observed: &Observed) -> Cow<'_, Self> {
        self.with_sizes(observed, MachineSize::larger)
    }

    /// Returns the documents with the sizes that `choose` makes of the wanted and the running one.
    fn with_sizes(
        &self,
        observed: &Observed,
        choose: fn(MachineSize, MachineSize) -> MachineSize,
    ) -> Cow<'_, Self> {
        let mut documents = Cow::Borrowed(self);
        for (name, seen) in &observed.vms {
            let running = seen.process.as_ref().and_then(|process| process.machine.size);
            let (Some(running), Some(vm)) = (running, self.vms.get(name)) else { continue };
            let wanted = MachineSize::of(&vm.vm);
            let size = choose(wanted, running);
            if size != wanted
                && let Some(vm) = documents.to_mut().vms.get_mut(name)
            {
                vm.vm.vcpus = size.vcpus;
                vm.vm.memory = size.memory;
                match &mut vm.vm.vmci {
                    Some(vmci) => vmci.queue_pairs = Some(size.queue_pairs).filter(|size| size.0 > 0),
                    // The memory of a device that was removed ends with the process.
                    None => vm.vm.leftover_queue_pairs = size.queue_pairs,
                }
            }
        }
        documents
    }

    /// Every VMCI device that a document describes.
    pub fn sockets(&self) -> impl Iterator<Item = Owner> {
        let has_one = |(_, vm): &(&Name, &VmDesired)| vm.vm.vmci.is_some();
        self.vms.iter().filter(has_one).map(|(name, _)| Owner::Vmci(name.clone()))
    }

    /// Every port of a port group that a document describes, with its port group and MAC address.
    pub fn ports(&self) -> impl Iterator<Item = (Owner, &Name, MacAddr)> {
        let resolve = |owner: Owner, portgroup, mac: Option<MacAddr>| {
            let mac = mac.unwrap_or_else(|| owner.derived_mac());
            (owner, portgroup, mac)
        };
        let nics = self.vms.iter().flat_map(move |(name, vm)| {
            let nics = vm.vm.nics.iter().enumerate();
            nics.map(move |(index, nic)| resolve(Owner::Nic(name.clone(), index), &nic.portgroup, nic.mac))
        });
        let netns = self.netns.iter();
        let netns =
            netns.map(move |(name, spec)| resolve(Owner::Netns(name.clone()), &spec.portgroup, spec.mac));
        let external = self.external.iter();
        let external = external
            .map(move |(name, spec)| resolve(Owner::External(name.clone()), &spec.portgroup, spec.mac));
        let netdevs = self.netdevs.iter();
        let netdevs =
            netdevs.map(move |(name, spec)| resolve(Owner::Netdev(name.clone()), &spec.portgroup, spec.mac));
        nics.chain(netns).chain(external).chain(netdevs)
    }
}
