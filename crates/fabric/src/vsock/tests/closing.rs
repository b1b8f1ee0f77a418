//! The work of ending connections: in proportion to how many are ended, whatever others there are.
//!
//! Work is counted in looks for a connection in the table. Time would say nothing on a busy
//! machine.

use std::time::Duration;

use taut_api::fabric::config::SocketConfig;
use taut_virtq::socket_header::{REQUEST, RST};

use super::rig::*;
use crate::vsock::proto::HALF_OPEN_TIMEOUT;

/// Ways to end the connections that guest 0 has opened to guest 1.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// The front end of guest 0 goes.
    Gone,
    /// Guest 0 begins anew.
    Restart,
    /// Guest 0 resets them one by one.
    Reset,
    /// Guest 0 leaves the domain that it shares with guest 1.
    Domain,
    /// The device of guest 0 is removed.
    Removed,
    /// Guest 1, which has not answered, is waited for no longer.
    Expired,
}

const WAYS: [Way; 6] = [Way::Gone, Way::Restart, Way::Reset, Way::Domain, Way::Removed, Way::Expired];

/// Guests 0 and 1 are in one domain, guests 2 and 3 in another.
fn devices(domain_of_first: &'static str) -> Vec<SocketConfig> {
    let domains = [domain_of_first, "one", "two", "two"];
    let devices = (3..).zip(domains).map(|(cid, domain)| device(cid, &[domain]));
    devices.map(|device| SocketConfig { connections: 4096, half_open: 4096, ..device }).collect()
}

/// Opens connections, or only requests them.
fn open(rig: &mut Rig, from: usize, to: usize, count: u32, answered: bool) {
    for port in 5000..5000 + count {
        if answered {
            rig.connect(from, to, port);
        } else {
            rig.send_control(rig.ends(from, to, port).0, REQUEST, 0);
            rig.settle();
        }
    }
}

/// Ends `count` connections while there are `others` between two other guests. Returns how often
/// the switch has looked for a connection, until all have been told.
fn looks(way: Way, count: u32, others: u32) -> u64 {
    let mut rig = rig_of(devices("one"), 4096);
    open(&mut rig, 2, 3, others, true);
    open(&mut rig, 0, 1, count, !matches!(way, Way::Expired));
    rig.ops(1);
    // Whatever was put off is done before.
    rig.now += Duration::from_secs(1);
    rig.settle();
    let before = rig.switch.table.looks();
    match way {
        Way::Gone => rig.leave(0),
        Way::Restart => rig.restart(0),
        Way::Reset => {
            for port in 5000..5000 + count {
                rig.send_control(rig.ends(0, 1, port).0, RST, 0);
                rig.settle();
            }
        }
        Way::Domain => assert_eq!(rig.configure(devices("alone")), 0),
        Way::Removed => assert_eq!(rig.configure(devices("one").split_off(1)), 0),
        Way::Expired => rig.now += HALF_OPEN_TIMEOUT,
    }
    rig.settle();
    let looks = rig.switch.table.looks() - before;
    assert_eq!(rig.ops(1), vec![RST; count as usize], "{way:?}");
    assert_eq!(rig.switch.table.ids().count(), others as usize, "{way:?}");
    rig.check();
    looks
}

#[test]
fn ending_ten_times_as_many_connections_takes_about_ten_times_the_work() {
    for way in WAYS {
        let (few, many) = (looks(way, 40, 0), looks(way, 400, 0));
        assert!(many <= 15 * few, "{way:?}: {few} looks for 40 connections, {many} for 400");
    }
}

#[test]
fn connections_of_others_take_no_part_in_it() {
    for way in WAYS {
        let (alone, beside) = (looks(way, 40, 0), looks(way, 40, 400));
        assert_eq!(alone, beside, "{way:?}: looks without and beside 400 connections of others");
    }
}
