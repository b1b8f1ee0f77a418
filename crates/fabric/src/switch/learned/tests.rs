//! Tests of learning with a simulated clock, and by many threads at once.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use taut_api::fabric::config::{PortKind, SegmentId};
use taut_api::network::{MacLearning, Security};
use taut_api::{MacAddr, Vlan};

use super::*;
use crate::net::ethernet::MacKey;

const AGEING: u32 = 300;

fn port(id: u16, limit: u16) -> PortConfig {
    PortConfig {
        vlan: Vlan::Access(5),
        security: Security { forged_transmits: true, ..Security::default() },
        mac_learning: Some(MacLearning { limit, ageing_s: AGEING }),
        lro: true,
        ..PortConfig::new(
            PortId(id),
            format!("vm/{id}/nic0"),
            PortKind::Stream,
            SegmentId(1),
            MacAddr([2, 0, 0, 0, 1, id as u8]),
        )
    }
}

fn table(ports: &[PortConfig]) -> Arc<Learned> {
    Learned::new(ports.iter(), None).unwrap()
}

fn key(number: u64) -> Key {
    Key::new(5, MacKey(2 + 256 * number))
}

#[test]
fn an_address_is_found_at_its_last_port_until_it_has_aged() {
    let table = table(&[port(1, 10), port(2, 10)]);
    assert_eq!(table.find(key(1), 0), None);
    assert!(table.learn(PortId(1), key(1), 0));
    assert_eq!(table.find(key(1), AGEING), Some(PortId(1)));
    assert_eq!(table.find(Key::new(6, MacKey(2 + 256)), 0), None, "another VLAN is another address");
    assert!(table.learn(PortId(2), key(1), 10));
    assert_eq!(table.find(key(1), 10 + AGEING), Some(PortId(2)));
    assert_eq!(table.find(key(1), 11 + AGEING), None);
    assert!(!table.learn(PortId(3), key(2), 0), "the port does not learn");
}

#[test]
fn a_port_learns_up_to_its_limit_and_again_when_addresses_have_aged() {
    let table = table(&[port(1, 100), port(2, 100)]);
    let learned = |second| (0..1000).filter(|&n| table.learn(PortId(1), key(n), second)).count();
    assert_eq!(learned(0), 100);
    assert!(table.learn(PortId(2), key(5000), 0), "another port has its own limit");
    assert_eq!(learned(1), 100, "known addresses are renewed");
    // All addresses have aged. The first round frees their places, the second one finds room.
    learned(AGEING + 2);
    assert_eq!(learned(AGEING + 2), 100);
    table.forget(PortId(2), key(5000));
    assert_eq!(table.find(key(5000), 1), None);
}

#[test]
fn a_new_configuration_keeps_addresses_of_unchanged_ports() {
    let ports = [port(1, 10), port(2, 10), port(3, 10)];
    let before = table(&ports);
    assert!(Arc::ptr_eq(&before, &Learned::new(ports.iter(), Some(&before)).unwrap()));
    for (id, number) in [(1, 1), (2, 2), (3, 3)] {
        assert!(before.learn(PortId(id), key(number), 7));
    }
    let mut moved = port(2, 10);
    moved.vlan = Vlan::Access(6);
    let mut stranger = port(3, 10);
    stranger.owner = "vm/other/nic0".into();
    let after = Learned::new([port(1, 500), moved, stranger].iter(), Some(&before)).unwrap();
    assert_eq!(after.find(key(1), 7 + AGEING), Some(PortId(1)), "a change of the limit removes no address");
    assert_eq!(after.find(key(2), 7), None);
    assert_eq!(after.find(key(3), 7), None);
    let mut not_learning = port(1, 1);
    not_learning.mac_learning = None;
    assert!(Learned::new([not_learning].iter(), Some(&after)).is_none());
}

#[test]
fn the_time_base_of_ages_survives_a_new_configuration() {
    let before = table(&[port(1, 10)]);
    let later = before.start + Duration::from_secs(100);
    assert_eq!(before.second(later), 100);
    let after = Learned::new([port(1, 11)].iter(), Some(&before)).unwrap();
    assert_eq!(after.second(later), 100);
}

#[test]
fn concurrent_workers_never_find_a_port_that_did_not_send_from_an_address() {
    const PORTS: u16 = 4;
    const EACH: u64 = 40;
    let configs: Vec<_> = (0..PORTS).map(|id| port(id, 20)).collect();
    let table = table(&configs);
    std::thread::scope(|scope| {
        for id in 0..PORTS {
            let table = &table;
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    // Each address belongs to one port. Ageing frees places again and again.
                    let number = u64::from(id) + u64::from(PORTS) * (round * 7 % EACH);
                    let second = (round / 50) as u32 * (AGEING + 1);
                    table.learn(PortId(id), key(number), second);
                    let other = (round * 13) % (EACH * u64::from(PORTS));
                    if let Some(found) = table.find(key(other), second) {
                        assert_eq!(u64::from(found.0), other % u64::from(PORTS));
                    }
                }
            });
        }
    });
    let second = u32::MAX;
    for _ in 0..table.places.len() {
        table.sweep(second);
    }
    for learner in &table.ports {
        assert_eq!(learner.count.load(Relaxed), 0, "every address was counted once and released once");
    }
}

proptest! {
    #[test]
    fn the_table_is_a_map_with_a_limit_per_port(
        steps in prop::collection::vec((0_u16..3, 0_u64..30, 0_u32..200, any::<bool>()), 1..300),
    ) {
        let table = table(&[port(0, 12), port(1, 12), port(2, 12)]);
        let mut model = BTreeMap::<u64, (u16, u32)>::new();
        let mut second = 0;
        for (id, number, passed, forget) in steps {
            second += passed;
            if forget {
                table.forget(PortId(id), key(number));
                if model.get(&number).is_some_and(|&(owner, _)| owner == id) {
                    model.remove(&number);
                }
            } else if table.learn(PortId(id), key(number), second) {
                model.insert(number, (id, second));
            }
            let mut counts = [0; 3];
            for number in 0..30 {
                let known = model.get(&number).filter(|(_, seen)| second - seen <= AGEING);
                prop_assert_eq!(table.find(key(number), second), known.map(|&(id, _)| PortId(id)));
                if let Some(&(id, _)) = known {
                    counts[usize::from(id)] += 1;
                }
            }
            prop_assert!(counts.iter().all(|&count| count <= 12));
        }
    }
}
