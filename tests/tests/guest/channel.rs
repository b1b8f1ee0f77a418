//! The agent's channel when one client leaves and the next one connects at once.

use std::time::Duration;

use taut_bench::agent::Client;
use taut_tests::{Taut, any_image};

use crate::direct;

/// Number of connections. An agent that believed the kernel at once lost one answer in a hundred on
/// two busy cores.
const TIMES: u32 = 500;

#[test]
fn a_client_right_after_another_is_answered() {
    let taut = Taut::start().with_lan();
    let image = any_image();
    // One vCPU learns that the host is there while the agent runs on the other.
    taut.boot("g", &format!("vcpus = 2\n{}", direct(&image, "")));
    let status = taut.json(["vm", "show", "g"])["status"].clone();
    let socket = status["agent_socket"].as_str().unwrap();
    for time in 0..TIMES {
        let answered = Client::connect("g", socket.as_ref(), Duration::from_secs(60));
        assert!(answered.is_ok(), "time {time}: {:?}", answered.err());
    }
}
