//! Messages about multicast groups, as guests and hosts outside send them, and the groups that
//! follow from them.
//!
//! Input: 1 byte of flags, then messages: 1 byte each of the sending port, of the time that passes
//! and of the length, and the frame.

use std::net::IpAddr;

use taut_api::Vlan;
use taut_api::fabric::PortId;
use taut_fabric::net::ethernet;
use taut_fabric::net::multicast::{Kind, MOST_READ, Message, is_filtered, kind, queries, read};
use taut_fabric::snooping::{Groups, PortSetup};
use taut_virtq::device::FIRST_BYTES;

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "multicast", run, budget: Budget::of(100, 16) };

const PORTS: u16 = 4;
/// Most messages of an input.
const MOST_MESSAGES: usize = 64;

fn run(data: &[u8]) {
    let mut input = Input(data);
    let is_summed = input.u8() & 1 == 0;
    let mut groups = Groups::default();
    let setup = PortSetup { owner: String::new(), vlan: Vlan::default(), takes_all: false };
    groups.set_ports((0..PORTS).map(|port| (PortId(port), setup.clone())).collect());
    for port in (0..PORTS).map(PortId) {
        assert!(groups.see(port, Some(1)));
        groups.asked(port, 0);
    }
    let mut records = Vec::new();
    // From then on it is known what the ports have joined.
    let mut now = 20_000;
    for _ in 0..MOST_MESSAGES {
        if input.is_empty() {
            break;
        }
        let from = PortId(u16::from(input.u8()) % (PORTS + 1));
        now += u64::from(input.u8()) * 100;
        let length = usize::from(input.u8()) * 8;
        let frame = input.slice(length.min(MOST_READ));
        let head = &frame[..frame.len().min(FIRST_BYTES)];
        let Ok(parsed) = ethernet::check(head, frame.len()) else { continue };
        if let Kind::Group(group) = kind(head, &parsed) {
            assert!(is_filtered(group));
        }
        let Some(message) = read(frame, &parsed, is_summed, &mut records) else { continue };
        assert!(records.len() <= MOST_READ / 8);
        assert!(records.iter().all(|record| is_filtered(record.group)));
        groups.hear(from, 0, message, &records, now);
        follow(&mut groups, now);
        let listing = groups.list(usize::MAX, now);
        let has_members = |(_, _, ports): &&(u16, IpAddr, Vec<PortId>)| !ports.is_empty();
        assert!(listing.groups.iter().filter(has_members).all(|(_, group, _)| is_filtered(*group)));
        assert!(listing.groups.iter().flat_map(|(.., ports)| ports).all(|port| port.0 < PORTS));
        if message == Message::Router && from.0 < PORTS {
            assert!(listing.routers.contains(&from));
        }
    }
}

/// Asks members that may be gone.
fn follow(groups: &mut Groups, now: u64) {
    for doubt in groups.doubts(now, 128) {
        assert!(!queries(Some(doubt.group)).is_empty());
        groups.doubted(doubt, true, now);
    }
    groups.expire(now, usize::MAX);
}
