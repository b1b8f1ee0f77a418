//! Configuration: makes ports and vsock devices what `tautd` wants them to be.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::FromFabric;
use taut_api::fabric::config::{FabricConfig, PortConfig, PortId, SocketConfig, WorkerConfig};
use tracing::{info, warn};

use super::entry::{Entry, Kind};
use super::validate::{Valid, validate};
use super::{Control, chain};
use crate::port::Port;
use crate::port::vnic_device::VnicDevice;
use crate::switch::Switch;
use crate::sys::counters::PortBlock;

impl Control {
    /// Puts a configuration into force and reports what of it was refused.
    pub(super) fn configure(&mut self, config: FabricConfig) {
        let valid = validate(&config);
        self.close_unwanted(&valid);
        let Valid { ports, sockets, mut refused } = valid;
        let mut changed = self.configure_ports(ports);
        changed.extend(self.configure_network_io(&config));
        refused.extend(self.configure_sockets(&sockets, &config));
        self.teams.configure(
            &config,
            |id| self.entries.get(&id).is_some_and(|entry| entry.port().is_some()),
            Instant::now(),
        );
        self.next_look = Instant::now();
        self.configure_groups(&config);
        for (id, why) in &refused {
            warn!("{id} refused: {why}");
        }
        self.switch_over(&config.workers);
        // Frames that wait at these ports may go earlier now.
        for id in changed {
            self.workers.recheck(id);
        }
        if !self.standby {
            self.vsock.begin();
            self.vsock.listen();
        }
        info!(revision = config.revision, ports = self.entries.len(), "configured");
        self.config = config;
        let configured = FromFabric::Configured { revision: self.config.revision, refused };
        self.tautd.send(&configured, &[]);
    }

    /// Closes entries that are no longer wanted, or wanted as something else.
    fn close_unwanted(&mut self, wanted: &Valid<'_>) {
        let reason =
            |id: &PortId, entry: &Entry| match (&entry.kind, wanted.ports.get(id), wanted.sockets.get(id)) {
                (Kind::Port(config, _), Some(port), _) if config.kind == port.kind => None,
                (Kind::Socket(config), _, Some(socket)) if config.cid == socket.cid => None,
                (_, None, None) => Some("the port is no longer configured"),
                (Kind::Socket(_), _, Some(_)) => Some("the device's context ID has changed"),
                _ => Some("the port's kind has changed"),
            };
        let unwanted = self.entries.iter().filter_map(|(id, entry)| Some((*id, reason(id, entry)?)));
        for (id, reason) in unwanted.collect::<Vec<_>>() {
            self.close(id, reason);
        }
    }

    /// Creates or changes ports. Returns those that workers have to look at, because frames that
    /// wait there may go earlier now.
    fn configure_ports(&mut self, ports: BTreeMap<PortId, &PortConfig>) -> BTreeSet<PortId> {
        let now = Instant::now();
        let mut changed = BTreeSet::new();
        for (id, wanted) in ports {
            match self.entries.entry(id) {
                Slot::Occupied(mut entry) => {
                    let Kind::Port(config, VnicDevice { port, .. }) = &mut entry.get_mut().kind else {
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
                    let place = |config: &PortConfig| {
                        (config.segment, config.vlan.clone(), config.mac, config.effective.is_some())
                    };
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

    /// Creates or changes vsock devices. Returns those that cannot be made, with reasons.
    fn configure_sockets(
        &mut self,
        wanted: &BTreeMap<PortId, &SocketConfig>,
        config: &FabricConfig,
    ) -> Vec<(PortId, String)> {
        let devices: Vec<_> = wanted.values().copied().cloned().collect();
        let refused = self.vsock.configure(&devices, &config.socket_worker, &config.workers.near);
        for config in devices {
            let id = config.id;
            match (self.vsock.device(id), self.entries.get_mut(&id)) {
                (Some(_), Some(entry)) => {
                    entry.kind = Kind::Socket(config);
                    if entry.drop_unwanted_queue_pairs() {
                        self.vsock.remove_region(id);
                    }
                }
                (Some(device), None) => _ = self.entries.insert(id, Entry::of_socket(config, device)),
                (None, _) => self.close(id, "the device cannot be made"),
            }
        }
        refused
    }

    /// Puts the switch of the current ports into force.
    ///
    /// In standby the workers have no ports: a frame of the first port that is taken over must find
    /// all other ports there.
    pub(super) fn switch_over(&mut self, workers: &WorkerConfig) {
        let standby = self.standby;
        let ports = self.entries.values().filter_map(Entry::port);
        let members = ports.filter(|_| !standby);
        let outsides = self.teams.outsides();
        let switch = self
            .workers
            .next_switch(|before| Switch::new(members, &outsides, self.groups.by_segment(), before));
        if let Err(error) = self.workers.configure(switch, workers) {
            warn!("{}", chain(&error));
        }
    }

    /// Removes an entry and reports the end of its session.
    fn close(&mut self, port: PortId, reason: &str) {
        let Some(mut entry) = self.entries.remove(&port) else { return };
        let had_session = entry.end_session();
        entry.detach();
        self.captures.end_of(port);
        if had_session {
            let reason = reason.to_owned();
            self.tautd.send(&FromFabric::SessionEnded { port, reason, quarantined: false }, &[]);
        }
    }
}
