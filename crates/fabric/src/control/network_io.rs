//! Network I/O control: puts it into force at uplinks, and tells ports what they have reserved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::config::{FabricConfig, PortConfig, PortKind};
use taut_api::network_io::{NetworkAllocation, TrafficClass};

use super::Control;
use super::entry::Entry;
use crate::port::network_io::{NetworkIoSetup, allocation};
use crate::port::reservation::Budget;

impl Control {
    /// Puts network I/O control of uplinks into force. Returns the uplinks that have it.
    ///
    /// The caller then makes a new plan, by which workers learn which ports have a reservation.
    pub(super) fn configure_network_io(&self, config: &FabricConfig) -> Vec<PortId> {
        let now = Instant::now();
        let mut controlled = Vec::new();
        let mut reservations = BTreeMap::new();
        for (uplink, port) in self.entries.values().filter_map(Entry::port) {
            if uplink.kind != PortKind::Uplink {
                continue;
            }
            let wanted = network_io_of(config, uplink);
            if let Some(wanted) = &wanted {
                controlled.push(port.id);
                // All uplinks of a segment have the same reservations.
                reservations.extend(reservations_of(wanted, now));
            }
            port.set_network_io(wanted, now);
        }
        for (_, port) in self.entries.values().filter_map(Entry::port) {
            let (own, class) = reservations.remove(&port.id).unwrap_or_default();
            port.reserve(own, class);
        }
        controlled
    }
}

/// Budgets of a port's own reservation, and of that of its class.
type Budgets = (Option<Budget>, Option<Arc<Mutex<Budget>>>);

/// Returns the budgets of all senders. Those of one class share one.
fn reservations_of(setup: &NetworkIoSetup, now: Instant) -> BTreeMap<PortId, Budgets> {
    let mut classes = BTreeMap::new();
    let budgets = |(id, (class, own)): (&PortId, &(TrafficClass, NetworkAllocation))| {
        let own = own.reservation.map(|rate| Budget::new(rate, now));
        let of_class = allocation(setup, *class).reservation.map(|rate| {
            let shared =
                classes.entry(*class).or_insert_with(|| Arc::new(Mutex::new(Budget::new(rate, now))));
            Arc::clone(shared)
        });
        (*id, (own, of_class))
    };
    setup.senders.iter().map(budgets).collect()
}

/// Returns the network I/O control of an uplink; `None` if its segment has none, or its speed is
/// not known.
fn network_io_of(config: &FabricConfig, uplink: &PortConfig) -> Option<NetworkIoSetup> {
    let of_uplink = config.network_io.iter().find(|network_io| network_io.segment == uplink.segment)?;
    let classes = of_uplink.classes.clone();
    let of_segment = config.ports.iter().filter(|port| port.segment == uplink.segment);
    let senders = of_segment
        .filter(|port| port.kind != PortKind::Uplink)
        .map(|port| (port.id, (port.traffic_class, port.allocation)));
    Some(NetworkIoSetup { speed: uplink.speed?, classes, senders: senders.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_their_own_reservations_and_share_that_of_their_class() {
        let nfs = TrafficClass::Nfs;
        let senders = [
            (1, TrafficClass::default(), "default"),
            (2, TrafficClass::default(), "reservation=10Mbit"),
            (3, nfs, "default"),
            (4, nfs, "reservation=10Mbit"),
        ];
        let setup = NetworkIoSetup {
            speed: 1_000_000_000,
            classes: [(nfs, "reservation=100Mbit".parse().unwrap())].into(),
            senders: senders.map(|(id, class, text)| (PortId(id), (class, text.parse().unwrap()))).into(),
        };
        let found = reservations_of(&setup, Instant::now());
        let has = |id| (found[&PortId(id)].0.is_some(), found[&PortId(id)].1.is_some());
        assert_eq!([1, 2, 3, 4].map(has), [(false, false), (true, false), (false, true), (true, true)]);
        let class = |id| found[&PortId(id)].1.as_ref().unwrap();
        assert!(Arc::ptr_eq(class(3), class(4)));
    }
}
