//! Validation: the parts of a configuration that can be put into force.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use taut_api::Vlan;
use taut_api::fabric::config::{FabricConfig, PortConfig, PortId, PortKind, SocketConfig};
use taut_api::fabric::counters::{MAX_CONNECTIONS, MAX_PORTS};
use taut_uplink::team::MOST_UPLINKS;

// Admission and the rules of teams agree.
const _: () = assert!(MOST_UPLINKS as usize == taut_api::uplink::MOST_UPLINKS);

/// Largest number of queue pairs of a port.
const MAX_PAIRS: u8 = 8;

/// The valid parts of a configuration, and the reasons against the others.
#[derive(Debug, Default)]
pub(super) struct Valid<'a> {
    pub(super) ports: BTreeMap<PortId, &'a PortConfig>,
    pub(super) sockets: BTreeMap<PortId, &'a SocketConfig>,
    pub(super) refused: Vec<(PortId, String)>,
}

/// Validates a configuration.
pub(super) fn validate(config: &FabricConfig) -> Valid<'_> {
    let (ports, mut refused) = valid_ports(&config.ports);
    let mut sockets = BTreeMap::new();
    let mut cids = BTreeSet::new();
    for socket in &config.sockets {
        let limits = 1..=MAX_CONNECTIONS as u32;
        let limit = [socket.connections, socket.half_open].into_iter().find(|limit| !limits.contains(limit));
        let why = if ports.contains_key(&socket.id) || sockets.contains_key(&socket.id) {
            Some("the number is taken".to_owned())
        } else if let Some(why) = beyond_numbers(socket.id) {
            Some(why)
        } else if !socket.cid.is_a_vms() {
            Some(format!("{} is not a context ID that a VM can have", socket.cid))
        } else if cids.contains(&socket.cid) {
            Some(format!("the context ID {} is taken", socket.cid))
        } else {
            limit.map(|limit| format!("{limit} connections are not between 1 and {MAX_CONNECTIONS}"))
        };
        if let Some(why) = why {
            refused.push((socket.id, why));
        } else {
            cids.insert(socket.cid);
            sockets.insert(socket.id, socket);
        }
    }
    Valid { ports, sockets, refused }
}

/// The reason against a number that is too high.
fn beyond_numbers(id: PortId) -> Option<String> {
    (usize::from(id.0) >= MAX_PORTS).then(|| format!("port numbers end at {}", MAX_PORTS - 1))
}

/// The valid ports, and the reasons against the others.
fn valid_ports(wanted: &[PortConfig]) -> (BTreeMap<PortId, &PortConfig>, Vec<(PortId, String)>) {
    let mut ports = BTreeMap::new();
    let mut refused = Vec::new();
    let mut addresses = HashMap::<_, Vec<&Vlan>>::new();
    let mut outside = BTreeMap::new();
    for port in wanted {
        let why = if let Some(why) = beyond_numbers(port.id) {
            Some(why)
        } else if ports.contains_key(&port.id) {
            Some("the number is taken".to_owned())
        } else if port.kind == PortKind::Uplink {
            let uplinks: &mut u8 = outside.entry(port.segment).or_default();
            *uplinks = uplinks.saturating_add(1);
            (*uplinks > MOST_UPLINKS).then(|| format!("its vSwitch has {MOST_UPLINKS} uplinks already"))
        } else if !port.mac.is_assignable() {
            Some(format!("{} is not an address that a card can have", port.mac))
        } else if addresses.get(&(port.segment, port.mac)).is_some_and(|vlans| conflict(vlans, &port.vlan)) {
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
            if port.kind != PortKind::Uplink {
                addresses.entry((port.segment, port.mac)).or_default().push(&port.vlan);
            }
            ports.insert(port.id, port);
        }
    }
    (ports, refused)
}

