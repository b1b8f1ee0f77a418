//! Two users who change one resource at the same time: neither change is lost.

use std::process::{Child, Stdio};

use taut_tests::Taut;

/// Number of pairs of changes.
const ROUNDS: u32 = 40;

fn set(taut: &Taut, option: &str, value: &str) -> Child {
    let mut command = taut.command();
    let command = command.args(["portgroup", "set", "lan", option, value]);
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().expect("taut can be run")
}

#[test]
fn changes_of_a_port_group_at_the_same_time_all_take_effect() {
    let taut = Taut::start().with_lan();
    for round in 1..=ROUNDS {
        let rate = format!("{round}Mbit");
        let both = [set(&taut, "--vlan", &round.to_string()), set(&taut, "--to-guest", &rate)];
        for mut one in both {
            assert!(one.wait().expect("our child").success());
        }
        let spec = taut.json(["portgroup", "show", "lan"])["spec"].clone();
        assert_eq!(spec["vlan"].to_string().trim_matches('"'), round.to_string(), "{spec}");
        assert_eq!(spec["shaping"]["to_guest"]["average"], rate.as_str(), "{spec}");
    }
    let events = taut.json(["events"]);
    let refused = events.as_array().unwrap().iter().filter(|event| event["kind"] == "portgroup.refused");
    assert_eq!(refused.count(), 0, "{events}");
}
