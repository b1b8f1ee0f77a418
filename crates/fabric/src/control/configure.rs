//! Making ports and VMCI devices what a configuration wants them to be.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::FromFabric;
use taut_api::fabric::config::{FabricConfig, PortConfig, PortId, SocketConfig, WorkerConfig};
use tracing::{info, warn};

use super::acceptable::{Acceptable, acceptable};
use super::entry::{Behind, Entry};
use super::{Control, chain, send};
use crate::port::Port;
use crate::port::vnic_device::VnicDevice;
use crate::switch::Switch;
use crate::sys::counters::PortBlock;

impl Control {
    pub(super) fn configure(&mut self, config: FabricConfig) {
        let accepted = acceptable(&config);
        self.close_unwanted(&accepted);
        let Acceptable { ports, sockets, mut refused } = accepted;
        let changed = self.configure_ports(ports);
        refused.extend(self.configure_sockets(&sockets, &config));
        for (id, why) in &refused {
            warn!("{id} refused: {why}");
        }
        self.switch_over(&config.workers);
        // What waits may go earlier now.
        for id in changed {
            self.workers.look_at(id);
        }
        if !self.standby {
            self.vmci.begin();
            self.vmci.listen();
        }
        info!(revision = config.revision, ports = self.entries.len(), "configured");
        self.config = config;
        let configured = FromFabric::Configured { revision: self.config.revision, refused };
        send(&mut self.peer, &configured, &[]);
    }

    /// Closes what is no longer wanted, or not as what it is.
    fn close_unwanted(&mut self, wanted: &Acceptable<'_>) {
        let reason = |id: &PortId, entry: &Entry| match (
            &entry.behind,
            wanted.ports.get(id),
            wanted.sockets.get(id),
        ) {
            (Behind::Port(config, _), Some(port), _) if config.kind == port.kind => None,
            (Behind::Socket(config), _, Some(socket)) if config.cid == socket.cid => None,
            (_, None, None) => Some("the port is no longer configured"),
            (Behind::Socket(_), _, Some(_)) => Some("the device's context ID has changed"),
            _ => Some("the port's kind has changed"),
        };
        let unwanted = self.entries.iter().filter_map(|(id, entry)| Some((*id, reason(id, entry)?)));
        for (id, reason) in unwanted.collect::<Vec<_>>() {
            self.close(id, reason);
        }
    }

    /// Makes the ports; tells at which workers are to look, since frames that wait there may go earlier now.
    fn configure_ports(&mut self, ports: BTreeMap<PortId, &PortConfig>) -> BTreeSet<PortId> {
        let now = Instant::now();
        let mut changed = BTreeSet::new();
        for (id, wanted) in ports {
            match self.entries.entry(id) {
                Slot::Occupied(mut entry) => {
                    let Behind::Port(config, VnicDevice { port, .. }) = &mut entry.get_mut().behind else {
                        continue;
                    };
                    if config.shaping != wanted.shaping {
                        port.shape(&wanted.shaping, now);
                        changed.insert(id);
                    }
                    if config.coalescing != wanted.coalescing {
                        port.moderate(wanted.coalescing);
                        changed.insert(id);
                    }
                    let place = |config: &PortConfig| (config.segment, config.vlan.clone(), config.mac);
                    if place(config) != place(wanted) {
                        port.address.reset();
                    }
                    *config = wanted.clone();
                }
                Slot::Vacant(slot) => {
                    let port = Arc::new(Port::new(id, wanted.kind, PortBlock::new(&self.words, id)));
                    port.shape(&wanted.shaping, now);
                    port.moderate(wanted.coalescing);
                    let device = VnicDevice { port, mailboxes: Arc::clone(self.workers.mailboxes()) };
                    slot.insert(Entry::of_port(wanted.clone(), device));
                }
            }
        }
        changed
    }

    /// Makes the VMCI devices; tells which cannot be made, and why.
    fn configure_sockets(
        &mut self,
        wanted: &BTreeMap<PortId, &SocketConfig>,
        config: &FabricConfig,
    ) -> Vec<(PortId, String)> {
        let devices: Vec<_> = wanted.values().copied().cloned().collect();
        let refused = self.vmci.sockets.configure(&devices, &config.socket_worker, &config.workers.near);
        for config in devices {
            let id = config.id;
            match (self.vmci.sockets.device(id), self.entries.get_mut(&id)) {
                (Some(_), Some(entry)) => entry.behind = Behind::Socket(config),
                (Some(device), None) => _ = self.entries.insert(id, Entry::of_socket(config, device)),
                (None, _) => self.close(id, "the device cannot be made"),
            }
        }
        refused
    }

    /// Puts the switch of the ports as they are in force. While standing by the workers have none: a frame of the first port
    /// that is taken over must find all others there.
    pub(super) fn switch_over(&mut self, workers: &WorkerConfig) {
        let standby = self.standby;
        let ports = self.entries.values().filter_map(Entry::port);
        let members = ports.filter(|_| !standby);
        let switch = self.workers.next_switch(|before| Switch::new(members, before));
        if let Err(error) = self.workers.configure(switch, workers) {
            warn!("{}", chain(&error));
        }
    }

    fn close(&mut self, port: PortId, reason: &str) {
        let Some(mut entry) = self.entries.remove(&port) else { return };
        let had_session = entry.end_session();
        entry.detach();
        if had_session {
            let ended = FromFabric::SessionEnded { port, reason: reason.to_owned() };
            send(&mut self.peer, &ended, &[]);
        }
    }
}
