//! Making the ports what a configuration wants them to be.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use taut_api::Vlan;
use taut_api::fabric::FromFabric;
use taut_api::fabric::config::{FabricConfig, PortConfig, PortId, PortKind, WorkerConfig};
use taut_api::fabric::counters::MAX_PORTS;
use tracing::{info, warn};

use super::entry::Entry;
use super::{Control, chain, send};
use crate::counters::PortBlock;
use crate::port::Port;
use crate::switch::Switch;

/// Most pairs of queues that a port can have.
const MAX_PAIRS: u8 = 8;

impl Control {
    pub(super) fn configure(&mut self, config: FabricConfig) {
        let (ports, refused) = acceptable(&config);
        for (id, why) in &refused {
            warn!("{id} refused: {why}");
        }
        let unwanted: Vec<_> = self.entries.keys().filter(|id| !ports.contains_key(id)).copied().collect();
        for id in unwanted {
            self.close(id, "the port is no longer configured");
        }
        let now = Instant::now();
        let mut changed = BTreeSet::new();
        for (id, wanted) in ports {
            if self.entries.get(&id).is_some_and(|entry| entry.config.kind != wanted.kind) {
                self.close(id, "the port's kind has changed");
            }
            match self.entries.entry(id) {
                Slot::Occupied(mut entry) => {
                    let entry = entry.get_mut();
                    if entry.config.shaping != wanted.shaping {
                        entry.port.shape(&wanted.shaping, now);
                        changed.insert(id);
                    }
                    if entry.config.coalescing != wanted.coalescing {
                        entry.port.moderate(wanted.coalescing);
                        changed.insert(id);
                    }
                    let place = |config: &PortConfig| (config.segment, config.vlan.clone(), config.mac);
                    if place(&entry.config) != place(wanted) {
                        entry.port.address.reset();
                    }
                    entry.config = wanted.clone();
                }
                Slot::Vacant(slot) => {
                    let port = Port::new(id, wanted.kind, PortBlock::new(&self.words, id));
                    port.shape(&wanted.shaping, now);
                    port.moderate(wanted.coalescing);
                    slot.insert(Entry::new(wanted.clone(), Arc::new(port)));
                }
            }
        }
        self.switch_over(&config.workers);
        // What waits may go earlier now.
        for id in changed {
            self.workers.look_at(id);
        }
        info!(revision = config.revision, ports = self.entries.len(), "configured");
        self.config = config;
        let configured = FromFabric::Configured { revision: self.config.revision, refused };
        send(&mut self.peer, &configured, &[]);
    }

    /// Puts the switch of the ports as they are in force. While standing by the workers have none: a frame of the first port
    /// that is taken over must find all others there.
    pub(super) fn switch_over(&mut self, workers: &WorkerConfig) {
        let standby = self.standby;
        let members = self.entries.values().map(|entry| (&entry.config, &entry.port)).filter(|_| !standby);
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

/// The ports that can be made, and why others cannot.
fn acceptable(config: &FabricConfig) -> (BTreeMap<PortId, &PortConfig>, Vec<(PortId, String)>) {
    let mut ports = BTreeMap::new();
    let mut refused = Vec::new();
    let mut addresses = HashMap::<_, Vec<&Vlan>>::new();
    for port in &config.ports {
        let why = if usize::from(port.id.0) >= MAX_PORTS {
            Some(format!("port numbers end at {}", MAX_PORTS - 1))
        } else if ports.contains_key(&port.id) {
            Some("the number is taken".to_owned())
        } else if !port.mac.is_assignable() {
            Some(format!("{} is not an address that a card can have", port.mac))
        } else if addresses.get(&(port.segment, port.mac)).is_some_and(|vlans| meet(vlans, &port.vlan)) {
            Some(format!("the address {} is taken in VLAN {} of its vSwitch", port.mac, port.vlan))
        } else {
            match port.kind {
                PortKind::VhostUser { queue_pairs, .. } if !(1..=MAX_PAIRS).contains(&queue_pairs) => {
                    Some(format!("{queue_pairs} queue pairs are not between 1 and {MAX_PAIRS}"))
                }
                _ => None,
            }
        };
        if let Some(why) = why {
            refused.push((port.id, why));
        } else {
            addresses.entry((port.segment, port.mac)).or_default().push(&port.vlan);
            ports.insert(port.id, port);
        }
    }
    (ports, refused)
}

/// Can one address not be in these VLANs and in `vlan`? A trunk's is known without its VLANs: two trunks always meet.
fn meet(vlans: &[&Vlan], vlan: &Vlan) -> bool {
    let trunk = |vlan: &Vlan| matches!(vlan, Vlan::Trunk(_));
    vlans.iter().any(|other| other.overlaps(vlan) || trunk(other) && trunk(vlan))
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::config::SegmentId;
    use taut_api::network::Security;
    use taut_api::shaping::Shaping;
    use taut_api::{Coalescing, MacAddr};

    use super::*;

    fn port(id: u16, mac: u8, segment: u16) -> PortConfig {
        PortConfig {
            id: PortId(id),
            owner: format!("vm/{id}/nic0"),
            kind: PortKind::VhostUser { offloads: true, queue_pairs: 1 },
            segment: SegmentId(segment),
            mac: MacAddr([2, 0, 0, 0, 0, mac]),
            vlan: Vlan::default(),
            security: Security::default(),
            shaping: Shaping::default(),
            mac_learning: None,
            coalescing: Coalescing::Disabled,
            lro: true,
        }
    }

    fn in_vlan(id: u16, mac: u8, vlan: &str) -> PortConfig {
        PortConfig { vlan: vlan.parse().unwrap(), ..port(id, mac, 1) }
    }

    #[test]
    fn each_refusal_has_its_reason_and_the_rest_is_accepted() {
        let mut pairs = port(5, 5, 1);
        pairs.kind = PortKind::VhostUser { offloads: true, queue_pairs: 9 };
        let mut multicast = port(6, 6, 1);
        multicast.mac = MacAddr::BROADCAST;
        let ports = vec![
            port(1, 1, 1),
            port(1, 2, 1),
            port(2, 1, 1),
            port(3, 1, 2),
            in_vlan(7, 1, "10"),
            in_vlan(8, 1, "11-20"),
            in_vlan(9, 1, "30-40"),
            in_vlan(10, 1, "15"),
            port(4096, 9, 1),
            pairs,
            multicast,
        ];
        let config = FabricConfig { ports, ..FabricConfig::default() };
        let (accepted, refused) = acceptable(&config);
        assert_eq!(accepted.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 3, 7, 8]);
        let refused: Vec<_> = refused.iter().map(|(id, why)| (id.0, why.as_str())).collect();
        assert_eq!(
            refused,
            [
                (1, "the number is taken"),
                (2, "the address 02:00:00:00:00:01 is taken in VLAN 0 of its vSwitch"),
                (9, "the address 02:00:00:00:00:01 is taken in VLAN 30-40 of its vSwitch"),
                (10, "the address 02:00:00:00:00:01 is taken in VLAN 15 of its vSwitch"),
                (4096, "port numbers end at 4095"),
                (5, "9 queue pairs are not between 1 and 8"),
                (6, "ff:ff:ff:ff:ff:ff is not an address that a card can have"),
            ]
        );
    }
}