/// Tells whether one address in these VLANs conflicts with the same address in `vlan`.
///
/// The address of a trunk is valid in all its VLANs under one key, so two trunks always conflict.
fn conflict(vlans: &[&Vlan], vlan: &Vlan) -> bool {
    let trunk = |vlan: &Vlan| matches!(vlan, Vlan::Trunk(_));
    vlans.iter().any(|other| other.overlaps(vlan) || trunk(other) && trunk(vlan))
}

#[cfg(test)]
mod tests {
    use taut_api::MacAddr;
    use taut_api::fabric::config::{FrontEndRules, SegmentId};
    use taut_api::vmci::Cid;

    use super::*;

    fn port(id: u16, mac: u8, segment: u16) -> PortConfig {
        PortConfig {
            lro: true,
            ..PortConfig::new(
                PortId(id),
                format!("vm/{id}/nic0"),
                PortKind::VhostUser { offloads: true, queue_pairs: 1 },
                SegmentId(segment),
                MacAddr([2, 0, 0, 0, 0, mac]),
            )
        }
    }

    fn in_vlan(id: u16, mac: u8, vlan: &str) -> PortConfig {
        PortConfig { vlan: vlan.parse().unwrap(), ..port(id, mac, 1) }
    }

    #[test]
    fn invalid_ports_are_refused_with_reasons_and_the_others_are_valid() {
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
        let Valid { ports, refused, .. } = validate(&config);
        assert_eq!(ports.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 3, 7, 8]);
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

    #[test]
    fn a_segment_has_as_many_uplinks_as_there_are_numbers() {
        let uplink = |id, segment| PortConfig { kind: PortKind::Uplink, ..port(id, 1, segment) };
        let ports = (0..=MOST_UPLINKS.into()).map(|id| uplink(id, 1)).chain([uplink(100, 2)]).collect();
        let config = FabricConfig { ports, ..FabricConfig::default() };
        let Valid { ports, refused, .. } = validate(&config);
        assert_eq!(ports.len(), usize::from(MOST_UPLINKS) + 1);
        assert_eq!(refused, [(PortId(MOST_UPLINKS.into()), "its vSwitch has 32 uplinks already".to_owned())]);
    }

    fn socket(id: u16, cid: u32) -> SocketConfig {
        SocketConfig {
            id: PortId(id),
            owner: format!("vm/{id}/vmci"),
            cid: Cid(cid),
            domains: Vec::new(),
            unrestricted: false,
            connections: 4096,
            half_open: 256,
            front_end: FrontEndRules::default(),
            queue_pairs: None,
        }
    }

    #[test]
    fn vsock_devices_need_distinct_numbers_and_context_ids_and_limits_in_range() {
        let limited = |id, connections, half_open| SocketConfig {
            connections,
            half_open,
            ..socket(id, 100 + u32::from(id))
        };
        let sockets = vec![
            socket(2, 3),
            socket(1, 4),
            socket(2, 5),
            socket(3, 3),
            socket(4, 4),
            socket(5, 2),
            socket(6, u32::MAX),
            socket(4096, 6),
            limited(7, 65_536, 1),
            limited(8, 65_537, 1),
            limited(9, 1, 0),
        ];
        let config = FabricConfig { ports: vec![port(1, 1, 1)], sockets, ..FabricConfig::default() };
        let Valid { ports, sockets, refused } = validate(&config);
        assert_eq!(ports.len(), 1);
        assert_eq!(sockets.keys().map(|id| id.0).collect::<Vec<_>>(), [2, 4, 7]);
        let refused: Vec<_> = refused.iter().map(|(id, why)| (id.0, why.as_str())).collect();
        assert_eq!(
            refused,
            [
                (1, "the number is taken"),
                (2, "the number is taken"),
                (3, "the context ID 3 is taken"),
                (5, "2 is not a context ID that a VM can have"),
                (6, "4294967295 is not a context ID that a VM can have"),
                (4096, "port numbers end at 4095"),
                (8, "65537 connections are not between 1 and 65536"),
                (9, "0 connections are not between 1 and 65536"),
            ]
        );
    }
}
